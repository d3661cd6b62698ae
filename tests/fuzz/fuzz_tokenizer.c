/* fuzz_tokenizer - any text through a good vocabulary, and any vocabulary through the reader.
 *
 * An input that starts with "GGUF" is a file whose vocabulary is opened, if it can be, and used;
 * any other is a text: its first byte chooses the vocabulary and the options, the rest is encoded,
 * and what it was cut into must join to the text again (byte-level BPE).
 * The vocabularies are those of the files in FUZZ_VOCABS, a list joined by colons.
 * Station before: tests/fuzz/run.sh. Stations inside: coordinator/text. */
#include "coordinator/text/tokenizer.h"
#include "tests/fuzz/fuzz_file.h"

enum { VOCABS_MAX = 16, PIECE_MAX = 1 << 16, ZEROS = 1 << 20 };

struct vocab {
    struct gguf *file;
    struct tokenizer *tokenizer;
};

static struct vocab vocabs[VOCABS_MAX];
static unsigned n_vocabs;
static volatile uint64_t sink;

static void give_up(const char *why)
{
    fprintf(stderr, "fuzz_tokenizer: %s\n", why);
    abort();
}

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    const char *list = getenv("FUZZ_VOCABS");
    char *paths = strdup(list == NULL ? "" : list);
    for (char *p = strtok(paths, ":"); p != NULL && n_vocabs < VOCABS_MAX; p = strtok(NULL, ":")) {
        struct err err;
        struct vocab *v = &vocabs[n_vocabs++];
        if (gguf_open(&v->file, p, &err) != ERR_NONE ||
            tokenizer_open(&v->tokenizer, v->file, NULL, &err) != ERR_NONE)
            give_up(err.text);
    }
    free(paths);
    if (n_vocabs == 0) give_up("FUZZ_VOCABS names no file");
    return 0;
}

/* The text that ids stand for, into out; returns its length. */
static size_t join(const struct tokenizer *t, const struct token_list *ids, char *out, size_t max)
{
    size_t n = 0;
    for (size_t i = 0; i < ids->n; i++) {
        if (ids->ids[i] < 0 || ids->ids[i] >= tokenizer_vocab_size(t)) give_up("no such token");
        size_t len = tokenizer_piece(t, ids->ids[i], true, out + n, max - n);
        n += len < max - n ? len : max - n;
        sink += (uint64_t)tokenizer_is_end(t, ids->ids[i]) + (uint64_t)tokenizer_kind(t, i % 8 < 1);
    }
    return n;
}

static void encode(const struct tokenizer *t, const char *text, size_t len, unsigned options,
                   bool exact)
{
    static char back[PIECE_MAX];
    struct token_list ids = {0};
    struct err err;
    bool add = options & 1, parse = options & 2;
    if (tokenizer_encode(t, text, len, add, parse, &ids, &err) == ERR_NONE) {
        size_t n = join(t, &ids, back, sizeof back);
        if (exact && !add && len < sizeof back &&
            (n != len || (len > 0 && memcmp(back, text, len) != 0)))
            give_up("the pieces do not join to the text");
    }
    token_list_free(&ids);
}

static void use_any(const uint8_t *data, size_t size)
{
    struct gguf *g;
    struct tokenizer *t;
    struct err err;
    static const char text[] =
        "Hello, world's 123 \xc3\xa4\xe6\xbc\xa2\xf0\x9f\x98\x80\xff <s> \n\n x";
    if (gguf_open(&g, fuzz_file(data, size, ZEROS), &err) != ERR_NONE) return;
    if (tokenizer_open(&t, g, NULL, &err) == ERR_NONE) {
        for (unsigned options = 0; options < 4; options++)
            encode(t, text, sizeof text - 1, options, false);
        for (int32_t id = 0; id < tokenizer_vocab_size(t); id++) {
            char piece[8];
            sink += tokenizer_piece(t, id, true, piece, sizeof piece);
            sink += tokenizer_is_end(t, id);
        }
        tokenizer_close(t);
    }
    gguf_close(g);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size >= 4 && memcmp(data, "GGUF", 4) == 0) {
        use_any(data, size);
    } else if (size > 0) {
        const struct tokenizer *t = vocabs[data[0] / 4 % n_vocabs].tokenizer;
        bool bytes = strcmp(tokenizer_model_name(t), "gpt2") == 0;
        encode(t, (const char *)data + 1, size - 1, data[0], bytes);
    }
    return 0;
}
