/* fake_stages - stages without a model: they check what a stage may rely on, and answer with scores
 * that are a function of a sequence's tokens alone. So a test knows what each sequence must get,
 * and any mistake of the scheduler shows as a wrong token or a broken rule. */
#ifndef TANDEM_TESTS_COORDINATOR_FAKE_STAGES_H
#define TANDEM_TESTS_COORDINATOR_FAKE_STAGES_H

#include "engine/digest.h"
#include "engine/model.h"
#include "proto/link.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

enum { FAKE_STAGES_MAX = 8 };

struct fake_options {
    bool short_heads;    /* the first answer to a need without a count is one pair only */
    const char *version; /* NULL: the right one */
    uint64_t digest_xor; /* not 0: a stage with another model */
    const struct tensor_digest *digests; /* [n stages], what each has read; NULL: nothing */
    uint64_t fail_batch;                 /* not 0: the last stage reports an error at this batch */
    uint32_t cpus; /* of their host: so many compute at the same time; 0: one */
};

struct fake_stages {
    struct link *link[FAKE_STAGES_MAX + 1];
    pthread_t thread[FAKE_STAGES_MAX];
    int n;
    const struct model *model;
    struct fake_options options;
    uint32_t fetches;      /* answered by the last stage */
    uint32_t rows_most;    /* rows of the largest batch */
    char broken_rule[256]; /* "" or the first rule that the coordinator broke */
};

/* fake_stages_start() - n stages as threads; link[0] is the coordinator's. fake_stages_join() after
 * line_stop() or line_close(). */
void fake_stages_start(struct fake_stages *f, int n, const struct model *model,
                       const struct fake_options *options);
void fake_stages_join(struct fake_stages *f);

/* fake_scores() - z[n_vocab] after the tokens [0, n) of a sequence. */
void fake_scores(const int32_t *tokens, uint32_t n, uint32_t n_vocab, float *z);

#endif
