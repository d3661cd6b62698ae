/* pretokenize - cuts a text into the pre-tokens inside which byte-level BPE merges.
 *
 * The patterns of a row are applied one after the other, each inside the pieces that the ones
 * before it left; what a pattern matches is a piece, and so is what lies between two matches.
 * Station before: tokenizer. Station after: bpe. */
#include "coordinator/text/pretokenize.h"

#include "coordinator/text/utf8.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

enum {
    PATTERNS_MAX = 6,
    PATTERN_BYTES_MAX = 4096,
    MATCH_LIMIT = 20 * 1000 * 1000, /* steps of one match */
    DEPTH_LIMIT = 1000 * 1000,      /* nested backtracking points of one match */
    HEAP_LIMIT_KIB = 64 * 1024,     /* both matchers' memory for backtracking */
    JIT_STACK_BYTES = 8 * 1024 * 1024,
};

/* --- the table --- */

/* The patterns are those which the models were published with (their tokenizer.json), written
 * for PCRE2. \s and \S mean the White_Space property, as in the engines they were written for. */

#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define SPACES "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

#define GPT2 "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"

/* One word with at most one other character before it; numbers as given; the rest. */
#define WORDS(numbers) "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" numbers "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*"
#define LLAMA3 CONTRACTIONS "|" WORDS("\\p{N}{1,3}") SPACES
#define QWEN2 CONTRACTIONS "|" WORDS("\\p{N}") SPACES

/* Words cut where capitals begin: fooBar is foo and Bar. */
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define CASED(after)                                                                               \
    "[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+" after "|[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER   \
    "*" after
#define GPT4O CASED(CONTRACTIONS "?") "|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*" SPACES

/* Runs of Han characters apart; the words between them as above. */
#define KIMI_UPPER "(?:(?!\\p{Han})" UPPER ")"
#define KIMI_LOWER "(?:(?!\\p{Han})" LOWER ")"
#define KIMI_CASED(upper, lower)                                                                   \
    "[^\\r\\n\\p{L}\\p{N}]?" KIMI_UPPER upper KIMI_LOWER lower CONTRACTIONS "?"
#define KIMI                                                                                       \
    "\\p{Han}+|" KIMI_CASED("*", "+") "|" KIMI_CASED(                                              \
        "+", "*") "|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*" SPACES

#define JAIS_SPACES                                                                                \
    "|\\s{512}(?!\\S)|\\s{256}(?!\\S)|\\s{128}(?!\\S)|\\s{64}(?!\\S)|\\s{32}(?!\\S)"               \
    "|\\s{16}(?!\\S)|\\s{8}(?!\\S)|\\s{4}(?!\\S)|\\s{1,2}(?!\\S)|\\s{1}"

#define BLOOM " ?[^(\\s|.,!?\\x{2026}\\x{3002}\\x{FF0C}\\x{3001}\\x{0964}\\x{06D4}\\x{060C})]+"

#define CJK "[\\x{4E00}-\\x{9FA5}\\x{0800}-\\x{4E00}\\x{AC00}-\\x{D7FF}]+"

/* The letters with case of deepseek-llm's own list. */
#define DEEPSEEK_LETTERS                                                                           \
    "[A-Za-z\\xB5\\xC0-\\xD6\\xD8-\\xF6\\xF8-\\x{1BA}\\x{1BC}-\\x{1BF}\\x{1C4}-\\x{293}"           \
    "\\x{295}-\\x{2AF}\\x{370}-\\x{373}\\x{376}\\x{377}\\x{37B}-\\x{37D}\\x{37F}\\x{386}"          \
    "\\x{388}-\\x{38A}\\x{38C}\\x{38E}-\\x{3A1}\\x{3A3}-\\x{3F5}\\x{3F7}-\\x{481}"                 \
    "\\x{48A}-\\x{52F}\\x{531}-\\x{556}\\x{10A0}-\\x{10C5}\\x{13A0}-\\x{13F5}"                     \
    "\\x{13F8}-\\x{13FD}\\x{1C90}-\\x{1CBA}\\x{1CBD}-\\x{1CBF}\\x{1D00}-\\x{1D2B}"                 \
    "\\x{1D6B}-\\x{1D77}\\x{1D79}-\\x{1D9A}\\x{1E00}-\\x{1F15}\\x{1F18}-\\x{1F1D}"                 \
    "\\x{1F20}-\\x{1F45}\\x{1F48}-\\x{1F4D}\\x{1F50}-\\x{1F57}\\x{1F59}\\x{1F5B}\\x{1F5D}"         \
    "\\x{1F5F}-\\x{1F7D}\\x{1F80}-\\x{1FB4}\\x{1FB6}-\\x{1FBC}\\x{1FBE}\\x{1FC2}-\\x{1FC4}"        \
    "\\x{1FC6}-\\x{1FCC}\\x{1FD0}-\\x{1FD3}\\x{1FD6}-\\x{1FDB}\\x{1FE0}-\\x{1FEC}"                 \
    "\\x{1FF2}-\\x{1FF4}\\x{1FF6}-\\x{1FFC}\\x{2102}\\x{2107}\\x{210A}-\\x{2113}\\x{2115}"         \
    "\\x{2119}-\\x{211D}\\x{2124}\\x{2126}\\x{2128}\\x{212A}-\\x{212D}\\x{212F}-\\x{2134}"         \
    "\\x{2139}\\x{213C}-\\x{213F}\\x{2145}-\\x{2149}\\x{214E}\\x{2183}\\x{2184}"                   \
    "\\x{2C00}-\\x{2C7B}\\x{2C7E}-\\x{2CE4}\\x{2CEB}-\\x{2CEE}\\x{2CF2}\\x{2CF3}"                  \
    "\\x{A640}-\\x{A66D}\\x{A680}-\\x{A69B}\\x{A722}-\\x{A76F}\\x{A771}-\\x{A787}"                 \
    "\\x{A78B}-\\x{A78E}\\x{AB70}-\\x{ABBF}\\x{FB00}-\\x{FB06}\\x{FB13}-\\x{FB17}"                 \
    "\\x{FF21}-\\x{FF3A}\\x{FF41}-\\x{FF5A}\\x{10400}-\\x{1044F}\\x{104B0}-\\x{104D3}"             \
    "\\x{104D8}-\\x{104FB}\\x{10C80}-\\x{10CB2}\\x{10CC0}-\\x{10CF2}\\x{118A0}-\\x{118DF}"         \
    "\\x{1E900}-\\x{1E943}]+"
/* \s+$, tried at the beginning of a run of spaces only: at each of its spaces it would be
 * quadratic. */
#define DEEPSEEK_LAST_SPACES "(?<!\\s)\\s++$"
#define DEEPSEEK_SIGNS                                                                             \
    "[!-/:-~\\x{FF01}-\\x{FF0F}\\x{FF1A}-\\x{FF5E}\\x{2018}-\\x{201F}\\x{3000}-\\x{3002}]+"

#define DEEPSEEK3                                                                                  \
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?"           \
    "[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*" SPACES

enum { ADDS_BOS = 1, WHOLE_FIRST = 2 };

struct pretokenizer_row {
    const char *names; /* separated by spaces */
    const char *patterns[PATTERNS_MAX];
    unsigned flags;
};

static const struct pretokenizer_row rows[] = {
    /* What a file without a name gets. */
    {"default", {"[\\p{P}\\$\\+<=>\\^~\\|]+", GPT2, "\\p{N}+", "[0-9][0-9][0-9]"}, 0},
    {"gpt-2 phi-2 mpt olmo jais trillion granite-docling exaone4 gigachat a.x-4.0 mellum",
     {GPT2},
     0},
    {"starcoder refact command-r smollm codeshell exaone minerva-7b mellum2", {"\\p{N}", GPT2}, 0},
    {"falcon", {"[\\p{P}\\$\\+<=>\\^~\\|`]+", GPT2, "[0-9][0-9][0-9]"}, 0},
    {"llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano",
     {LLAMA3},
     ADDS_BOS | WHOLE_FIRST},
    {"dbrx smaug-bpe chatglm-bpe glm4", {LLAMA3}, 0},
    {"minicpm5", {"\\p{N}{1,3}", CONTRACTIONS "|" WORDS("\\p{N}+") SPACES}, WHOLE_FIRST},
    {"jais-2", {CONTRACTIONS "|" WORDS("\\p{N}{1,3}") "|\\s*[\\r\\n]+" JAIS_SPACES}, 0},
    {"qwen2 deepseek-r1-qwen megrez stablelm2 hunyuan solar-open grok-2 kormo f2llmv2", {QWEN2}, 0},
    {"ufakzeka", {WORDS("\\p{N}") SPACES}, 0},
    {"qwen35",
     {CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}"
                   "| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*" SPACES},
     0},
    {"laguna", {"[^\\n]+|[\\n]+", QWEN2}, 0},
    {"seed-coder",
     {CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1}| ?[^\\s\\p{L}\\p{N}\\r\\n]+" SPACES},
     0},
    {"bailingmoe bailingmoe2 llada-moe",
     {"'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*"
      "|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+"},
     0},
    {"exaone-moe",
     {CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?(?:\\p{L}\\p{M}*(?: \\p{L}\\p{M}*)*)+|\\p{N}"
                   "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]?|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+"},
     0},
    {"gpt-4o llama4 kanana2 talkie minimax-m2", {GPT4O}, 0},
    {"tekken",
     {CASED("") "|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*" SPACES},
     ADDS_BOS | WHOLE_FIRST},
    {"kimi-k2", {KIMI}, 0},
    {"deepseek-llm",
     {"[\\r\\n]", "\\s?" DEEPSEEK_LETTERS, "\\s?" DEEPSEEK_SIGNS, DEEPSEEK_LAST_SPACES, CJK,
      "\\p{N}+"},
     0},
    {"deepseek-coder", {"[\\r\\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", CJK, "\\p{N}"}, 0},
    {"deepseek-v3 hunyuan-dense joyai-llm hy_v4",
     {"\\p{N}{1,3}", "[\\x{4E00}-\\x{9FA5}\\x{3040}-\\x{309F}\\x{30A0}-\\x{30FF}]+", DEEPSEEK3},
     0},
    {"bloom poro-chat gpt3-finnish", {BLOOM}, 0},
    {"viking", {BLOOM, "\\p{N}"}, 0},
};

static bool has_name(const char *names, const char *name)
{
    size_t len = strlen(name);
    for (const char *at = names; (at = strstr(at, name)) != NULL; at += len) {
        bool starts = at == names || at[-1] == ' ';
        if (starts && (at[len] == ' ' || at[len] == '\0')) return true;
    }
    return false;
}

static const struct pretokenizer_row *find_row(const char *name)
{
    if (name[0] == '\0' || strchr(name, ' ') != NULL) return NULL;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (has_name(rows[i].names, name)) return &rows[i];
    return NULL;
}

/* --- compiling --- */

struct pretokenizer {
    const struct pretokenizer_row *row;
    pcre2_code *code[PATTERNS_MAX];
    size_t n_codes;
};

/* expand_spaces() - PCRE2's \s also takes U+180E, which is no White_Space: write the property. The
 * replacement is right inside and outside of brackets. */
static void expand_spaces(const char *pattern, char out[PATTERN_BYTES_MAX])
{
    size_t n = 0;
    while (*pattern != '\0') {
        BUG_IF(n + sizeof "\\p{White_Space}" > PATTERN_BYTES_MAX, "a pattern is too long");
        if (pattern[0] == '\\' && (pattern[1] == 's' || pattern[1] == 'S')) {
            const char *property = pattern[1] == 's' ? "\\p{White_Space}" : "\\P{White_Space}";
            memcpy(out + n, property, strlen(property));
            n += strlen(property);
            pattern += 2;
        } else {
            if (pattern[0] == '\\') out[n++] = *pattern++;
            out[n++] = *pattern++;
        }
    }
    out[n] = '\0';
}

static int compile_pattern(const char *pattern, pcre2_code **out, struct err *err)
{
    char expanded[PATTERN_BYTES_MAX];
    int code;
    PCRE2_SIZE at;
    expand_spaces(pattern, expanded);
    *out = pcre2_compile((PCRE2_SPTR)expanded, PCRE2_ZERO_TERMINATED, PCRE2_UTF | PCRE2_UCP, &code,
                         &at, NULL);
    CHECK(*out != NULL || code != PCRE2_ERROR_HEAP_FAILED, err, ERR_MEMORY,
          "no memory for a pre-tokenizer pattern");
    if (*out == NULL) {
        PCRE2_UCHAR why[128] = "";
        pcre2_get_error_message(code, why, sizeof why);
        return err_set(
            err, ERR_UNSUPPORTED,
            "this PCRE2 library (%d.%d) cannot compile the pre-tokenizer pattern \"%.80s\" "
            "(%s at %zu): 10.40 or later can",
            PCRE2_MAJOR, PCRE2_MINOR, pattern, (const char *)why, (size_t)at);
    }
    /* Where the library has no JIT for this machine, the interpreter does the same, slower. */
    pcre2_jit_compile(*out, PCRE2_JIT_COMPLETE);
    return ERR_NONE;
}

int pretokenizer_open(struct pretokenizer **out, const char *name, struct err *err)
{
    *out = NULL;
    const struct pretokenizer_row *row = find_row(name);
    CHECK(row != NULL, err, ERR_UNSUPPORTED,
          "pre-tokenizer \"%.60s\" is not known; if it cuts text as a known one does, give that "
          "one's name with --pretokenizer NAME",
          name);
    struct pretokenizer *p = calloc(1, sizeof *p);
    CHECK(p != NULL, err, ERR_MEMORY, "no memory for a pre-tokenizer");
    p->row = row;
    for (size_t i = 0; i < PATTERNS_MAX && row->patterns[i] != NULL; i++) {
        int rc = compile_pattern(row->patterns[i], &p->code[i], err);
        if (rc != ERR_NONE) {
            pretokenizer_close(p);
            return rc;
        }
        p->n_codes = i + 1;
    }
    *out = p;
    return ERR_NONE;
}

void pretokenizer_close(struct pretokenizer *p)
{
    if (p == NULL) return;
    for (size_t i = 0; i < p->n_codes; i++) pcre2_code_free(p->code[i]);
    free(p);
}

bool pretokenizer_adds_bos(const struct pretokenizer *p)
{
    return (p->row->flags & ADDS_BOS) != 0;
}

bool pretokenizer_whole_first(const struct pretokenizer *p)
{
    return (p->row->flags & WHOLE_FIRST) != 0;
}

/* --- matching --- */

/* What one call needs; the compiled patterns are shared between threads, these are not. */
struct matcher {
    pcre2_match_data *data;
    pcre2_match_context *context;
    pcre2_jit_stack *stack;
};

static int matcher_open(struct matcher *m, struct err *err)
{
    m->data = pcre2_match_data_create(1, NULL);
    m->context = pcre2_match_context_create(NULL);
    m->stack = pcre2_jit_stack_create(32 * 1024, JIT_STACK_BYTES, NULL);
    CHECK(m->data != NULL && m->context != NULL, err, ERR_MEMORY, "no memory for a pattern match");
    pcre2_set_match_limit(m->context, MATCH_LIMIT);
    pcre2_set_depth_limit(m->context, DEPTH_LIMIT);
    pcre2_set_heap_limit(m->context, HEAP_LIMIT_KIB);
    /* No stack object (a library without JIT) leaves the machine's stack, which is guarded too. */
    if (m->stack != NULL) pcre2_jit_stack_assign(m->context, NULL, m->stack);
    return ERR_NONE;
}

static void matcher_close(struct matcher *m)
{
    pcre2_match_data_free(m->data);
    pcre2_match_context_free(m->context);
    pcre2_jit_stack_free(m->stack);
}

void split_list_free(struct split_list *list)
{
    free(list->end);
    *list = (struct split_list){0};
}

static int split_list_push(struct split_list *list, size_t end, struct err *err)
{
    if (list->n == list->capacity) {
        size_t capacity = list->capacity == 0 ? 64 : 2 * list->capacity;
        uint32_t *grown = realloc(list->end, capacity * sizeof *grown);
        CHECK(grown != NULL, err, ERR_MEMORY, "no memory for %zu pre-tokens", capacity);
        list->end = grown;
        list->capacity = capacity;
    }
    list->end[list->n++] = (uint32_t)end;
    return ERR_NONE;
}

static int match_error(int rc, size_t at, struct err *err)
{
    PCRE2_UCHAR why[128] = "";
    pcre2_get_error_message(rc, why, sizeof why);
    return err_set(
        err, rc == PCRE2_ERROR_NOMEMORY ? ERR_MEMORY : ERR_USAGE,
        "a pre-tokenizer pattern gave up at byte %zu of the text (%s): break the long run "
        "of characters there",
        at, (const char *)why);
}

/* split_piece() - cut the one piece text[begin..end). It is a subject of its own: what follows it
 * is not seen by a pattern that looks ahead. */
static int split_piece(const pcre2_code *code, const struct matcher *m, const char *text,
                       size_t begin, size_t end, struct split_list *out, struct err *err)
{
    size_t len = end - begin, done = 0, at = 0;
    while (at < len) {
        int rc = pcre2_match(code, (PCRE2_SPTR)text + begin, len, at, PCRE2_NO_UTF_CHECK, m->data,
                             m->context);
        if (rc == PCRE2_ERROR_NOMATCH) break;
        if (rc < 0) return match_error(rc, begin + at, err);
        const PCRE2_SIZE *match = pcre2_get_ovector_pointer(m->data);
        BUG_IF(match[1] <= match[0], "a pre-tokenizer pattern matches nothing");
        if (match[0] > done) TRY(split_list_push(out, begin + match[0], err));
        TRY(split_list_push(out, begin + match[1], err));
        done = at = match[1];
    }
    return done < len ? split_list_push(out, end, err) : ERR_NONE;
}

static int split_pieces(const pcre2_code *code, const struct matcher *m, const char *text,
                        const struct split_list *in, struct split_list *out, struct err *err)
{
    size_t begin = 0;
    out->n = 0;
    for (size_t i = 0; i < in->n; i++) {
        TRY(split_piece(code, m, text, begin, in->end[i], out, err));
        begin = in->end[i];
    }
    return ERR_NONE;
}

static int split_by_all(const struct pretokenizer *p, const char *text, size_t len,
                        struct split_list *out, struct split_list *spare, struct err *err)
{
    struct matcher m;
    int rc = matcher_open(&m, err);
    out->n = 0;
    if (rc == ERR_NONE && len > 0) rc = split_list_push(out, len, err);
    for (size_t i = 0; i < p->n_codes && rc == ERR_NONE; i++) {
        rc = split_pieces(p->code[i], &m, text, out, spare, err);
        struct split_list swap = *out;
        *out = *spare;
        *spare = swap;
    }
    matcher_close(&m);
    return rc;
}

/* mask_invalid() - NULL where text is valid UTF-8; otherwise a copy for the patterns to read, in
 * which each invalid byte is U+001A (SUBSTITUTE: no letter, no number, no space), so that places in
 * it are places in the text. Caller frees. */
static int mask_invalid(const char *text, size_t len, char **masked, struct err *err)
{
    *masked = NULL;
    for (size_t at = 0; at < len;) {
        int step = utf8_step(text + at, len - at);
        if (step > 0) {
            at += (size_t)step;
            continue;
        }
        if (*masked == NULL) {
            *masked = malloc(len);
            CHECK(*masked != NULL, err, ERR_MEMORY, "no memory for a text of %zu bytes", len);
            memcpy(*masked, text, len);
        }
        (*masked)[at++] = 0x1A;
    }
    return ERR_NONE;
}

int pretokenizer_split(const struct pretokenizer *p, const char *text, size_t len,
                       struct split_list *out, struct err *err)
{
    char *masked;
    struct split_list spare = {0};
    TRY(mask_invalid(text, len, &masked, err));
    int rc = split_by_all(p, masked != NULL ? masked : text, len, out, &spare, err);
    split_list_free(&spare);
    free(masked);
    return rc;
}
