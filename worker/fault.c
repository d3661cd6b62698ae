/* fault - see fault.h. */
#include "worker/fault.h"

#include "engine/log.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const struct {
    const char *name;
    enum fault_place place;
} places[] = {{"load:", FAULT_LOAD},       {"control:", FAULT_CONTROL}, {"compute:", FAULT_COMPUTE},
              {"prefill:", FAULT_PREFILL}, {"decode:", FAULT_DECODE},   {"send:", FAULT_SEND}};

static int read_action(struct fault_plan *plan, const char *text, struct err *err)
{
    if (strcmp(text, "exit") == 0) {
        plan->action = FAULT_EXIT;
        return ERR_NONE;
    }
    if (strcmp(text, "error") == 0) {
        plan->action = FAULT_ERROR;
        return ERR_NONE;
    }
    char *end;
    unsigned long ms = strtoul(text, &end, 10);
    CHECK(end != text && *end == '\0' && ms <= 600000, err, ERR_USAGE,
          "TANDEM_TEST_FAULT: action '%s' is not exit, error or 0..600000 milliseconds", text);
    plan->action = FAULT_SLEEP;
    plan->sleep_ms = (uint32_t)ms;
    return ERR_NONE;
}

int fault_plan_read(struct fault_plan *plan, int rank, struct err *err)
{
    *plan = (struct fault_plan){.place = FAULT_NONE};
    const char *text = getenv("TANDEM_TEST_FAULT");
    if (text == NULL || *text == '\0') return ERR_NONE;
    char *end;
    long wanted_rank = strtol(text, &end, 10);
    if (end != text && *end == ':') {
        if (wanted_rank != rank) return ERR_NONE;
        text = end + 1;
    }
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        size_t len = strlen(places[i].name);
        if (strncmp(text, places[i].name, len) != 0) continue;
        plan->place = places[i].place;
        return read_action(plan, text + len, err);
    }
    return err_set(
        err, ERR_USAGE,
        "TANDEM_TEST_FAULT: '%s' is not [RANK:]load|control|compute|prefill|decode|send:ACTION",
        text);
}

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* sleep_alive() - up to a point in time, so that short steps that oversleep do not add up. */
static void sleep_alive(uint32_t ms, void (*alive)(void *ctx), void *ctx)
{
    enum { STEP_NS = 5000000 };
    const int64_t end_ns = now_ns() + (int64_t)ms * 1000000;
    for (int64_t left; (left = end_ns - now_ns()) > 0; alive(ctx))
        nanosleep(&(struct timespec){.tv_nsec = left < STEP_NS ? (long)left : STEP_NS}, NULL);
}

int fault_act(const struct fault_plan *plan, enum fault_place place, void (*alive)(void *ctx),
              void *ctx, struct err *err)
{
    if (plan->place != place) return ERR_NONE;
    if (plan->action == FAULT_EXIT) _exit(7);
    CHECK(plan->action != FAULT_ERROR, err, ERR_RANK, "an error was asked for (TANDEM_TEST_FAULT)");
    log_line(LOG_WARN, "sleeps %u ms (TANDEM_TEST_FAULT)", plan->sleep_ms);
    sleep_alive(plan->sleep_ms, alive, ctx);
    return ERR_NONE;
}
