/* scheduler - see scheduler.h. */
#include "coordinator/line/scheduler.h"

#include "coordinator/line/request_queue.h"
#include "proto/codec.h"
#include "proto/frame_sizes.h"

#include <stdlib.h>
#include <string.h>

struct scheduler {
    struct scheduler_config config;
    uint32_t rows_now;           /* of a batch at most; config.rows_max or less */
    struct sequence **sequences; /* [n_sequences] by request; NULL once gone */
    uint32_t n_sequences, sequences_max;
    uint32_t n_live;    /* added and not yet gone */
    uint32_t n_working; /* added and not finished */
    uint64_t n_preempted;
    struct request_queue queue;
    struct sequence *done_first, *done_last; /* finished, to be told */
    struct sequence **slots;                 /* [n_seqs] who is in the line */
    uint32_t turn;                           /* slot that a decode batch begins with */
    struct kv_command *trims; /* [n_seqs] of sequences that left since the last batch */
    uint32_t n_trims;
};

int scheduler_open(struct scheduler **out, const struct scheduler_config *config, struct err *err)
{
    struct scheduler *sc = calloc(1, sizeof *sc);
    CHECK(sc != NULL, err, ERR_MEMORY, "no memory for the scheduler");
    sc->config = *config;
    sc->rows_now = config->rows_max;
    sc->slots = calloc(config->n_seqs, sizeof(struct sequence *));
    sc->trims = calloc(config->n_seqs, sizeof *sc->trims);
    if (sc->slots == NULL || sc->trims == NULL) {
        scheduler_close(sc);
        return err_set(err, ERR_MEMORY, "no memory for %u sequences", config->n_seqs);
    }
    *out = sc;
    return ERR_NONE;
}

void scheduler_close(struct scheduler *sc)
{
    if (sc == NULL) return;
    for (uint32_t i = 0; i < sc->n_sequences; i++) sequence_close(sc->sequences[i]);
    free(sc->sequences);
    free(sc->slots);
    free(sc->trims);
    free(sc);
}

int scheduler_add(struct scheduler *sc, struct sequence *s, struct err *err)
{
    BUG_IF(s->request != sc->n_sequences, "a request out of order");
    if (sc->n_sequences == sc->sequences_max) {
        uint32_t grown = sc->sequences_max > 0 ? sc->sequences_max * 2 : 16;
        struct sequence **p = realloc(sc->sequences, grown * sizeof(struct sequence *));
        CHECK(p != NULL, err, ERR_MEMORY, "no memory for %u requests", grown);
        sc->sequences = p;
        sc->sequences_max = grown;
    }
    sc->sequences[sc->n_sequences++] = s;
    request_queue_put(&sc->queue, s);
    sc->n_live++;
    sc->n_working++;
    return ERR_NONE;
}

uint32_t scheduler_count(const struct scheduler *sc)
{
    return sc->n_sequences;
}

struct sequence *scheduler_find(struct scheduler *sc, uint32_t request)
{
    return request < sc->n_sequences ? sc->sequences[request] : NULL;
}

/* commands_max() - of a batch: each row may begin a block, one sequence may come with a shared
 * prefix, and all others may have left. */
static uint32_t commands_max(const struct scheduler *sc)
{
    const struct scheduler_config *c = &sc->config;
    return (c->rows_max + BLOCK_TABLES_TELL_MAX) * c->n_kv_classes + c->n_seqs;
}

struct flight_limits scheduler_limits(const struct scheduler *sc)
{
    const struct scheduler_config *c = &sc->config;
    return (struct flight_limits){.rows_max = c->rows_max,
                                  .wanted_max = c->wanted_max,
                                  .commands_max = commands_max(sc),
                                  .credits = c->credits,
                                  .n_vocab = c->n_vocab};
}

/* ---- who is in the line ---- */

/* What decides whether a waiting sequence fits. */
struct admission {
    const struct block_tables *tables;
    struct block_need promised; /* what prompts in the line will still take */
    uint32_t n_running;
};

/* is_welcome() - room for all its tokens, and for a block of every other one in the line, so that
 * it need not leave again at once. One that has just left waits until its batches are home. */
static bool is_welcome(const void *ctx, const struct sequence *s)
{
    const struct admission *a = ctx;
    if (s->in_flight > 0) return false;
    struct block_need need = {0};
    block_tables_add_need(a->tables, s, &need);
    for (int attempt = 0; attempt < 2; attempt++) {
        struct block_need all = need;
        for (uint32_t c = 0; c < KV_CLASSES_MAX; c++) all.n[c] += a->promised.n[c];
        if (block_tables_has(a->tables, &all, a->n_running / 2)) return true;
        block_tables_spare(a->tables, s, &need);
    }
    return false;
}

/* admit() - waiting sequences take the free slots, as far as there is room for them. */
static void admit(struct scheduler *sc)
{
    struct admission a = {.tables = sc->config.tables};
    if (sc->queue.first == NULL) return;
    for (uint32_t slot = 0; slot < sc->config.n_seqs; slot++) {
        const struct sequence *s = sc->slots[slot];
        if (s == NULL) continue;
        a.n_running++;
        if (s->state == SEQUENCE_PROMPT) block_tables_add_need(a.tables, s, &a.promised);
    }
    for (uint32_t slot = 0; slot < sc->config.n_seqs; slot++) {
        if (sc->slots[slot] != NULL) continue;
        struct sequence *s = request_queue_choose(&sc->queue, is_welcome, &a);
        if (s == NULL) return;
        request_queue_remove(&sc->queue, s);
        s->state = SEQUENCE_PROMPT;
        s->slot = slot;
        sc->slots[slot] = s;
        block_tables_add_need(a.tables, s, &a.promised);
        a.n_running++;
    }
}

/* leave() - s is out of the line: its blocks and its slot are free for whoever comes behind it in
 * the stream. */
static void leave(struct scheduler *sc, struct sequence *s)
{
    if (s->slot == SEQUENCE_NO_SLOT) return;
    if (block_tables_release(sc->config.tables, s))
        sc->trims[sc->n_trims++] = (struct kv_command){.op = KV_TRIM, .seq = s->slot};
    sc->slots[s->slot] = NULL;
    s->slot = SEQUENCE_NO_SLOT;
    s->fetch = false;
    s->held_batch = 0;
}

/* preempt() - s makes room. Rows of it may be under way; what comes home for them still counts. */
static void preempt(struct scheduler *sc, struct sequence *s)
{
    leave(sc, s);
    s->state = SEQUENCE_QUEUED;
    request_queue_put(&sc->queue, s);
    sc->n_preempted++;
}

static bool is_ready(const struct sequence *s)
{
    if (s->state == SEQUENCE_PROMPT) return s->n_sent < s->n_tokens;
    return s->state == SEQUENCE_DECODE && s->in_flight == 0 && s->held_batch == 0;
}

static bool chooses(const struct sequence *s)
{
    return s->sampler != NULL && s->n_prompt < s->capacity;
}

/* ends_by_itself() - all its rows are under way, and no token follows: it leaves soon, with all
 * that it has. */
static bool ends_by_itself(const struct sequence *s)
{
    return s->state == SEQUENCE_DECODE && !chooses(s);
}

/* next_prompt() - the oldest with unsent tokens behind request `after`. */
static struct sequence *next_prompt(const struct scheduler *sc, int64_t after)
{
    struct sequence *next = NULL;
    for (uint32_t slot = 0; slot < sc->config.n_seqs; slot++) {
        struct sequence *s = sc->slots[slot];
        if (s == NULL || s->state != SEQUENCE_PROMPT || s->request <= after) continue;
        if (next == NULL || s->request < next->request) next = s;
    }
    return next;
}

/* begins_block() - would its next row, were it put into the batch at hand, begin a block? Of the
 * prompts the oldest goes first, and the others take what is left. */
static bool begins_block(const struct sequence *s, const struct sequence *first_prompt)
{
    return is_ready(s) && block_tables_begins(s) &&
           (s->state != SEQUENCE_PROMPT || s == first_prompt);
}

/* make_room() - everybody whose next row begins a block finds one; else the youngest goes. Only
 * that one may be left without: it keeps what it has, and waits. Before any row is in the batch at
 * hand. */
static void make_room(struct scheduler *sc)
{
    const struct block_need none = {0};
    for (;;) {
        uint32_t n_short = 0;
        struct sequence *youngest = NULL;
        const struct sequence *first_prompt = next_prompt(sc, -1);
        for (uint32_t slot = 0; slot < sc->config.n_seqs; slot++) {
            struct sequence *s = sc->slots[slot];
            if (s == NULL) continue;
            n_short += begins_block(s, first_prompt);
            if (!ends_by_itself(s) && (youngest == NULL || s->request > youngest->request))
                youngest = s;
        }
        if (youngest == NULL || block_tables_has(sc->config.tables, &none, n_short)) return;
        if (begins_block(youngest, first_prompt) &&
            block_tables_has(sc->config.tables, &none, n_short - 1))
            return;
        preempt(sc, youngest);
    }
}

/* ---- what goes into a batch ---- */

/* fits() - would a row more with this need and so many commands stay inside the limits of a frame?
 * A need of ours asks for the score of one id at most. */
static bool fits(const struct scheduler *sc, const struct flight *f, const struct score_need *need,
                 uint32_t n_commands)
{
    const struct scheduler_config *c = &sc->config;
    uint32_t n_adjusts = f->n_adjusts, n_pairs = f->n_pairs, n_raw = f->n_raw_rows;
    if (need != NULL) {
        n_adjusts += need->n_adjust;
        n_pairs += need->count > 0 ? need->count : c->n_vocab;
        n_raw += need->raw ? 1 : 0;
        if (f->n_wanted >= c->wanted_max) return false;
    }
    const uint32_t n_wanted = f->n_wanted + 1;
    const size_t head = codec_batch_head_bound(f->n_rows + 1, f->n_commands + n_commands, n_wanted,
                                               n_adjusts, n_wanted + f->n_fetches, f->n_fetches);
    return head <= BATCH_HEAD_MAX && f->n_commands + n_commands <= commands_max(sc) &&
           n_pairs <= frame_pairs_max(c->wanted_max + c->credits, c->n_vocab) &&
           n_raw <= frame_raw_rows_max(c->wanted_max + c->credits, c->n_vocab);
}

static void count_need(const struct scheduler *sc, struct flight *f, const struct score_need *need)
{
    f->n_adjusts += need->n_adjust;
    f->n_pairs += need->count > 0 ? need->count : sc->config.n_vocab;
    f->n_raw_rows += need->raw ? 1 : 0;
}

/* state_need() - what is wanted of the row at position pos of s; false: no scores. */
static bool state_need(struct sequence *s, uint32_t pos, struct score_need *need)
{
    *need = (struct score_need){.temperature = 1, .count = 1};
    if (s->scores == LINE_SCORES_NONE) {
        if (pos + 1 < s->n_tokens || !chooses(s)) return false;
        sampler_need(s->sampler, pos + 1, need);
        return true;
    }
    /* Scores that came home before the sequence had to leave the line have been told. */
    if (pos < s->n_home) return false;
    if (s->scores == LINE_SCORES_NEXT) {
        if (pos + 1 == s->n_prompt) return false;
        need->ids = &s->tokens[pos + 1];
        need->n_ids = 1;
    }
    need->raw = s->scores == LINE_SCORES_ROWS;
    return true;
}

/* put_row() - the next unsent token of s; false when the batch has no room for it, or the KV pool
 * has no block. */
static bool put_row(struct scheduler *sc, struct flight *f, struct sequence *s)
{
    uint32_t pos = s->n_sent;
    struct score_need need;
    bool wanted = state_need(s, pos, &need);
    if (f->n_rows >= sc->rows_now) return false;
    if (block_tables_begins(s) && !block_tables_grow(sc->config.tables, s)) return false;
    if (!fits(sc, f, wanted ? &need : NULL, block_tables_untold(sc->config.tables, s)))
        return false;
    f->n_commands += block_tables_tell(sc->config.tables, s, f->commands + f->n_commands);
    uint32_t r = f->n_rows++;
    f->token[r] = s->tokens[pos];
    f->seq[r] = s->slot;
    f->pos[r] = pos;
    f->wanted[r] = wanted;
    f->seen += pos + 1;
    if (wanted) {
        count_need(sc, f, &need);
        f->needs[f->n_wanted] = need;
        f->heads[f->n_wanted++] = (struct flight_head){.sequence = s, .position = pos};
    }
    s->n_sent++;
    return true;
}

/* put_rows() - up to n next tokens of s, side by side. Returns how many. */
static uint32_t put_rows(struct scheduler *sc, struct flight *f, struct sequence *s, uint32_t n)
{
    struct flight_part part = {.sequence = s, .first = f->n_rows};
    block_tables_advance(sc->config.tables, s);
    while (part.n_rows < n && s->n_sent < s->n_tokens && put_row(sc, f, s)) part.n_rows++;
    if (part.n_rows == 0) return 0;
    block_tables_note_full(sc->config.tables, s);
    f->parts[f->n_parts++] = part;
    s->in_flight++;
    return part.n_rows;
}

static void put_fetches(struct scheduler *sc, struct flight *f)
{
    for (uint32_t slot = 0; slot < sc->config.n_seqs; slot++) {
        struct sequence *s = sc->slots[slot];
        if (s == NULL || !s->fetch || f->n_fetches == sc->config.credits) continue;
        struct msg_fetch *fetch = &f->fetches[f->n_fetches];
        *fetch = (struct msg_fetch){.batch_id = s->fetch_batch, .wanted = s->fetch_wanted};
        sampler_need(s->sampler, s->n_tokens, &fetch->need);
        fetch->need.count = 0;
        fetch->need.mass = fetch->need.ratio = 0;
        if (!fits(sc, f, &fetch->need, 0)) return;
        count_need(sc, f, &fetch->need);
        f->fetch_heads[f->n_fetches++] =
            (struct flight_head){.sequence = s, .position = s->n_tokens - 1};
        s->fetch = false;
        s->in_flight++;
    }
}

uint32_t scheduler_groups(uint32_t n_lanes, uint32_t n_decoding)
{
    return n_decoding < n_lanes ? n_decoding : n_lanes;
}

static void put_decode_rows(struct scheduler *sc, struct flight *f, uint32_t decode_in_air)
{
    uint32_t n_decoding = 0, n_seqs = sc->config.n_seqs;
    for (uint32_t slot = 0; slot < n_seqs; slot++)
        n_decoding += sc->slots[slot] != NULL && sc->slots[slot]->state == SEQUENCE_DECODE;
    uint32_t n_lanes = sc->config.n_lanes > 0 ? sc->config.n_lanes : sc->config.n_stages;
    uint32_t groups = scheduler_groups(n_lanes, n_decoding);
    if (decode_in_air >= groups) return;
    uint32_t share = (n_decoding + groups - 1) / groups;
    for (uint32_t i = 0; i < n_seqs && f->n_rows < share; i++) {
        uint32_t slot = (sc->turn + i) % n_seqs;
        struct sequence *s = sc->slots[slot];
        if (s == NULL || s->state != SEQUENCE_DECODE || !is_ready(s)) continue;
        if (put_rows(sc, f, s, 1) > 0) f->decodes = true;
    }
    sc->turn = (sc->turn + 1) % n_seqs;
}

uint64_t scheduler_chunk_max(uint32_t n_stages, uint64_t waiting)
{
    enum { STEP = 32 };
    return n_stages == 1 ? waiting : (waiting / n_stages + STEP - 1) / STEP * STEP;
}

/* choose_chunk() - prompt rows of this batch. Prompts count as a whole, not by what is left of
 * them: chunks of one size are best. */
static uint32_t choose_chunk(const struct scheduler *sc)
{
    uint64_t rows = 0, seen = 0, n_decoding = 0;
    if (sc->config.chunk > 0) return sc->config.chunk;
    for (uint32_t slot = 0; slot < sc->config.n_seqs; slot++) {
        const struct sequence *s = sc->slots[slot];
        if (s == NULL) continue;
        n_decoding += s->state == SEQUENCE_DECODE && chooses(s);
        if (s->state != SEQUENCE_PROMPT) continue;
        const uint64_t n = s->n_tokens - s->n_begun;
        rows += n;
        seen += n * (s->n_begun + n / 2);
    }
    if (rows == 0) return 0;
    const double seen_each = (double)seen / (double)rows;
    uint64_t chunk = cost_model_chunk(sc->config.costs, rows, seen_each);
    if (n_decoding > 0) {
        uint64_t beside = cost_model_beside(sc->config.costs, n_decoding, seen_each);
        if (beside < chunk) chunk = beside;
    }
    return chunk < sc->config.rows_max ? (uint32_t)chunk : sc->config.rows_max;
}

static void put_prompt_rows(struct scheduler *sc, struct flight *f)
{
    uint32_t budget = choose_chunk(sc);
    struct sequence *s = next_prompt(sc, -1);
    for (; s != NULL && budget > 0; s = next_prompt(sc, s->request)) {
        budget -= put_rows(sc, f, s, budget);
        if (s->n_sent < s->n_tokens) return;
        s->state = SEQUENCE_DECODE;
    }
}

bool scheduler_fill(struct scheduler *sc, struct flight *f, uint32_t in_air, uint32_t decode_in_air)
{
    /* The last stage keeps the score rows of all batches from the oldest needed one on, in as many
     * places as there are credits. */
    const uint64_t in_air_from = f->id - in_air, held_from = scheduler_oldest_held(sc);
    const uint64_t kept_from = in_air_from < held_from ? in_air_from : held_from;
    const bool has_credit = f->id - kept_from < sc->config.credits;
    block_tables_begin_batch(sc->config.tables, f->id);
    if (has_credit) {
        admit(sc);
        make_room(sc);
    }
    memcpy(f->commands, sc->trims, sc->n_trims * sizeof *sc->trims);
    f->n_commands = sc->n_trims;
    put_fetches(sc, f);
    if (has_credit) {
        put_decode_rows(sc, f, decode_in_air);
        put_prompt_rows(sc, f);
    }
    bool is_empty = f->n_rows == 0 && f->n_fetches == 0;
    BUG_IF(is_empty && in_air == 0 && sc->n_working > 0,
           "the line stands still with requests in it");
    if (is_empty) return false;
    sc->n_trims = 0;
    return true;
}

void scheduler_limit_rows(struct scheduler *sc, uint32_t rows)
{
    BUG_IF(rows == 0 || rows > sc->config.rows_max, "a batch of more rows than it has places");
    sc->rows_now = rows;
}

void scheduler_finish(struct scheduler *sc, struct sequence *s, enum line_finish how)
{
    sc->n_working--;
    if (s->state == SEQUENCE_QUEUED) request_queue_remove(&sc->queue, s);
    leave(sc, s);
    s->state = SEQUENCE_DONE;
    s->finish = how;
    if (sc->done_last != NULL)
        sc->done_last->next_done = s;
    else
        sc->done_first = s;
    sc->done_last = s;
}

/* forget() - nobody needs s any more once it is told and no batch holds rows of it. */
static void forget(struct scheduler *sc, struct sequence *s)
{
    if (!s->told || s->in_flight > 0) return;
    sc->sequences[s->request] = NULL;
    sc->n_live--;
    sequence_close(s);
}

struct sequence *scheduler_next_done(struct scheduler *sc)
{
    struct sequence *s = sc->done_first;
    if (s == NULL) return NULL;
    sc->done_first = s->next_done;
    if (sc->done_first == NULL) sc->done_last = NULL;
    return s;
}

void scheduler_tell_done(struct scheduler *sc, struct sequence *s)
{
    s->told = true;
    forget(sc, s);
}

/* note_home() - the rows of a part have been answered. */
static void note_home(const struct flight *f, const struct flight_part *part)
{
    uint32_t end = f->pos[part->first] + part->n_rows;
    if (end > part->sequence->n_home) part->sequence->n_home = end;
}

void scheduler_land(struct scheduler *sc, struct flight *f)
{
    for (uint32_t i = 0; i < f->n_parts + f->n_fetches; i++) {
        struct sequence *s =
            i < f->n_parts ? f->parts[i].sequence : f->fetch_heads[i - f->n_parts].sequence;
        s->in_flight--;
        if (i < f->n_parts) note_home(f, &f->parts[i]);
        if (ends_by_itself(s) && s->in_flight == 0) scheduler_finish(sc, s, LINE_FINISH_LENGTH);
        forget(sc, s);
    }
    f->id = 0;
}

uint64_t scheduler_oldest_held(const struct scheduler *sc)
{
    uint64_t oldest = UINT64_MAX;
    for (uint32_t slot = 0; slot < sc->config.n_seqs; slot++) {
        const struct sequence *s = sc->slots[slot];
        if (s != NULL && s->held_batch != 0 && s->held_batch < oldest) oldest = s->held_batch;
    }
    return oldest;
}

uint64_t scheduler_preemptions(const struct scheduler *sc)
{
    return sc->n_preempted;
}

bool scheduler_idle(const struct scheduler *sc)
{
    return sc->n_live == 0;
}

bool scheduler_has_work(const struct scheduler *sc)
{
    return sc->n_working > 0;
}
