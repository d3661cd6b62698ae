/* line_jobs - see line_jobs.h. */
#include "line_jobs.h"

#include "fake_stages.h"
#include "worker/score_select.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static uint64_t dice = 42;

uint32_t roll(uint32_t n)
{
    dice = dice * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(dice >> 33) % n;
}

void roll_seed(uint64_t seed)
{
    dice = seed;
}

static bool is_end(const void *ctx, int32_t token)
{
    (void)ctx;
    return token == END_TOKEN;
}

void foretell(struct job *j)
{
    float z[VOCAB];
    struct sampler *sm;
    struct err err;
    assert_int_equal(sampler_open(&sm, &j->sampling, VOCAB, &err), ERR_NONE);
    for (uint32_t i = 0; i < j->n_prompt; i++) sampler_accept(sm, j->tokens[i]);
    j->want_finish = LINE_FINISH_LENGTH;
    struct score_selector *sel;
    assert_int_equal(score_selector_open(&sel, VOCAB, &err), ERR_NONE);
    for (uint32_t n = j->n_prompt; j->n_want < j->max_tokens && n < j->n_ctx; n++) {
        fake_scores(j->tokens, n, VOCAB, z);
        struct score_need need;
        sampler_need(sm, n, &need);
        need.count = 0;
        need.mass = need.ratio = 0;
        int32_t ids[VOCAB], token;
        float scores[VOCAB];
        struct score_head head;
        assert_int_equal(
            score_select(sel, z, &need, &(struct score_room){ids, scores, NULL}, &head, &err),
            ERR_NONE);
        assert_int_equal(sampler_pick(sm, &head, n, &token, &err), ERR_NONE);
        if (token == END_TOKEN) {
            j->want_finish = LINE_FINISH_STOP;
            break;
        }
        sampler_accept(sm, token);
        j->tokens[n] = token;
        j->want[j->n_want++] = token;
    }
    score_selector_close(sel);
    sampler_close(sm);
}

void make_job(struct job *j, uint32_t n_prompt, uint32_t max_tokens, uint32_t n_ctx)
{
    memset(j, 0, sizeof *j);
    j->n_prompt = n_prompt;
    j->max_tokens = max_tokens;
    j->n_ctx = n_ctx;
    j->sampling = sampling_default();
    for (uint32_t i = 0; i < n_prompt; i++) j->tokens[i] = (int32_t)roll(VOCAB);
}

void submit_job(struct line *ln, struct job *j, uint32_t number)
{
    struct line_request r = {.prompt = j->tokens,
                             .n_prompt = j->n_prompt,
                             .sampling = j->sampling,
                             .max_tokens = j->max_tokens,
                             .is_end = is_end};
    uint32_t request;
    struct err err;
    if (line_submit(ln, &r, &request, &err) != ERR_NONE) fail_msg("%s", err.text);
    assert_int_equal(request, number);
}

void take_event(struct job *j, const struct line_event *ev)
{
    assert_false(j->finished);
    if (ev->kind == LINE_EVENT_TOKEN) {
        assert_true(j->n_got < TEXT_MAX);
        assert_int_equal(ev->position, j->n_prompt + j->n_got);
        assert_non_null(ev->head);
        j->got[j->n_got++] = ev->token;
    } else if (ev->kind == LINE_EVENT_FINISHED) {
        j->finished = true;
        j->finish = ev->finish;
        j->n_cached = ev->cached;
    }
}

void check_job(const struct job *j)
{
    assert_true(j->finished);
    assert_int_equal(j->finish, j->want_finish);
    assert_int_equal(j->n_got, j->n_want);
    assert_memory_equal(j->got, j->want, j->n_want * sizeof *j->want);
}

void vary_sampling(struct sampling *s)
{
    if (roll(3) == 0) return;
    s->temperature = 0.5f + (float)roll(100) / 100.0f;
    s->seed = roll(1000);
    if (roll(2)) s->top_p = 0.8f;
    if (roll(3) == 0) s->top_k = 5 + roll(20);
    if (roll(3) == 0) s->min_p = 0.05f;
    if (roll(4) == 0) s->typical_p = 0.7f;
    if (roll(2)) s->repeat_penalty = 1.2f;
}
