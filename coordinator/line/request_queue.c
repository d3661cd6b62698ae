/* request_queue - see request_queue.h. */
#include "coordinator/line/request_queue.h"

enum {
    LOOK_MAX = 4,       /* of the queue's first */
    OVERTAKEN_MAX = 16, /* so often by others */
};

void request_queue_put(struct request_queue *q, struct sequence *s)
{
    struct sequence **at = &q->first;
    if (q->last != NULL && q->last->request < s->request) at = &q->last->next_queued;
    while (*at != NULL && (*at)->request < s->request) at = &(*at)->next_queued;
    s->next_queued = *at;
    *at = s;
    if (s->next_queued == NULL) q->last = s;
}

void request_queue_remove(struct request_queue *q, struct sequence *s)
{
    struct sequence **at = &q->first, *before = NULL;
    for (; *at != s; at = &before->next_queued) {
        before = *at;
        BUG_IF(before == NULL, "a request that does not wait was taken from the queue");
    }
    *at = s->next_queued;
    if (q->last == s) q->last = before;
    s->next_queued = NULL;
}

struct sequence *request_queue_choose(const struct request_queue *q,
                                      bool (*fits)(const void *ctx, const struct sequence *s),
                                      const void *ctx)
{
    struct sequence *s = q->first;
    for (uint32_t i = 0; i < LOOK_MAX && s != NULL; i++, s = s->next_queued) {
        if (fits(ctx, s)) {
            for (struct sequence *o = q->first; o != s; o = o->next_queued) o->overtaken++;
            return s;
        }
        if (s->overtaken >= OVERTAKEN_MAX) return NULL;
    }
    return NULL;
}
