/* line - the coordinator's view of the whole line: open it, submit requests, take events.
 *
 * The one scheduler lives behind this. Front ends know nothing else of ranks, batches or blocks.
 *
 *   line_open                            hello, plan, load, ready
 *   line_submit, line_next, line_cancel  work
 *   line_stop                            stop, report
 *
 * Inside: scheduler (which rows go next) → pipeline (batches in flight) → proto/link; and back along
 * pipeline → sample/sampler → sequence. block_tables numbers the KV blocks of all stages.
 * One thread. */
#ifndef TANDEM_COORDINATOR_LINE_LINE_H
#define TANDEM_COORDINATOR_LINE_LINE_H

#include "coordinator/line/planner.h"
#include "coordinator/sample/sampler.h"
#include "engine/isa.h"
#include "engine/model.h"
#include "proto/link.h"
#include "proto/message.h"
#include "proto/wire_rows.h"

#include <stdbool.h>
#include <stdint.h>

struct line;

enum { STALL_MS_DEFAULT = 4500 }; /* named within 5 s */

struct line_config {
    const struct model *model; /* outlives the line */
    /* "3,3,2"; "auto": by measured speed, which may leave workers out; NULL: by bytes. */
    const char *split;
    uint32_t n_ctx; /* positions of one sequence; 0: what the model was trained for */
    /* The work needs so many at least, for advice where n_ctx does not fit; 0: unknown. */
    uint32_t n_ctx_min;
    uint32_t n_seqs;    /* sequences in the line at once; more requests wait their turn */
    uint32_t kv_tokens; /* positions that the KV pool holds over all sequences; 0: n_seqs x n_ctx */
    /* What is in the cache is not computed again for the next request that begins with it. */
    bool share_prefixes;
    bool tokens_only; /* no request asks for scores, so few wanted rows a batch are enough */
    uint32_t chunk;   /* rows of a batch; 0: a default by the number of stages */
    uint32_t threads; /* of each stage; 0: each stage's share of its CPUs */
    enum kv_format kv;
    enum matmul_choice matmul;
    uint32_t stall_ms;  /* a worker that is silent for so long has stalled; 0: STALL_MS_DEFAULT */
    bool measure_speed; /* measure all workers and hops before loading: line_planner */
    enum wire_format wire; /* how rows travel between stages */
    bool measure; /* keep the account of every batch and compare clocks: line_stats, the trace */
    bool trace_layers;   /* and when each layer began; costs a little time in each layer */
    bool shuffle_blocks; /* hand out KV blocks in a random order (a test of promise 1) */
    uint64_t shuffle_seed;
    /* called while loading, at most a few times a second: bytes over all stages. May be NULL. */
    void (*on_load)(void *ctx, uint64_t done, uint64_t total);
    void *ctx;
};

/* line_open() - hello, plan, load and ready over l, whose size - 1 workers are already running
 * worker_run(). Owns nothing of l. On error the workers have been told to stop.
 * Returns ERR_CAPACITY (more stages than layers; a worker may not have the memory, found before
 * anything is read), ERR_DISAGREE (model, version), ERR_RANK (a worker failed or died; named),
 * ERR_STALL, ERR_INTERRUPTED, ERR_USAGE (split, context). */
int line_open(struct line **out, struct link *l, const struct line_config *config, struct err *err);

enum line_scores {
    LINE_SCORES_NONE,
    LINE_SCORES_ROWS, /* LINE_EVENT_SCORES for every prompt position, with the raw row */
    /* LINE_EVENT_SCORES for every prompt position but the last: head->id_scores[0] is the score of
     * the next prompt token, head->lse the row's. */
    LINE_SCORES_NEXT,
};

struct line_request {
    const int32_t *prompt; /* [n_prompt], copied; 1 <= n_prompt <= n_ctx */
    uint32_t n_prompt;
    struct sampling sampling;
    /* 0: the prompt only; UINT32_MAX: until the context or the KV pool is full. */
    uint32_t max_tokens;
    enum line_scores scores;
    bool (*is_end)(const void *ctx, int32_t token); /* NULL: no token ends it */
    const void *is_end_ctx;
};

enum line_finish {
    LINE_FINISH_STOP,      /* an end token */
    LINE_FINISH_LENGTH,    /* max_tokens, or there is no room for more */
    LINE_FINISH_CANCELLED, /* line_cancel() */
};

enum line_event_kind {
    LINE_EVENT_PREFILL,  /* position prompt tokens are done; not for prompts of one batch */
    LINE_EVENT_SCORES,   /* see line_scores; position is the prompt position */
    LINE_EVENT_TOKEN,    /* a token was chosen; head: its ordered head, for top_probs */
    LINE_EVENT_FINISHED, /* the last one of a request; token: the end token, or -1 */
};

/* Pointers are valid until the next call into the line. */
struct line_event {
    enum line_event_kind kind;
    uint32_t request; /* as line_submit() numbered it */
    uint32_t position;
    int32_t token;
    /* 1 for greedy: the probability of head entry k is exp(scores[k] / temperature - lse). */
    float temperature;
    const struct score_head *head;
    enum line_finish finish;
    uint32_t cached; /* of LINE_EVENT_FINISHED: prompt tokens that were in the cache already */
};

/* line_submit() - queue a request, at any time between two calls of line_next(); *request: its
 * number, 0, 1, 2 … Requests come into the line in this order, as far as there is room for them;
 * each gets the tokens that it would have alone. Returns ERR_USAGE (sampling, empty prompt, a token
 * out of range), ERR_CAPACITY (it could never fit: the prompt is longer than the context, or all of
 * it larger than the KV pool), ERR_MEMORY. */
int line_submit(struct line *ln, const struct line_request *r, uint32_t *request, struct err *err);

/* line_send_as_f32() - from now on rows travel between stages as floats, whatever config.wire says;
 * or again as that says. A batch then holds fewer of them: for measuring what
 * config.wire changes. */
void line_send_as_f32(struct line *ln, bool as_f32);

/* line_cancel() - end a request early; its LINE_EVENT_FINISHED still comes. Unknown or finished:
 * nothing. */
void line_cancel(struct line *ln, uint32_t request);

/* line_next() - work until there is an event. *none is set, and no event given, when no request is
 * left. Errors end the line: ERR_RANK, ERR_STALL, ERR_NUMERIC, ERR_INTERRUPTED, ERR_PEER ... */
int line_next(struct line *ln, struct line_event *ev, bool *none, struct err *err);

/* What is known of each stage; strings live as long as the line. report is filled
 * by line_stop(). */
struct line_stage {
    int rank;
    const char *host;
    uint32_t pid;
    struct layer_range range;
    uint32_t threads;
    struct footprint bytes;
    uint64_t load_ns;
    struct msg_report report;
};
uint32_t line_stage_count(const struct line *ln);
const struct line_stage *line_stage_at(const struct line *ln, uint32_t stage);
enum isa line_isa(const struct line *ln);
uint32_t line_n_ctx(const struct line *ln);

/* line_planner() - what is known of the workers' speed, for predictions: of config.measure_speed or
 * split "auto"; else NULL. *ranges: of all workers, empty for those that were left out. Both live
 * as long as the line. */
struct planner *line_planner(struct line *ln, const struct layer_range **ranges);

struct line_counts {
    uint64_t batches, rows;
    uint64_t prompt_tokens; /* computed, and not for the second time */
    uint64_t cached_tokens; /* prompt tokens of finished requests that were in the cache already */
    uint64_t tokens;        /* of text */
    uint64_t preemptions; /* requests that left the line for a while, to make room for older ones */
    uint64_t sent_bytes;  /* frames of BATCHes that left */
    uint64_t home_bytes;  /* frames of RESULTs that came home */
    uint64_t home_rows;   /* the score rows they answered */
    uint32_t blocks_used; /* KV blocks in use now, of all cache classes; 0: nothing is left to do */
    uint32_t blocks_most[KV_CLASSES_MAX]; /* the most that were in use at once, of each class */
    /* After line_stop(): forward passes beside which another stage worked on another batch. */
    uint64_t overlapped;
    uint64_t wall_ns; /* since line_open() began */
    uint64_t idle_ns; /* how much of it no request was there */
};
struct line_counts line_counts(const struct line *ln);

/* line_journal() - the records of the batches; complete after line_stop(). Lives as long as the
 * line. */
struct journal;
const struct journal *line_journal(const struct line *ln);

/* What a line could do at best, measured by itself while no request is there: after line_next() has
 * said that none is left. Afterwards the journal has the accounts of all batches. Errors end the
 * line, as those of line_next().
 *
 * line_read_speeds() - bytes_s [stages]: how fast each stage reads its weights with all its
 * threads, one stage at a time; 0.2 s each. The limit of its decoding.
 * line_raw_hops() - what link_raw_pingpong() says: us [stages + 1][n], hop i ends at stage i, the
 * last one here. */
int line_read_speeds(struct line *ln, uint64_t *bytes_s, struct err *err);
int line_raw_hops(struct line *ln, const uint32_t *bytes, uint32_t n, uint32_t rounds, double *us,
                  struct err *err);

/* line_stop() - drain, stop the workers, collect their reports. line_close() frees; after an error,
 * or without line_stop(), it tells the workers to stop and waits for nothing. */
int line_stop(struct line *ln, struct err *err);
void line_close(struct line *ln); /* NULL is allowed */

/* line_catch_signals() - SIGINT and SIGTERM are noted and end line_open() and line_next() with
 * ERR_INTERRUPTED, or with ERR_RANK when a worker turns out to be dead (mpirun sends SIGTERM then).
 * Process-wide; call once. */
void line_catch_signals(void);

/* line_catch_finish() - from now on SIGUSR1, which a batch system sends some time before it ends a
 * job, is noted. line_should_finish() - it came: what is under way may end, and nothing new should
 * begin. Process-wide. */
void line_catch_finish(void);
bool line_should_finish(void);

/* line_dismiss() - in place of line_open(), where it turns out that there is no work: the workers
 * end in good order and load nothing. Errors as those of line_open(). */
int line_dismiss(struct link *l, struct err *err);

#endif
