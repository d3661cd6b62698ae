/* line_jobs - requests as the tests of the line use them: made by dice, with the tokens that each
 * must give. */
#ifndef TANDEM_TESTS_COORDINATOR_LINE_JOBS_H
#define TANDEM_TESTS_COORDINATOR_LINE_JOBS_H

#include "coordinator/line/line.h"

enum { VOCAB = 320, PROMPT_MAX = 200, TEXT_MAX = 64, END_TOKEN = 7 };

/* A request, what it must give, and what it gave. */
struct job {
    int32_t tokens[PROMPT_MAX + TEXT_MAX];
    uint32_t n_prompt, max_tokens, n_ctx;
    struct sampling sampling;
    int32_t want[TEXT_MAX], got[TEXT_MAX];
    uint32_t n_want, n_got;
    enum line_finish want_finish, finish;
    bool finished;
    uint32_t n_cached; /* prompt tokens that were in the cache */
};

/* roll() - the next of the test's dice, 0 .. n-1; roll_seed() - where they begin. */
uint32_t roll(uint32_t n);
void roll_seed(uint64_t seed);

/* make_job() - a random prompt, greedy. vary_sampling() - another way to choose, often. */
void make_job(struct job *j, uint32_t n_prompt, uint32_t max_tokens, uint32_t n_ctx);
void vary_sampling(struct sampling *s);

/* foretell() - the tokens that fake stages must give for a job: whole rows, no line. */
void foretell(struct job *j);

/* submit_job() - the line must number it so. */
void submit_job(struct line *ln, struct job *j, uint32_t number);

/* take_event() - of a job's request, into what it got. */
void take_event(struct job *j, const struct line_event *ev);

/* check_job() - it got what it must. */
void check_job(const struct job *j);

#endif
