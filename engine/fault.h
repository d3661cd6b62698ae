/* fault - faults on request, so that tests can meet a slow or failing rank at a known place.
 *
 * TANDEM_TEST_FAULT="[RANK:]PLACE:ACTION", e.g. "2:decode:exit" or "load:2000". Places: measure
 * (its speed); load; idle (waiting, behind the first batch); then once a batch, each in its column
 * of the ledger: control (reading it), compute, prefill or decode (compute of more rows than one,
 * or of one), send. Rank 0, the coordinator, has measure (before it asks), load, prefill and decode
 * (a batch has left) and idle. An action is a number of milliseconds to sleep, or error, exit, kill
 * (SIGKILL) or stop (SIGSTOP). Without RANK: every worker. */
#ifndef TANDEM_ENGINE_FAULT_H
#define TANDEM_ENGINE_FAULT_H

#include "engine/err.h"

#include <stdint.h>

enum fault_place {
    FAULT_NONE,
    FAULT_LOAD,
    FAULT_CONTROL,
    FAULT_COMPUTE,
    FAULT_PREFILL,
    FAULT_DECODE,
    FAULT_SEND,
    FAULT_IDLE,
    FAULT_MEASURE
};
enum fault_action { FAULT_SLEEP, FAULT_ERROR, FAULT_EXIT, FAULT_KILL, FAULT_STOP };

struct fault_plan {
    enum fault_place place;
    enum fault_action action;
    uint32_t sleep_ms;
};

/* fault_plan_read() - from the environment; no fault for other ranks. ERR_USAGE for a text it
 * cannot read. */
int fault_plan_read(struct fault_plan *plan, int rank, struct err *err);

/* fault_act() - do what is planned for this place. It says so first (LOG_WARN, so that a test knows
 * when). alive(ctx), where not NULL, is called every few milliseconds of a sleep. */
int fault_act(const struct fault_plan *plan, enum fault_place place, void (*alive)(void *ctx),
              void *ctx, struct err *err);

#endif
