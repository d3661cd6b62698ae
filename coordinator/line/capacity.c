/* capacity - see capacity.h.
 *
 * The check adds up, for each limit, the needs of all workers that share it. Where that is too
 * much, the same check is asked again for smaller wishes, one change at a time. */
#include "coordinator/line/capacity.h"

#include "coordinator/line/scheduler.h"
#include "engine/log.h"
#include "engine/plan.h"
#include "proto/stage_bytes.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    CTX_DEFAULT_MAX = 4096, /* without --ctx: the model's own context, but not more */
    ROWS_MAX_DEFAULT = 512,
    WANTED_BYTES = 64 << 20, /* score rows that the last stage keeps, over all batches in flight */
    HINT_MAX = 240,
};

/* ---- what is needed ---- */

static uint32_t most_stages(const struct capacity_wish *w)
{
    return w->n_stages_max > w->n_stages ? w->n_stages_max : w->n_stages;
}

/* settle_rows() - a batch holds a chunk of prompts and a row of each sequence; no line has more
 * than all positions to work on. */
static uint32_t settle_rows(const struct capacity_wish *w, uint32_t n_ctx, uint32_t n_seqs)
{
    uint64_t rows = w->chunk;
    if (rows == 0) rows = scheduler_chunk_max(most_stages(w), (uint64_t)n_ctx * n_seqs) + n_seqs;
    if (w->chunk == 0 && rows > ROWS_MAX_DEFAULT) rows = ROWS_MAX_DEFAULT;
    return rows > n_seqs ? (uint32_t)rows : n_seqs;
}

/* blocks_of_sequence() - all positions, or what a batch's rows see of a window: from the window of
 * the first of them to the last, which may begin and end inside a block. */
static uint64_t blocks_of_sequence(uint32_t window, const struct line_limits *l)
{
    uint64_t all = ((uint64_t)l->n_ctx + KV_BLOCK_POSITIONS - 1) / KV_BLOCK_POSITIONS;
    if (window == 0) return all;
    uint64_t seen = (uint64_t)window - 1 + l->rows_max;
    uint64_t blocks = (seen + KV_BLOCK_POSITIONS - 1) / KV_BLOCK_POSITIONS + 1;
    return blocks < all ? blocks : all;
}

int capacity_settle(const struct capacity_wish *w, struct line_limits *out, struct err *err)
{
    const struct hparams *hp = &w->model->hp;
    uint32_t n_ctx = w->n_ctx;
    if (n_ctx == 0) n_ctx = hp->n_ctx_train < CTX_DEFAULT_MAX ? hp->n_ctx_train : CTX_DEFAULT_MAX;
    CHECK(!w->model->family->ctx_is_hard || n_ctx <= hp->n_ctx_train, err, ERR_CAPACITY,
          "--ctx %u: this model has positions for %u tokens only", n_ctx, hp->n_ctx_train);
    uint32_t n_seqs = w->n_seqs > 0 ? w->n_seqs : 1;
    *out = (struct line_limits){.n_ctx = n_ctx,
                                .n_seqs = n_seqs,
                                .rows_max = settle_rows(w, n_ctx, n_seqs),
                                .credits = most_stages(w) + 1,
                                .kv = w->kv,
                                .wire = w->wire};
    for (uint32_t c = 0; c < hp->n_kv_classes; c++) {
        uint64_t blocks = (uint64_t)out->n_seqs * blocks_of_sequence(hp->kv_class_window[c], out);
        uint64_t wished = ((uint64_t)w->kv_tokens + KV_BLOCK_POSITIONS - 1) / KV_BLOCK_POSITIONS;
        if (wished > 0 && wished < blocks) blocks = wished;
        CHECK(blocks <= INT32_MAX, err, ERR_CAPACITY,
              "%u sequences of %u tokens are more than a KV cache can number", out->n_seqs, n_ctx);
        out->n_blocks[c] = (uint32_t)blocks;
    }
    uint64_t wanted = 0;
    if (!w->tokens_only) wanted = WANTED_BYTES / (sizeof(float) * hp->n_vocab * out->credits);
    if (wanted < out->n_seqs) wanted = out->n_seqs;
    out->wanted_max = wanted < out->rows_max ? (uint32_t)wanted : out->rows_max;
    return ERR_NONE;
}

void capacity_warn_of_context(const struct model *m, const struct line_limits *l)
{
    if (l->n_ctx > m->hp.n_ctx_train)
        log_line(LOG_WARN, "--ctx %u is beyond the %u tokens that the model was trained for",
                 l->n_ctx, m->hp.n_ctx_train);
}

struct footprint capacity_working(const struct model *m, struct layer_range range,
                                  const struct line_limits *l)
{
    struct stage_sizes sizes = {.is_first = range.first == 0,
                                .is_last = range.end == m->hp.n_layer,
                                .n_embd = m->hp.n_embd,
                                .n_vocab = m->hp.n_vocab,
                                .rows_max = l->rows_max,
                                .wanted_max = l->wanted_max,
                                .credits = l->credits,
                                .wire = (enum wire_format)l->wire};
    struct footprint f = model_working_bytes(m, range, l);
    f.buffers += stage_frame_bytes(&sizes) + stage_row_bytes(&sizes) + stage_score_bytes(&sizes);
    return f;
}

struct footprint capacity_need(const struct model *m, struct layer_range range,
                               const struct line_limits *l)
{
    struct footprint f = capacity_working(m, range, l);
    f.weights = plan_stage_bytes(m, range);
    return f;
}

uint64_t capacity_total(const struct footprint *f)
{
    return f->weights + f->kv + f->buffers;
}

/* ---- what there is ---- */

enum bound_kind { BOUND_HOST, BOUND_CGROUP, BOUND_PROCESS, BOUND_KINDS };

struct bound {
    uint64_t bytes; /* 0: none */
    const char *name;
};

static struct bound bound_of(const struct msg_hello *h, enum bound_kind kind)
{
    switch (kind) {
    case BOUND_CGROUP:
        return (struct bound){h->cgroup_bytes, h->cgroup};
    case BOUND_PROCESS:
        return (struct bound){h->ulimit_bytes, h->ulimit};
    default:
        return (struct bound){h->memory_bytes, "physical memory"};
    }
}

uint64_t capacity_bound(const struct msg_hello *h, const char **name)
{
    uint64_t least = UINT64_MAX;
    *name = "no limit";
    for (enum bound_kind kind = 0; kind < BOUND_KINDS; kind++) {
        struct bound bound = bound_of(h, kind);
        if (bound.bytes == 0 || bound.bytes >= least) continue;
        least = bound.bytes;
        *name = bound.name;
    }
    return least;
}

static bool same_process(const struct msg_hello *a, const struct msg_hello *b)
{
    return a->pid == b->pid && strcmp(a->host, b->host) == 0;
}

static bool share_bound(const struct msg_hello *a, const struct msg_hello *b, enum bound_kind kind)
{
    if (kind == BOUND_PROCESS) return same_process(a, b);
    if (strcmp(a->host, b->host) != 0) return false;
    return kind == BOUND_HOST || (b->cgroup_bytes > 0 && strcmp(a->cgroup, b->cgroup) == 0);
}

uint64_t capacity_share(const struct msg_hello *const *hellos, uint32_t n, uint32_t i)
{
    uint64_t least = UINT64_MAX;
    for (enum bound_kind kind = 0; kind < BOUND_KINDS; kind++) {
        uint64_t bytes = bound_of(hellos[i], kind).bytes, sharers = 0;
        for (uint32_t k = 0; k < n; k++) sharers += share_bound(hellos[i], hellos[k], kind);
        if (bytes > 0 && sharers > 0 && bytes / sharers < least) least = bytes / sharers;
    }
    return least;
}

/* A limit that is too tight: for the worker of a stage and all who share it. */
struct shortage {
    uint32_t stage, n_sharers;
    uint64_t need, may;
    const char *name;
};

/* sum_bound() - what the sharers of a stage's bound need together, and what is left of it. */
static struct shortage sum_bound(const uint64_t *needs, const struct msg_hello *const *hellos,
                                 uint32_t n, uint32_t stage, enum bound_kind kind)
{
    struct bound bound = bound_of(hellos[stage], kind);
    struct shortage s = {.stage = stage, .may = bound.bytes, .name = bound.name};
    for (uint32_t i = 0; i < n && bound.bytes > 0; i++) {
        if (!share_bound(hellos[stage], hellos[i], kind)) continue;
        s.need += needs[i];
        s.n_sharers++;
        uint64_t bytes = bound_of(hellos[i], kind).bytes;
        if (bytes > 0 && bytes < s.may) s.may = bytes;
    }
    return s;
}

/* find_shortage() - the one by which most is missing; false when everything fits. */
static bool find_shortage(const uint64_t *needs, const struct msg_hello *const *hellos, uint32_t n,
                          struct shortage *worst)
{
    *worst = (struct shortage){0};
    for (uint32_t i = 0; i < n; i++)
        for (enum bound_kind kind = 0; kind < BOUND_KINDS; kind++) {
            struct shortage s = sum_bound(needs, hellos, n, i, kind);
            uint64_t missing = s.need > s.may ? s.need - s.may : 0;
            if (missing > worst->need - worst->may) *worst = s;
        }
    return worst->need > worst->may;
}

/* ---- the check ---- */

struct check {
    struct capacity_wish wish;
    const struct layer_range *ranges;
    const struct msg_hello *const *hellos;
    uint64_t program_bytes;   /* of a process */
    uint64_t *needs;          /* [n_layer] */
    struct layer_range *plan; /* [n_layer] for more workers */
};

/* fits() - would this wish? Stages of one process share one program. */
static bool fits(const struct check *c, const struct capacity_wish *w, struct shortage *worst)
{
    struct line_limits limits;
    if (capacity_settle(w, &limits, NULL) != ERR_NONE) return false;
    for (uint32_t i = 0; i < w->n_stages; i++) {
        struct footprint f = capacity_need(w->model, c->ranges[i], &limits);
        bool joins = i > 0 && same_process(c->hellos[i], c->hellos[i - 1]);
        c->needs[i] = capacity_total(&f) + (joins ? 0 : c->program_bytes);
    }
    return !find_shortage(c->needs, c->hellos, w->n_stages, worst);
}

/* shrink() - the largest value below the one at *field, in steps, with which the wish fits; the
 * value is left in place. false where not even the least does. */
static bool shrink(const struct check *c, struct capacity_wish *w, uint32_t *field, uint32_t least,
                   uint32_t step)
{
    struct shortage ignored;
    uint32_t low = (least + step - 1) / step, high = (*field - 1) / step;
    if (*field <= least || low > high) return false;
    *field = low * step;
    if (!fits(c, w, &ignored)) return false;
    while (low < high) {
        uint32_t middle = low + (high - low + 1) / 2;
        *field = middle * step;
        if (fits(c, w, &ignored))
            low = middle;
        else
            high = middle - 1;
    }
    *field = low * step;
    return true;
}

static uint32_t least_ctx(const struct check *c)
{
    return c->wish.n_ctx_min > KV_BLOCK_POSITIONS ? c->wish.n_ctx_min : KV_BLOCK_POSITIONS;
}

/* ---- what would fit ---- */

__attribute__((format(printf, 2, 3))) static void add_hint(char hint[HINT_MAX], const char *fmt,
                                                           ...)
{
    size_t len = strlen(hint);
    if (len > 0 && len < HINT_MAX) len += (size_t)snprintf(hint + len, HINT_MAX - len, ", or ");
    if (len >= HINT_MAX) return;
    va_list args;
    va_start(args, fmt);
    vsnprintf(hint + len, HINT_MAX - len, fmt, args);
    va_end(args);
}

/* workers_fit() - would so many workers like the one of s, each on a host of its own? *together: on
 * one host? */
static bool workers_fit(const struct check *c, const struct msg_hello *like, uint32_t n,
                        bool *together)
{
    struct capacity_wish w = c->wish;
    struct line_limits limits;
    const char *name;
    w.n_stages = n;
    if (capacity_settle(&w, &limits, NULL) != ERR_NONE ||
        plan_by_bytes(w.model, n, c->plan, NULL) != ERR_NONE)
        return false;
    uint64_t sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        struct footprint f = capacity_need(w.model, c->plan[i], &limits);
        uint64_t need = capacity_total(&f) + c->program_bytes;
        if (need > capacity_bound(like, &name)) return false;
        sum += need;
    }
    *together = (like->memory_bytes == 0 || sum <= like->memory_bytes) &&
                (like->cgroup_bytes == 0 || sum <= like->cgroup_bytes);
    return true;
}

static void hint_workers(const struct check *c, const struct shortage *s, char hint[HINT_MAX])
{
    for (uint32_t n = c->wish.n_stages; n <= c->wish.model->hp.n_layer; n++) {
        bool together;
        if (!workers_fit(c, c->hellos[s->stage], n, &together)) continue;
        if (n == c->wish.n_stages && together) continue;
        add_hint(hint, "%u workers%s (mpirun -n %u)", n,
                 together ? "" : ", each on a host of its own", n + 1);
        return;
    }
}

/* hint_together() - no single change is enough: all of them, as far as needed. */
static void hint_together(const struct check *c, char hint[HINT_MAX])
{
    struct capacity_wish w = c->wish;
    struct shortage ignored;
    const char *kv = w.kv == KV_Q8_0 ? "q8_0" : "f16";
    if (w.kv == KV_F32) w.kv = KV_F16;
    w.n_seqs = 1;
    if (fits(c, &w, &ignored) || shrink(c, &w, &w.n_ctx, least_ctx(c), KV_BLOCK_POSITIONS))
        add_hint(hint, "--kv %s --slots 1 --ctx %u", kv, w.n_ctx);
}

/* hint_kv_tokens() - a pool that is too small for all sequences, but not for one. */
static void hint_kv_tokens(const struct check *c, char hint[HINT_MAX])
{
    struct capacity_wish w = c->wish;
    const uint64_t all = (uint64_t)w.n_ctx * w.n_seqs;
    if (w.n_seqs == 1 || all > UINT32_MAX) return;
    if (w.kv_tokens == 0) w.kv_tokens = (uint32_t)all;
    if (shrink(c, &w, &w.kv_tokens, w.n_ctx, KV_BLOCK_POSITIONS))
        add_hint(hint, "--kv-tokens %u", w.kv_tokens);
}

/* find_hints() - changes of which each alone is enough; empty when nothing is. */
static void find_hints(const struct check *c, const struct shortage *s, char hint[HINT_MAX])
{
    struct shortage ignored;
    struct capacity_wish w = c->wish;
    hint[0] = '\0';
    w.kv = KV_F16;
    bool f16_fits = c->wish.kv == KV_F32 && fits(c, &w, &ignored);
    w.kv = KV_Q8_0;
    if (f16_fits)
        add_hint(hint, "--kv f16");
    else if (c->wish.kv != KV_Q8_0 && fits(c, &w, &ignored))
        add_hint(hint, "--kv q8_0");
    w = c->wish;
    if (shrink(c, &w, &w.n_ctx, least_ctx(c), KV_BLOCK_POSITIONS))
        add_hint(hint, "--ctx %u", w.n_ctx);
    w = c->wish;
    if (shrink(c, &w, &w.n_seqs, 1, 1)) add_hint(hint, "--slots %u", w.n_seqs);
    hint_kv_tokens(c, hint);
    hint_workers(c, s, hint);
    if (hint[0] == '\0') hint_together(c, hint);
}

static unsigned long long mib(uint64_t bytes)
{
    return (unsigned long long)((bytes + (1 << 20) - 1) >> 20);
}

static int refuse(struct check *c, const struct shortage *s, struct err *err)
{
    char hint[HINT_MAX], shared[96] = "";
    struct line_limits limits;
    TRY(capacity_settle(&c->wish, &limits, err));
    struct layer_range range = c->ranges[s->stage];
    struct footprint f = capacity_need(c->wish.model, range, &limits);
    c->program_bytes = CAPACITY_ADVICE_BYTES;
    find_hints(c, s, hint);
    if (s->n_sharers > 1)
        snprintf(shared, sizeof shared, ", and %u workers there need %llu MiB together",
                 s->n_sharers, mib(s->need));
    int rc = err_set(
        err, ERR_CAPACITY,
        "needs %llu MiB (tensors %llu, KV %llu, buffers %llu, program %d)%s, but may use %llu MiB "
        "(%.120s): %s%s",
        mib(capacity_total(&f) + CAPACITY_PROGRAM_BYTES), mib(f.weights), mib(f.kv), mib(f.buffers),
        CAPACITY_PROGRAM_BYTES >> 20, shared, (unsigned long long)(s->may >> 20), s->name,
        hint[0] != '\0' ? "what fits is "
                        : "use hosts with more memory, or a smaller number format",
        hint);
    err_set_who(err, "worker %u @%.32s, layers %u..%u", s->stage + 1, c->hellos[s->stage]->host,
                range.first, range.end - 1);
    return rc;
}

int capacity_check(const struct capacity_wish *w, const struct layer_range *ranges,
                   const struct msg_hello *const *hellos, struct err *err)
{
    struct check c = {
        .wish = *w, .ranges = ranges, .hellos = hellos, .program_bytes = CAPACITY_PROGRAM_BYTES};
    struct line_limits limits;
    struct shortage s;
    TRY(capacity_settle(w, &limits, err));
    c.wish.n_ctx = limits.n_ctx;
    c.wish.n_seqs = limits.n_seqs;
    c.needs = calloc(w->model->hp.n_layer, sizeof *c.needs);
    c.plan = calloc(w->model->hp.n_layer, sizeof *c.plan);
    int rc = ERR_NONE;
    if (c.needs == NULL || c.plan == NULL)
        rc = err_set(err, ERR_MEMORY, "no memory to check the plan");
    else if (!fits(&c, &c.wish, &s))
        rc = refuse(&c, &s, err);
    free(c.needs);
    free(c.plan);
    return rc;
}
