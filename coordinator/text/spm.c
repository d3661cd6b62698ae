/* spm - the "llama" tokenizer model: SentencePiece-style merges by score, byte fallback.
 *
 * A space is written U+2581 inside the vocabulary. Characters merge into pieces, the highest score
 * first; what is then no piece is written byte by byte.
 * Station before: tokenizer (special tokens are already cut out).
 * Station after: tokenizer (ids). */
#include "coordinator/text/spm.h"

#include "coordinator/text/utf8.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char space_mark[] = "\xE2\x96\x81"; /* U+2581 */
enum { SPACE_MARK_LEN = 3 };

void spm_bind_bytes(struct vocab *v)
{
    for (int byte = 0; byte < 256; byte++) {
        char name[8];
        snprintf(name, sizeof name, "<0x%02X>", (unsigned)byte);
        v->byte_id[byte] = vocab_find(v, name, strlen(name));
    }
}

/* mark_spaces() - a copy of text with spaces written as the vocabulary does; caller frees. */
static char *mark_spaces(const char *text, size_t len, bool space_prefix, size_t *marked_len)
{
    size_t spaces = space_prefix;
    for (size_t i = 0; i < len; i++) spaces += text[i] == ' ';
    char *marked = malloc(len + SPACE_MARK_LEN * spaces + 1);
    if (marked == NULL) return NULL;
    char *to = marked;
    if (space_prefix) to = mempcpy(to, space_mark, SPACE_MARK_LEN);
    for (size_t i = 0; i < len; i++) {
        if (text[i] == ' ')
            to = mempcpy(to, space_mark, SPACE_MARK_LEN);
        else
            *to++ = text[i];
    }
    *marked_len = (size_t)(to - marked);
    return marked;
}

static bool spm_cost(const void *context, const char *text, size_t left, size_t right, double *cost)
{
    const struct vocab *v = context;
    int32_t id = vocab_find(v, text, left + right);
    if (id < 0) return false;
    *cost = -(double)v->score[id];
    return true;
}

/* push_symbol() - the token of one symbol, or its bytes where no piece is made of it. */
static int push_symbol(const struct vocab *v, const struct merge_symbol *s, struct token_list *out,
                       struct err *err)
{
    int32_t id = vocab_find(v, s->text, s->len);
    if (id >= 0) return token_list_push(out, id, err);
    for (uint32_t i = 0; i < s->len; i++) {
        unsigned char byte = (unsigned char)s->text[i];
        id = v->byte_id[byte] >= 0 ? v->byte_id[byte] : v->unk;
        CHECK(id >= 0, err, ERR_USAGE,
              "the vocabulary has no token for byte 0x%02X of the text, and none for unknown text",
              byte);
        TRY(token_list_push(out, id, err));
    }
    return ERR_NONE;
}

static int encode_marked(const struct vocab *v, const char *text, size_t len,
                         struct merge_chain *chain, struct token_list *out, struct err *err)
{
    merge_chain_clear(chain);
    for (size_t at = 0; at < len;) {
        int step = utf8_step(text + at, len - at);
        size_t n = step > 0 ? (size_t)step : 1; /* an invalid byte is a symbol of its own */
        TRY(merge_chain_add(chain, text + at, n, err));
        at += n;
    }
    TRY(merge_chain_run(chain, spm_cost, v, err));
    for (int32_t i = chain->n > 0 ? 0 : -1; i >= 0; i = chain->symbol[i].next)
        TRY(push_symbol(v, &chain->symbol[i], out, err));
    return ERR_NONE;
}

int spm_encode(const struct vocab *v, const char *text, size_t len, bool space_prefix,
               struct merge_chain *chain, struct token_list *out, struct err *err)
{
    size_t marked_len = 0;
    char *marked = mark_spaces(text, len, space_prefix, &marked_len);
    CHECK(marked != NULL, err, ERR_MEMORY, "no memory for a text of %zu bytes", len);
    int rc = encode_marked(v, marked, marked_len, chain, out, err);
    free(marked);
    return rc;
}

size_t spm_piece(struct gguf_str piece, char *out, size_t capacity)
{
    size_t n = 0;
    for (size_t i = 0; i < piece.len;) {
        bool space = piece.len - i >= SPACE_MARK_LEN &&
                     memcmp(piece.data + i, space_mark, SPACE_MARK_LEN) == 0;
        if (n < capacity) out[n] = space ? ' ' : piece.data[i];
        n++;
        i += space ? SPACE_MARK_LEN : 1;
    }
    return n;
}
