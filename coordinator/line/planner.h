/* planner - which rank holds which layers so that the slowest stage is as fast as can be, and how
 * fast the line will then be.
 *
 * engine/plan finds the cut; this is what it asks: a stage costs the time that a batch of decoding
 * rows takes in it and on the way to the next one, and it is not possible where its rank may not
 * have the memory. Ranks stand in the order of the line; those without which the slowest stage is
 * as fast are left out where that makes a token's way shorter. Ranks of one host share its CPUs and
 * its memory: no more of them work at a time than cpu_share says, and those that do slow one
 * another as far as it was measured. Pure: no I/O, no clock. Stations before: line (--split auto),
 * front/plan. Stations after: engine/plan, engine/plan_work, capacity, cpu_share. */
#ifndef TANDEM_COORDINATOR_LINE_PLANNER_H
#define TANDEM_COORDINATOR_LINE_PLANNER_H

#include "coordinator/line/capacity.h"
#include "engine/plan_work.h"

/* A message of n bytes takes us + n / bytes_s. */
struct planner_link {
    double us, bytes_s;
};

/* What is left of a rank's speed while as many ranks of its host work as its CPUs allow. */
struct planner_share {
    double read, ops; /* 0 < x <= 1 */
};

struct planner_rank {
    const char *host;        /* two of one name share a host */
    uint32_t threads;        /* >= 1 */
    uint32_t cpus;           /* of its host, for the threads of all its ranks; 0: enough for them */
    uint64_t may;            /* bytes that it may take, the program included */
    struct plan_speed speed; /* while the other ranks of its host rest */
    struct planner_share busy;
    struct planner_link away, local; /* to ranks of other hosts, and of its own */
};

/* What holds where nothing is known: no limit of memory, one thread, a CPU for each, ranks that do
 * not slow one another, 50 us and 0.1 GB/s between hosts, 2 us and 5 GB/s inside one. No speed. */
extern const struct planner_rank planner_usual;

struct planner;

enum { PLANNER_LAYERS_MAX = 2048 };

/* planner_open() - a planner for a wish (its n_stages is ignored) and ranks, which must outlive it,
 * as the model. The coordinator sits beside the first rank. ERR_CAPACITY (context, too many
 * layers), ERR_MEMORY. */
int planner_open(struct planner **out, const struct capacity_wish *wish,
                 const struct planner_rank *ranks, uint32_t n_ranks, struct err *err);
void planner_close(struct planner *p); /* NULL is allowed */

/* planner_split() - the best cut: ranges[n_ranks], empty for ranks that are left out. Returns
 * ERR_CAPACITY where none fits, saying what is missing and which context would fit; ERR_MEMORY. */
int planner_split(struct planner *p, struct layer_range *ranges, struct err *err);

/* planner_limits() - the sizes that a cut is judged with: those of a line of all ranks. */
const struct line_limits *planner_limits(const struct planner *p);

/* planner_count_stages() - the ranks that have layers. */
uint32_t planner_count_stages(const struct planner *p, const struct layer_range *ranges);

/* planner_need() - what the rank of a range takes, the program not included. planner_cost() - as in
 * struct plan_question, in picoseconds. */
struct footprint planner_need(struct planner *p, struct layer_range range);
uint64_t planner_cost(struct planner *p, uint32_t rank, uint32_t next, struct layer_range range);

/* planner_holds_any() - may the rank use what one layer at least needs? */
bool planner_holds_any(struct planner *p, uint32_t rank);

/* planner_largest_context() - of one sequence, as all others stay; 0: none fits. At most what the
 * model was trained for. ERR_MEMORY. */
int planner_largest_context(struct planner *p, uint32_t *n_ctx, struct err *err);

/* What a line of these ranges will do. */
struct planner_decode {
    double tok_s;     /* of all sequences together */
    double token_s;   /* from one token of a sequence to its next */
    double bubble;    /* the share of the stages' time without work */
    uint32_t slowest; /* the rank whose stage is the bottleneck */
};
struct planner_decode planner_predict_decode(struct planner *p, const struct layer_range *ranges,
                                             uint32_t n_seqs, double context);

/* planner_predict_prompt() - seconds from a prompt of n tokens alone to its first new token. */
double planner_predict_prompt(struct planner *p, const struct layer_range *ranges, uint32_t n);

/* planner_stage_seconds() - of a rank's stage, for a batch, while no other works; hops left out. */
double planner_stage_seconds(const struct planner *p, uint32_t rank, struct layer_range range,
                             const struct plan_batch *b);

#endif
