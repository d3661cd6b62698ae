/* logits - the model's raw scores after every position of one prompt.
 *
 * Station before: line_session (prompt, line). Station after: output. */
#include "coordinator/front/front.h"

#include "coordinator/front/line_session.h"
#include "coordinator/front/output.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    BESIDE_TOKENS_MAX = 64
}; /* prompt tokens of a sequence of --beside; as many are generated */

struct logits {
    struct session session;
    uint32_t n_vocab;
    uint32_t top;       /* 0: not wanted */
    FILE *out;          /* NULL: not wanted */
    uint32_t *best;     /* [top] */
    uint32_t request;   /* of the prompt; the others stand beside it */
    uint32_t positions; /* rows that came */
};

/* hash_row() - FNV-1a, 64 bits, over the bytes of the row. */
static uint64_t hash_row(const float *row, uint32_t n)
{
    uint64_t hash = 0xCBF29CE484222325U;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &row[i], sizeof bits);
        for (int shift = 0; shift < 32; shift += 8)
            hash = (hash ^ ((bits >> shift) & 0xFF)) * 0x100000001B3U;
    }
    return hash;
}

/* select_best() - the indexes of the `top` largest scores, best first, ties to the lower id.
 * Returns how many. */
static uint32_t select_best(const float *row, uint32_t n, uint32_t top, uint32_t *best)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (count == top && !(row[i] > row[best[count - 1]])) continue;
        uint32_t k = count < top ? count++ : count - 1;
        for (; k > 0 && row[i] > row[best[k - 1]]; k--) best[k] = best[k - 1];
        best[k] = i;
    }
    return count;
}

static int write_row(struct logits *lg, const float *row, struct err *err)
{
    /* Byte by byte where the machine is not little-endian: the file's order is fixed. */
    for (uint32_t i = 0; i < lg->n_vocab; i++) {
        uint32_t bits;
        memcpy(&bits, &row[i], sizeof bits);
        unsigned char bytes[4];
        for (int k = 0; k < 4; k++) bytes[k] = (unsigned char)(bits >> (8 * k));
        fwrite(bytes, 1, sizeof bytes, lg->out);
    }
    CHECK(!ferror(lg->out), err, ERR_FILE, "%s cannot be written: %s", lg->session.settings->out,
          strerror(errno));
    return ERR_NONE;
}

static int take_row(struct logits *lg, uint32_t position, const float *row, struct err *err)
{
    lg->positions++;
    if (lg->out != NULL) TRY(write_row(lg, row, err));
    if (lg->session.settings->hash)
        TRY(output_printf(err, "%u %016" PRIx64 "\n", position, hash_row(row, lg->n_vocab)));
    if (lg->top == 0) return ERR_NONE;
    uint32_t n = select_best(row, lg->n_vocab, lg->top, lg->best);
    TRY(output_printf(err, "%u", position));
    for (uint32_t k = 0; k < n; k++)
        TRY(output_printf(err, " %u:%.9g", lg->best[k], (double)row[lg->best[k]]));
    return output_printf(err, "\n");
}

/* ---- sequences beside the prompt ---- */

static uint64_t next_random(uint64_t *state)
{
    /* SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014). */
    uint64_t z = *state += 0x9E3779B97F4A7C15U;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
    return z ^ (z >> 31);
}

/* submit_beside() - a random prompt of random length, half of it prompt and half of
 * it generated. */
static int submit_beside(struct logits *lg, uint64_t *state, uint32_t n_ctx, struct err *err)
{
    int32_t ids[BESIDE_TOKENS_MAX];
    const uint32_t longest = n_ctx / 2 < BESIDE_TOKENS_MAX ? n_ctx / 2 : BESIDE_TOKENS_MAX;
    const uint32_t n = 1 + (uint32_t)(next_random(state) % (longest > 0 ? longest : 1));
    for (uint32_t i = 0; i < n; i++) ids[i] = (int32_t)(next_random(state) % lg->n_vocab);
    struct line_request r = {
        .prompt = ids, .n_prompt = n, .sampling = sampling_default(), .max_tokens = n};
    r.sampling.temperature = 1;
    r.sampling.seed = next_random(state);
    uint32_t request;
    return line_submit(lg->session.line, &r, &request, err);
}

/* submit() - the prompt, in the middle of its companions. */
static int submit(struct logits *lg, uint32_t n_ctx, struct err *err)
{
    const struct settings *set = lg->session.settings;
    const struct token_list *prompt = &lg->session.prompts[0];
    uint64_t state = set->sampling.seed;
    for (uint32_t i = 0; i < set->beside / 2; i++) TRY(submit_beside(lg, &state, n_ctx, err));
    const struct line_request r = {
        .prompt = prompt->ids,
        .n_prompt = (uint32_t)prompt->n,
        .sampling = sampling_default(),
        .scores = LINE_SCORES_ROWS,
    };
    TRY(line_submit(lg->session.line, &r, &lg->request, err));
    for (uint32_t i = set->beside / 2; i < set->beside; i++)
        TRY(submit_beside(lg, &state, n_ctx, err));
    return ERR_NONE;
}

/* ---- the run ---- */

static int prepare(struct logits *lg, struct err *err)
{
    const struct settings *set = lg->session.settings;
    TRY(session_read_prompts(&lg->session, err));
    CHECK(lg->session.n_prompts == 1, err, ERR_USAGE, "logits wants one prompt, got %u",
          lg->session.n_prompts);
    lg->n_vocab = lg->session.model->hp.n_vocab;
    lg->top = set->top != 0 || set->hash || set->out != NULL ? set->top : 8;
    lg->best = calloc((size_t)lg->top + 1, sizeof *lg->best);
    CHECK(lg->best != NULL, err, ERR_MEMORY, "no memory for %u best tokens", lg->top);
    if (set->out == NULL) return ERR_NONE;
    lg->out = fopen(set->out, "wb");
    CHECK(lg->out != NULL, err, ERR_FILE, "%s: %s", set->out, strerror(errno));
    return ERR_NONE;
}

static int take_rows(struct logits *lg, struct err *err)
{
    for (;;) {
        struct line_event ev;
        bool none = false;
        TRY(line_next(lg->session.line, &ev, &none, err));
        if (none) return ERR_NONE;
        if (ev.request != lg->request) continue;
        if (ev.kind == LINE_EVENT_PREFILL)
            progress_bar_show(&lg->session.bar, "prompt", ev.position, lg->session.prompts[0].n);
        if (ev.kind != LINE_EVENT_SCORES) continue;
        progress_bar_erase(&lg->session.bar);
        TRY(take_row(lg, ev.position, ev.head->raw, err));
    }
}

static int close_file(struct logits *lg, struct err *err)
{
    if (lg->out == NULL) return ERR_NONE;
    int failed = fclose(lg->out);
    lg->out = NULL;
    CHECK(failed == 0, err, ERR_FILE, "%s cannot be written: %s", lg->session.settings->out,
          strerror(errno));
    return ERR_NONE;
}

static int run(struct logits *lg, const struct settings *settings,
               const struct line_starter *starter, struct err *err)
{
    TRY(session_open(&lg->session, settings, starter, err));
    TRY(prepare(lg, err));
    uint64_t needed = lg->session.prompts[0].n;
    if (settings->beside > 0 && needed < 2 * BESIDE_TOKENS_MAX) needed = 2 * BESIDE_TOKENS_MAX;
    const uint32_t n_ctx = session_context(&lg->session, needed);
    TRY(session_check_prompts(&lg->session, n_ctx, err));
    TRY(session_start(&lg->session, n_ctx, settings->beside + 1, err));
    TRY(submit(lg, n_ctx, err));
    TRY(take_rows(lg, err));
    BUG_IF(lg->positions != lg->session.prompts[0].n, "logits: a row is missing");
    TRY(close_file(lg, err));
    TRY(output_flush(err));
    return session_finish(&lg->session, err);
}

int logits_run(const struct settings *settings, const struct line_starter *starter, struct err *err)
{
    struct logits lg = {0};
    int rc = run(&lg, settings, starter, err);
    if (lg.out != NULL) fclose(lg.out);
    free(lg.best);
    session_close(&lg.session);
    return rc;
}
