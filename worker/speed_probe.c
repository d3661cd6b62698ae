/* speed_probe - see speed_probe.h. */
#include "worker/speed_probe.h"

#include "engine/clock.h"
#include "engine/isa.h"
#include "engine/memory.h"
#include "engine/speed.h"

#include <stdlib.h>

enum {
    READ_MS = 200,             /* for reading weights; at least one pass */
    READ_BYTES_MAX = 1u << 30, /* of a pass: heartbeats wait for its end */
};

/* read_speed() - bytes a second, the best of some passes over the weights: nothing makes a machine
 * faster than it is, and much makes it slower. */
static uint64_t read_speed(const struct speed_probe *s)
{
    const uint64_t begin = clock_now_ns();
    double best = 0;
    uint64_t from, now = begin;
    do {
        from = now;
        const uint64_t bytes = stage_stream(s->stage, READ_BYTES_MAX);
        now = clock_now_ns();
        const double speed = (double)bytes * 1e9 / (double)(now - from + 1);
        if (speed > best) best = speed;
        s->alive(s->ctx);
    } while (now - begin < (uint64_t)READ_MS * 1000000u);
    return (uint64_t)best;
}

static int raw_pingpong(struct link *l, const struct msg_probe *p, struct err *err)
{
    const size_t n = p->n_bytes;
    size_t *bytes = calloc(n, sizeof *bytes);
    double *us = calloc(n * (size_t)link_size(l), sizeof *us);
    int rc = ERR_NONE;
    if (bytes == NULL || us == NULL)
        rc = err_set(err, ERR_MEMORY, "no memory to measure %zu sizes of messages", n);
    for (size_t i = 0; rc == ERR_NONE && i < n; i++) bytes[i] = p->bytes[i];
    if (rc == ERR_NONE) rc = link_raw_pingpong(l, bytes, n, p->rounds, us, err);
    free(bytes);
    free(us);
    return rc;
}

/* bytes_of_free() - of the weights that a product shall read: a quarter of the free memory at
 * most. */
static uint64_t bytes_of_free(uint64_t wanted, uint32_t threads)
{
    struct memory_limits limits;
    const char *name;
    memory_read_limits(&limits, threads, "");
    const uint64_t most = memory_smallest(&limits, &name) / 4;
    return wanted < most ? wanted : most;
}

int speed_probe_products(struct plan_speed *out, uint32_t format, uint32_t threads, uint64_t bytes,
                         struct err *err)
{
    enum isa isa;
    TRY(isa_detect(&isa, err));
    return speed_measure(out, format, isa, threads, bytes_of_free(bytes, threads), NULL, NULL, err);
}

static int product_speed(const struct speed_probe *s, const struct msg_probe *p,
                         struct msg_probed *out, struct err *err)
{
    struct plan_speed speed;
    enum isa isa;
    TRY(isa_detect(&isa, err));
    CHECK(p->isa <= (uint32_t)isa, err, ERR_PEER,
          "asked to measure kernels that its CPU does not have");
    TRY(speed_measure(&speed, p->format, (enum isa)p->isa, p->threads,
                      bytes_of_free(p->weight_bytes, p->threads), s->alive, s->ctx, err));
    memory_forget_peak(); /* What a line needs is what its stages hold. */
    out->read_bytes_s = (uint64_t)speed.read_bytes_s;
    out->ops_s = (uint64_t)speed.ops_s;
    out->few_ops_s = (uint64_t)speed.few_ops_s;
    return ERR_NONE;
}

int speed_probe_answer(const struct speed_probe *s, const struct msg_probe *p,
                       struct msg_probed *out, struct err *err)
{
    if (p->n_bytes > 0) return raw_pingpong(s->link, p, err);
    if (p->threads > 0) return product_speed(s, p, out, err);
    CHECK(s->stage != NULL, err, ERR_PEER,
          "asked how fast it reads its weights before it was asked to load");
    out->read_bytes_s = read_speed(s);
    return ERR_NONE;
}
