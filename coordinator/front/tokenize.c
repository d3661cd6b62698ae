/* tokenize - text to token ids and back, on the command line.
 *
 * Needs a vocabulary only, no line.
 * Stations: input, text/tokenizer, text/detokenizer, output. */
#include "coordinator/front/front.h"

#include "coordinator/front/input.h"
#include "coordinator/front/output.h"
#include "coordinator/text/detokenizer.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct vocabulary {
    struct gguf *file;
    struct tokenizer *tokenizer;
};

static int open_vocabulary(struct vocabulary *v, const char *path, struct err *err)
{
    TRY(gguf_open(&v->file, path, err));
    return tokenizer_open(&v->tokenizer, v->file, NULL, err);
}

static void close_vocabulary(struct vocabulary *v)
{
    tokenizer_close(v->tokenizer);
    gguf_close(v->file);
}

/* ---- tokenize ---- */

static int print_pieces(const struct tokenizer *t, const struct token_list *ids, struct err *err)
{
    for (size_t i = 0; i < ids->n; i++) {
        char piece[256], quoted[1100];
        size_t len = tokenizer_piece(t, ids->ids[i], true, piece, sizeof piece);
        if (len > sizeof piece) len = sizeof piece;
        TRY(output_printf(err, "%d %s\n", ids->ids[i],
                          output_quote(piece, len, quoted, sizeof quoted)));
    }
    return output_flush(err);
}

static int print_ids(const struct token_list *ids, struct err *err)
{
    for (size_t i = 0; i < ids->n; i++)
        TRY(output_printf(err, "%s%d", i == 0 ? "" : " ", ids->ids[i]));
    return output_write("\n", 1, err);
}

static int tokenize_text(const struct vocabulary *v, const struct settings *s, const char *text,
                         size_t len, struct err *err)
{
    struct token_list ids = {0};
    int rc = tokenizer_encode(v->tokenizer, text, len, !s->no_bos, s->parse_special, &ids, err);
    if (rc == ERR_NONE)
        rc = s->pieces ? print_pieces(v->tokenizer, &ids, err) : print_ids(&ids, err);
    token_list_free(&ids);
    return rc;
}

static int tokenize(struct vocabulary *v, const struct settings *s, struct err *err)
{
    TRY(open_vocabulary(v, s->model, err));
    for (uint32_t i = 0; i < s->prompts.n; i++) {
        const char *text = s->prompts.items[i];
        TRY(tokenize_text(v, s, text, strlen(text), err));
    }
    if (s->file == NULL && s->prompts.n > 0) return ERR_NONE;
    char *text;
    size_t len;
    TRY(input_read(s->file == NULL ? "-" : s->file, &text, &len, err));
    int rc = tokenize_text(v, s, text, len, err);
    free(text);
    return rc;
}

int tokenize_run(const struct settings *settings, const struct line_starter *starter,
                 struct err *err)
{
    (void)starter;
    struct vocabulary v = {0};
    int rc = tokenize(&v, settings, err);
    close_vocabulary(&v);
    return rc;
}

/* ---- detokenize ---- */

static int read_ids(const struct settings *s, struct token_list *ids, struct err *err)
{
    for (uint32_t i = 0; i < s->operands.n; i++) {
        const char *text = s->operands.items[i];
        TRY(input_parse_ids(text, strlen(text), "detokenize", ids, err));
    }
    if (s->operands.n > 0) return ERR_NONE;
    const char *path = s->file == NULL ? "-" : s->file;
    char *text;
    size_t len;
    TRY(input_read(path, &text, &len, err));
    int rc = input_parse_ids(text, len, s->file == NULL ? "standard input" : path, ids, err);
    free(text);
    return rc;
}

static int print_text(struct detokenizer *d, const struct token_list *ids, int32_t n_vocab,
                      struct err *err)
{
    const char *text;
    size_t len;
    for (size_t i = 0; i < ids->n; i++) {
        CHECK(ids->ids[i] < n_vocab, err, ERR_USAGE, "token %d is beyond the vocabulary of %d",
              ids->ids[i], n_vocab);
        TRY(detokenizer_push(d, ids->ids[i], &text, &len, err));
        TRY(output_write(text, len, err));
    }
    TRY(detokenizer_finish(d, &text, &len, err));
    TRY(output_write(text, len, err));
    /* A pipe gets the text and nothing else; a terminal gets its prompt back on a line of its
     * own. */
    return isatty(STDOUT_FILENO) ? output_write("\n", 1, err) : ERR_NONE;
}

int detokenize_run(const struct settings *settings, const struct line_starter *starter,
                   struct err *err)
{
    (void)starter;
    struct vocabulary v = {0};
    struct token_list ids = {0};
    struct detokenizer *d = NULL;
    int rc = open_vocabulary(&v, settings->model, err);
    if (rc == ERR_NONE) rc = read_ids(settings, &ids, err);
    if (rc == ERR_NONE) rc = detokenizer_open(&d, v.tokenizer, settings->special, true, err);
    if (rc == ERR_NONE) rc = print_text(d, &ids, tokenizer_vocab_size(v.tokenizer), err);
    detokenizer_close(d);
    token_list_free(&ids);
    close_vocabulary(&v);
    return rc;
}
