/* bpe - the "gpt2" tokenizer model: byte-level BPE inside one pre-token.
 *
 * The vocabulary writes every byte as a printable letter: printable bytes of Latin-1 as themselves,
 * the others as U+0100 and up, in order. Letters merge by the rank of the merge, best first.
 * Source: the GPT-2 tokenizer's byte table.
 * Station before: pretokenize (cuts the text). Station after: tokenizer (ids). */
#include "coordinator/text/bpe.h"

#include "coordinator/text/utf8.h"

#include <stdlib.h>

static bool is_printable(unsigned byte)
{
    return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);
}

/* The bytes that are not printable are 0..0x20 (33 of them), 0x7F..0xA0 (34) and 0xAD. */
static unsigned letter_of_byte(unsigned byte)
{
    if (is_printable(byte)) return byte;
    if (byte <= 0x20) return 0x100 + byte;
    return byte == 0xAD ? 0x100 + 67 : 0x100 + 33 + (byte - 0x7F);
}

/* byte_of_letter() - the inverse; -1 for a character that stands for no byte. */
static int byte_of_letter(unsigned letter)
{
    if (letter < 0x100) return is_printable(letter) ? (int)letter : -1;
    letter -= 0x100;
    if (letter <= 0x20) return (int)letter;
    if (letter < 67) return (int)(letter - 33 + 0x7F);
    return letter == 67 ? 0xAD : -1;
}

/* put_letter() - the letter of byte as UTF-8 (all are below U+0800); returns its 1 or 2 bytes. */
static size_t put_letter(unsigned char byte, char *out)
{
    unsigned letter = letter_of_byte(byte);
    if (letter < 0x80) {
        out[0] = (char)letter;
        return 1;
    }
    out[0] = (char)(0xC0 | letter >> 6);
    out[1] = (char)(0x80 | (letter & 0x3F));
    return 2;
}

void bpe_scratch_free(struct bpe_scratch *scratch)
{
    merge_chain_free(&scratch->chain);
    free(scratch->letters);
    *scratch = (struct bpe_scratch){0};
}

void bpe_bind_bytes(struct vocab *v)
{
    for (int byte = 0; byte < 256; byte++) {
        char letter[2];
        size_t n = put_letter((unsigned char)byte, letter);
        v->byte_id[byte] = vocab_find(v, letter, n);
    }
}

static int write_letters(struct bpe_scratch *scratch, const char *word, size_t len, size_t *n,
                         struct err *err)
{
    if (scratch->capacity < 2 * len) {
        char *grown = realloc(scratch->letters, 4 * len);
        CHECK(grown != NULL, err, ERR_MEMORY, "no memory for a word of %zu bytes", len);
        scratch->letters = grown;
        scratch->capacity = 4 * len;
    }
    *n = 0;
    for (size_t i = 0; i < len; i++)
        *n += put_letter((unsigned char)word[i], scratch->letters + *n);
    return ERR_NONE;
}

static bool bpe_cost(const void *context, const char *text, size_t left, size_t right, double *cost)
{
    int32_t rank = vocab_find_merge(context, text, left, right);
    *cost = rank;
    return rank >= 0;
}

static int push_byte(const struct vocab *v, unsigned char byte, struct token_list *out,
                     struct err *err)
{
    if (v->byte_id[byte] >= 0) return token_list_push(out, v->byte_id[byte], err);
    if (v->byte_id[0xEF] >= 0 && v->byte_id[0xBF] >= 0 && v->byte_id[0xBD] >= 0) { /* U+FFFD */
        TRY(token_list_push(out, v->byte_id[0xEF], err));
        TRY(token_list_push(out, v->byte_id[0xBF], err));
        return token_list_push(out, v->byte_id[0xBD], err);
    }
    CHECK(v->unk >= 0, err, ERR_USAGE,
          "the vocabulary has no token for byte 0x%02X of the text, and none for unknown text",
          byte);
    return token_list_push(out, v->unk, err);
}

/* push_symbol() - the token of one symbol, or its bytes where the merges made what is no piece. */
static int push_symbol(const struct vocab *v, const struct merge_symbol *s, struct token_list *out,
                       struct err *err)
{
    int32_t id = vocab_find(v, s->text, s->len);
    if (id >= 0) return token_list_push(out, id, err);
    for (uint32_t i = 0; i < s->len;) {
        unsigned char first = (unsigned char)s->text[i++];
        unsigned letter = first;
        if (first >= 0x80) letter = (first & 0x1Fu) << 6 | ((unsigned char)s->text[i++] & 0x3Fu);
        TRY(push_byte(v, (unsigned char)byte_of_letter(letter), out, err));
    }
    return ERR_NONE;
}

int bpe_encode_word(const struct vocab *v, const char *word, size_t len, bool whole_first,
                    struct bpe_scratch *scratch, struct token_list *out, struct err *err)
{
    size_t n = 0;
    TRY(write_letters(scratch, word, len, &n, err));
    const char *letters = scratch->letters;
    int32_t whole = whole_first ? vocab_find(v, letters, n) : -1;
    if (whole >= 0) return token_list_push(out, whole, err);

    struct merge_chain *chain = &scratch->chain;
    merge_chain_clear(chain);
    for (size_t at = 0; at < n;) {
        size_t letter_len = (unsigned char)letters[at] < 0x80 ? 1 : 2;
        TRY(merge_chain_add(chain, letters + at, letter_len, err));
        at += letter_len;
    }
    TRY(merge_chain_run(chain, bpe_cost, v, err));
    for (int32_t i = chain->n > 0 ? 0 : -1; i >= 0; i = chain->symbol[i].next)
        TRY(push_symbol(v, &chain->symbol[i], out, err));
    return ERR_NONE;
}

size_t bpe_piece(struct gguf_str piece, char *out, size_t capacity)
{
    size_t n = 0;
    for (size_t i = 0; i < piece.len;) {
        const unsigned char *b = (const unsigned char *)piece.data + i;
        int step = utf8_step(piece.data + i, piece.len - i);
        int byte = -1;
        if (step == 1) byte = byte_of_letter(b[0]);
        if (step == 2) byte = byte_of_letter((b[0] & 0x1Fu) << 6 | (b[1] & 0x3Fu));
        if (byte >= 0) {
            if (n < capacity) out[n] = (char)byte;
            n++;
            i += (size_t)step;
        } else { /* not in the table: the piece is meant as it is written */
            if (n < capacity) out[n] = piece.data[i];
            n++;
            i++;
        }
    }
    return n;
}
