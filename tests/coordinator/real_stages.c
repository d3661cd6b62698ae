/* real_stages - see real_stages.h. */
#include "real_stages.h"

#include "worker/worker.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

struct start {
    struct link *link;
    struct worker_config config;
};

static void *run_worker(void *arg)
{
    struct start start = *(struct start *)arg;
    struct err err;
    free(arg);
    worker_run(start.link, &start.config, &err);
    link_close(start.link, false);
    return NULL;
}

void real_stages_start(struct real_stages *r, int n, const char *path)
{
    struct err err;
    *r = (struct real_stages){.n = n};
    if (link_local_open(r->link, n + 1, LINK_IDLE_SLEEP, &err) != ERR_NONE)
        fail_msg("%s", err.text);
    for (int i = 0; i < n; i++) {
        struct start *start = malloc(sizeof *start);
        *start = (struct start){r->link[i + 1], {.model_path = path}};
        pthread_create(&r->thread[i], NULL, run_worker, start);
    }
}

void real_stages_join(struct real_stages *r)
{
    for (int i = 0; i < r->n; i++) pthread_join(r->thread[i], NULL);
    link_close(r->link[0], false);
}
