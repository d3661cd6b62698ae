/* utf8 - one step through bytes that may or may not be UTF-8.
 *
 * Used by every station of text/: pretokenize and spm walk whole texts, detokenizer walks a text
 * that is still arriving. Source: the Unicode standard, table 3-7 (well-formed byte sequences). */
#ifndef TANDEM_COORDINATOR_TEXT_UTF8_H
#define TANDEM_COORDINATOR_TEXT_UTF8_H

#include <stddef.h>

/* utf8_step() - look at the character that starts at text[0]; len >= 1.
 *
 * Returns n > 0: a valid character of n bytes.
 *         -n:    n bytes that can never become valid (the longest such beginning of a character).
 *         0:     text ends inside a character that may still become valid. */
static inline int utf8_step(const char *text, size_t len)
{
    const unsigned char *b = (const unsigned char *)text;
    if (b[0] < 0x80) return 1;
    if (b[0] < 0xC2 || b[0] > 0xF4) return -1;
    int want = b[0] < 0xE0 ? 2 : b[0] < 0xF0 ? 3 : 4;
    /* The second byte has the narrower ranges: no overlong forms, no surrogates, nothing above
     * U+10FFFF. */
    unsigned low = b[0] == 0xE0 ? 0xA0 : b[0] == 0xF0 ? 0x90 : 0x80;
    unsigned high = b[0] == 0xED ? 0x9F : b[0] == 0xF4 ? 0x8F : 0xBF;
    for (int i = 1; i < want; i++) {
        if ((size_t)i == len) return 0;
        if (b[i] < low || b[i] > high) return -i;
        low = 0x80, high = 0xBF;
    }
    return want;
}

#endif
