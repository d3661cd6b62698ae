/* fault - see fault.h. */
#include "engine/fault.h"

#include "engine/clock.h"
#include "engine/log.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const struct {
    const char *name;
    enum fault_place place;
} places[] = {{"load:", FAULT_LOAD},       {"control:", FAULT_CONTROL}, {"compute:", FAULT_COMPUTE},
              {"prefill:", FAULT_PREFILL}, {"decode:", FAULT_DECODE},   {"send:", FAULT_SEND},
              {"idle:", FAULT_IDLE},       {"measure:", FAULT_MEASURE}};

static const char *const words[] = {
    [FAULT_ERROR] = "error", [FAULT_EXIT] = "exit", [FAULT_KILL] = "kill", [FAULT_STOP] = "stop"};

static int read_action(struct fault_plan *plan, const char *text, struct err *err)
{
    for (int a = FAULT_ERROR; a <= FAULT_STOP; a++)
        if (strcmp(text, words[a]) == 0) {
            plan->action = (enum fault_action)a;
            return ERR_NONE;
        }
    char *end;
    unsigned long ms = strtoul(text, &end, 10);
    CHECK(end != text && *end == '\0' && ms <= 600000, err, ERR_USAGE,
          "TANDEM_TEST_FAULT: action '%s' is not error, exit, kill, stop or 0..600000 milliseconds",
          text);
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
    } else if (rank == 0) {
        return ERR_NONE;
    }
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        size_t len = strlen(places[i].name);
        if (strncmp(text, places[i].name, len) != 0) continue;
        plan->place = places[i].place;
        return read_action(plan, text + len, err);
    }
    return err_set(err, ERR_USAGE,
                   "TANDEM_TEST_FAULT: '%s' is not "
                   "[RANK:]measure|load|idle|control|compute|prefill|decode|send:ACTION",
                   text);
}

/* sleep_alive() - up to a point in time, so that short steps that oversleep do not add up. */
static void sleep_alive(uint32_t ms, void (*alive)(void *ctx), void *ctx)
{
    enum { STEP_NS = 5000000 };
    const int64_t end_ns = (int64_t)clock_now_ns() + (int64_t)ms * 1000000;
    for (int64_t left; (left = end_ns - (int64_t)clock_now_ns()) > 0;) {
        nanosleep(&(struct timespec){.tv_nsec = left < STEP_NS ? (long)left : STEP_NS}, NULL);
        if (alive != NULL) alive(ctx);
    }
}

int fault_act(const struct fault_plan *plan, enum fault_place place, void (*alive)(void *ctx),
              void *ctx, struct err *err)
{
    if (plan->place != place) return ERR_NONE;
    if (plan->action == FAULT_SLEEP) {
        log_event(LOG_WARN, "fault", "sleeps %u ms (TANDEM_TEST_FAULT)", plan->sleep_ms);
        sleep_alive(plan->sleep_ms, alive, ctx);
        return ERR_NONE;
    }
    log_event(LOG_WARN, "fault", "%s (TANDEM_TEST_FAULT)", words[plan->action]);
    if (plan->action == FAULT_EXIT) _exit(7);
    if (plan->action == FAULT_KILL) raise(SIGKILL);
    if (plan->action == FAULT_STOP) raise(SIGSTOP);
    CHECK(plan->action != FAULT_ERROR, err, ERR_RANK, "an error was asked for (TANDEM_TEST_FAULT)");
    return ERR_NONE;
}
