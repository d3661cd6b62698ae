/* cluster_file - see cluster_file.h. */
#include "coordinator/front/cluster_file.h"

#include "coordinator/front/input.h"
#include "engine/memory.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { NAME_MAX_HERE = 64, THREADS_MAX = 65536 };

/* One line of the file. */
struct host {
    uint32_t ranks;
    uint64_t memory; /* of all of them */
    struct planner_rank rank;
};

/* What a line can say. Numbers have low <= x <= high. */
enum word_kind { WORD_COUNT, WORD_BYTES, WORD_RATE, WORD_LINK, WORD_SHARE };
struct word {
    const char *key;
    enum word_kind kind;
    size_t offset; /* in struct host: uint32_t, uint64_t, double, struct planner_link or
                      planner_share */
    double low, high;
    double unit; /* of a rate */
};
static const struct word words[] = {
    {"ranks", WORD_COUNT, offsetof(struct host, ranks), 1, 4095, 1},
    {"threads", WORD_COUNT, offsetof(struct host, rank.threads), 1, THREADS_MAX, 1},
    {"cpus", WORD_COUNT, offsetof(struct host, rank.cpus), 1, THREADS_MAX, 1},
    {"memory", WORD_BYTES, offsetof(struct host, memory), 1, 0x1p60, 1},
    {"read", WORD_RATE, offsetof(struct host, rank.speed.read_bytes_s), 1e-3, 1e6, 1e9},
    {"gops", WORD_RATE, offsetof(struct host, rank.speed.ops_s), 1e-3, 1e9, 1e9},
    {"few", WORD_RATE, offsetof(struct host, rank.speed.few_ops_s), 1e-3, 1e9, 1e9},
    {"busy", WORD_SHARE, offsetof(struct host, rank.busy), 1e-3, 1, 1},
    {"link", WORD_LINK, offsetof(struct host, rank.away), 0, 0, 1e9},
    {"local", WORD_LINK, offsetof(struct host, rank.local), 0, 0, 1e9},
};

/* ---- reading ---- */

/* take_number() - a plain decimal number; *rest: what stands behind it. */
static bool take_number(const char *text, double *out, char **rest)
{
    if ((text[0] < '0' || text[0] > '9') && text[0] != '.') return false;
    if (text[0] == '0' && (text[1] == 'x' || text[1] == 'X')) return false;
    *out = strtod(text, rest);
    return *rest != text && isfinite(*out);
}

/* unit_of_bytes() - 0 for what is none. */
static double unit_of_bytes(const char *text)
{
    static const char letters[] = "KMGT";
    if (text[0] == '\0' || strcmp(text, "B") == 0) return 1;
    const char *at = strchr(letters, text[0]);
    if (at == NULL || (text[1] != '\0' && strcmp(text + 1, "iB") != 0)) return 0;
    return pow(1024, (double)(at - letters + 1));
}

static bool take_share(const struct word *w, double read, double ops, uint8_t *out)
{
    if (read < w->low || read > w->high || ops < w->low || ops > w->high) return false;
    memcpy(out, &(struct planner_share){read, ops}, sizeof(struct planner_share));
    return true;
}

/* take_value() - of a word, into the host. false: it is none, or out of range. */
static bool take_value(const struct word *w, const char *text, struct host *h)
{
    char *rest;
    double x, rate = 0;
    uint8_t *at = (uint8_t *)h + w->offset;
    if (!take_number(text, &x, &rest)) return false;
    if (w->kind == WORD_LINK || w->kind == WORD_SHARE) {
        if (*rest != ',' || !take_number(rest + 1, &rate, &rest) || *rest != '\0') return false;
        if (w->kind == WORD_SHARE) return take_share(w, x, rate, at);
        if (x > 1e7 || rate < 1e-6 || rate > 1e6) return false;
        memcpy(at, &(struct planner_link){x, rate * w->unit}, sizeof(struct planner_link));
        return true;
    }
    if (w->kind == WORD_BYTES) {
        x *= unit_of_bytes(rest);
        rest = strchr(rest, '\0');
    }
    if (*rest != '\0' || x < w->low || x > w->high) return false;
    if (w->kind == WORD_COUNT && x != floor(x)) return false;
    if (w->kind == WORD_COUNT) memcpy(at, &(uint32_t){(uint32_t)x}, sizeof(uint32_t));
    if (w->kind == WORD_BYTES) memcpy(at, &(uint64_t){(uint64_t)x}, sizeof(uint64_t));
    if (w->kind == WORD_RATE) memcpy(at, &(double){x * w->unit}, sizeof(double));
    return true;
}

struct place {
    const char *path;
    uint32_t line;
};

static int take_word(const char *word, struct host *h, const struct place *at, struct err *err)
{
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        const size_t len = strlen(words[i].key);
        if (strncmp(word, words[i].key, len) != 0 || word[len] != '=') continue;
        CHECK(take_value(&words[i], word + len + 1, h), err, ERR_FILE,
              "%s:%" PRIu32 ": '%.40s' is no value that %s can have: see tandem plan --help",
              at->path, at->line, word, words[i].key);
        return ERR_NONE;
    }
    return err_set(err, ERR_FILE,
                   "%s:%" PRIu32 ": '%.40s' is none of ranks=, threads=, cpus=, memory=, read=, "
                   "gops=, few=, busy=, link= and local=",
                   at->path, at->line, word);
}

static int add_ranks(struct cluster *c, const struct host *h, uint32_t ranks_max,
                     const struct place *at, struct err *err)
{
    CHECK(h->rank.speed.read_bytes_s > 0 && h->rank.speed.ops_s > 0, err, ERR_FILE,
          "%s:%" PRIu32 ": %s needs read= and gops=", at->path, at->line, h->rank.host);
    CHECK(h->ranks <= ranks_max - c->n, err, ERR_FILE,
          "%s:%" PRIu32 ": more than %" PRIu32 " ranks", at->path, at->line, ranks_max);
    struct planner_rank *more = realloc(c->ranks, (c->n + h->ranks) * sizeof *more);
    CHECK(more != NULL, err, ERR_MEMORY, "no memory for %" PRIu32 " ranks", c->n + h->ranks);
    c->ranks = more;
    for (uint32_t i = 0; i < h->ranks; i++) {
        c->ranks[c->n] = h->rank;
        c->ranks[c->n++].may =
            h->memory == MEMORY_UNLIMITED ? MEMORY_UNLIMITED : h->memory / h->ranks;
    }
    return ERR_NONE;
}

static bool is_name(const char *name)
{
    size_t len = strlen(name);
    for (size_t i = 0; i < len; i++)
        if (name[i] <= ' ' || name[i] > '~' || name[i] == '=') return false;
    return len <= NAME_MAX_HERE;
}

/* take_line() - cut into words in place. */
static int take_line(struct cluster *c, char *line, struct host *usual, uint32_t ranks_max,
                     const struct place *at, struct err *err)
{
    static const char blanks[] = " \t\r";
    char *save = NULL;
    line[strcspn(line, "#")] = '\0';
    char *name = strtok_r(line, blanks, &save);
    if (name == NULL) return ERR_NONE;
    CHECK(is_name(name), err, ERR_FILE,
          "%s:%" PRIu32 ": a line begins with a host's name of up to %d characters, or *", at->path,
          at->line, NAME_MAX_HERE);
    struct host h = *usual;
    h.rank.host = name;
    for (char *w = strtok_r(NULL, blanks, &save); w != NULL; w = strtok_r(NULL, blanks, &save))
        TRY(take_word(w, &h, at, err));
    if (strcmp(name, "*") != 0) return add_ranks(c, &h, ranks_max, at, err);
    *usual = h;
    return ERR_NONE;
}

int cluster_file_parse(struct cluster *out, char *text, const char *path, uint32_t ranks_max,
                       struct err *err)
{
    struct host usual = {.ranks = 1, .memory = MEMORY_UNLIMITED, .rank = planner_usual};
    struct place at = {.path = path};
    int rc = ERR_NONE;
    *out = (struct cluster){.text = text};
    for (char *line = text; line != NULL && rc == ERR_NONE;) {
        char *end = strchr(line, '\n');
        if (end != NULL) *end = '\0';
        at.line++;
        rc = take_line(out, line, &usual, ranks_max, &at, err);
        line = end == NULL ? NULL : end + 1;
    }
    if (rc == ERR_NONE && out->n == 0) rc = err_set(err, ERR_FILE, "%s names no host", path);
    if (rc != ERR_NONE) cluster_free(out);
    return rc;
}

int cluster_file_read(struct cluster *out, const char *path, uint32_t ranks_max, struct err *err)
{
    char *text;
    size_t len;
    struct stat st;
    *out = (struct cluster){0};
    /* To open a named pipe would wait for its writer. */
    CHECK(strcmp(path, "-") == 0 || stat(path, &st) != 0 || S_ISREG(st.st_mode), err, ERR_FILE,
          "%s is no plain file: put the cluster into one, or into standard input and name -", path);
    TRY(input_read(path, &text, &len, err));
    if (strlen(text) == len) return cluster_file_parse(out, text, path, ranks_max, err);
    free(text);
    return err_set(err, ERR_FILE, "%s is no text: it has a byte of 0", path);
}

void cluster_free(struct cluster *c)
{
    free(c->ranks);
    free(c->text);
    *c = (struct cluster){0};
}

/* ---- writing ---- */

/* join() - of two ranks of a host, the slower of each. */
static void join(struct planner_rank *a, const struct planner_rank *b)
{
    a->speed.read_bytes_s = fmin(a->speed.read_bytes_s, b->speed.read_bytes_s);
    a->speed.ops_s = fmin(a->speed.ops_s, b->speed.ops_s);
    a->speed.few_ops_s = fmin(a->speed.few_ops_s, b->speed.few_ops_s);
    a->away =
        (struct planner_link){fmax(a->away.us, b->away.us), fmin(a->away.bytes_s, b->away.bytes_s)};
    a->local = (struct planner_link){fmax(a->local.us, b->local.us),
                                     fmin(a->local.bytes_s, b->local.bytes_s)};
    if (b->may < a->may) a->may = b->may;
    a->busy =
        (struct planner_share){fmin(a->busy.read, b->busy.read), fmin(a->busy.ops, b->busy.ops)};
    if (b->threads < a->threads) a->threads = b->threads;
}

void cluster_file_write(FILE *out, const struct planner_rank *ranks, uint32_t n)
{
    fprintf(
        out,
        "# tandem cluster: hosts in the order of the line; tandem plan --help says what is what\n");
    for (uint32_t i = 0, end; i < n; i = end) {
        struct planner_rank r = ranks[i];
        for (end = i + 1; end < n && strcmp(ranks[end].host, r.host) == 0; end++)
            join(&r, &ranks[end]);
        fprintf(out, "%s  ranks=%" PRIu32 " threads=%" PRIu32, r.host, end - i, r.threads);
        if (r.may != MEMORY_UNLIMITED)
            fprintf(out, " memory=%" PRIu64 "M", r.may / (1 << 20) * (end - i));
        if (r.cpus > 0) fprintf(out, " cpus=%" PRIu32, r.cpus);
        if (r.busy.read < 1 || r.busy.ops < 1)
            fprintf(out, " busy=%.3f,%.3f", r.busy.read, r.busy.ops);
        if (r.speed.few_ops_s > 0) fprintf(out, " few=%.1f", r.speed.few_ops_s * 1e-9);
        fprintf(out, " read=%.3f gops=%.1f link=%.1f,%.4f local=%.1f,%.4f\n",
                r.speed.read_bytes_s * 1e-9, r.speed.ops_s * 1e-9, r.away.us, r.away.bytes_s * 1e-9,
                r.local.us, r.local.bytes_s * 1e-9);
    }
}
