/* real_stages - a line of real workers, as threads of a test. */
#ifndef TANDEM_TESTS_COORDINATOR_REAL_STAGES_H
#define TANDEM_TESTS_COORDINATOR_REAL_STAGES_H

#include "proto/link.h"

#include <pthread.h>

enum { REAL_STAGES_MAX = 4 };

struct real_stages {
    struct link *link[REAL_STAGES_MAX + 1];
    pthread_t thread[REAL_STAGES_MAX];
    int n;
};

/* real_stages_start() - n stages of the model file at path, which must stay; link[0] is the
 * coordinator's. real_stages_join() after line_stop() or line_close(). */
void real_stages_start(struct real_stages *r, int n, const char *path);
void real_stages_join(struct real_stages *r);

#endif
