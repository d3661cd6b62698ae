/* scheduler - see scheduler.h. */
#include "coordinator/line/scheduler.h"

#include "proto/frame_sizes.h"

#include <stdlib.h>
#include <string.h>

/* The packed size of a batch's parts at most, to keep its head inside BATCH_HEAD_MAX. */
enum { ROW_BYTES = 24, COMMAND_BYTES = 24, NEED_BYTES = 64, ADJUST_BYTES = 16, HEAD_SPARE = 4096 };

struct scheduler {
    struct scheduler_config config;
    struct sequence **sequences; /* [n_sequences] by request; NULL once gone */
    uint32_t n_sequences, sequences_max;
    uint32_t n_live;       /* added and not yet gone */
    uint32_t n_working;    /* added and not finished */
    uint32_t next_queued;  /* no queued sequence before it */
    struct sequence *done_first, *done_last; /* finished, to be told */
    struct sequence **slots; /* [n_seqs] who is in the line */
    uint32_t turn;           /* slot that a decode batch begins with */
    struct kv_command *trims; /* [n_seqs] of sequences that left since the last batch */
    uint32_t n_trims;
};

int scheduler_open(struct scheduler **out, const struct scheduler_config *config, struct err *err)
{
    struct scheduler *sc = calloc(1, sizeof *sc);
    CHECK(sc != NULL, err, ERR_MEMORY, "no memory for the scheduler");
    sc->config = *config;
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

struct flight_limits scheduler_limits(const struct scheduler *sc)
{
    const struct scheduler_config *c = &sc->config;
    return (struct flight_limits){.rows_max = c->rows_max,
                                  .wanted_max = c->wanted_max,
                                  .commands_max = c->rows_max * c->n_kv_classes + c->n_seqs,
                                  .credits = c->credits,
                                  .n_vocab = c->n_vocab};
}

/* admit() - queued sequences take the free slots, first come first served. */
static void admit(struct scheduler *sc)
{
    for (uint32_t slot = 0; slot < sc->config.n_seqs; slot++) {
        if (sc->slots[slot] != NULL) continue;
        struct sequence *s = NULL;
        while (s == NULL && sc->next_queued < sc->n_sequences) {
            s = sc->sequences[sc->next_queued++];
            if (s != NULL && s->state != SEQUENCE_QUEUED) s = NULL;
        }
        if (s == NULL) return;
        s->state = SEQUENCE_PROMPT;
        s->slot = slot;
        sc->slots[slot] = s;
    }
}

/* fits() - would this many more rows, commands, needs and adjustments stay inside the limits of a frame? */
static bool fits(const struct scheduler *sc, const struct flight *f, const struct score_need *need)
{
    const struct scheduler_config *c = &sc->config;
    uint32_t n_adjusts = f->n_adjusts, n_pairs = f->n_pairs, n_raw = f->n_raw_rows;
    if (need != NULL) {
        n_adjusts += need->n_adjust;
        n_pairs += need->count > 0 ? need->count : c->n_vocab;
        n_raw += need->raw ? 1 : 0;
        if (f->n_wanted >= c->wanted_max) return false;
    }
    size_t head = HEAD_SPARE + (size_t)(f->n_rows + 1) * ROW_BYTES + (size_t)(f->n_commands + 1) * COMMAND_BYTES +
                  (size_t)(f->n_wanted + f->n_fetches + 1) * NEED_BYTES + (size_t)n_adjusts * ADJUST_BYTES;
    return head <= BATCH_HEAD_MAX && n_pairs <= frame_pairs_max(c->wanted_max + c->credits, c->n_vocab) &&
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
    if (pos + 1 < s->n_prompt) {
        if (s->scores == LINE_SCORES_NONE) return false;
        need->raw = s->scores == LINE_SCORES_ROWS;
        if (s->scores == LINE_SCORES_NEXT) {
            need->ids = &s->tokens[pos + 1];
            need->n_ids = 1;
        }
        return true;
    }
    if (s->scores == LINE_SCORES_ROWS) {
        need->raw = true;
        return true;
    }
    if (s->sampler == NULL || s->n_tokens >= s->capacity) return false;
    sampler_need(s->sampler, pos + 1, need);
    return true;
}

/* give_passed() - blocks of a window that no row from here on sees are free: whoever maps them does so in this batch
 * or a later one, and all rows that see them are in earlier ones. */
static void give_passed(struct scheduler *sc, struct sequence *s)
{
    for (uint32_t c = 0; c < sc->config.n_kv_classes; c++) {
        struct sequence_blocks *b = &s->blocks[c];
        uint32_t window = sc->config.window[c];
        if (window == 0 || s->n_sent < window) continue;
        uint32_t first_seen = (s->n_sent - window + 1) / KV_BLOCK_POSITIONS;
        while (b->first < b->n && b->first < first_seen)
            block_allocator_give(sc->config.blocks[c], b->block[b->first++]);
    }
}

/* map_blocks() - the next block of s in every class; the pools are sized so that there is one. */
static void map_blocks(struct scheduler *sc, struct flight *f, struct sequence *s)
{
    for (uint32_t c = 0; c < sc->config.n_kv_classes; c++) {
        struct sequence_blocks *b = &s->blocks[c];
        uint32_t block;
        BUG_IF(!block_allocator_take(sc->config.blocks[c], &block), "a KV pool smaller than its sequences");
        f->commands[f->n_commands++] =
            (struct kv_command){.op = KV_MAP, .kv_class = c, .seq = s->slot, .index = b->n, .block = block};
        b->block[b->n++] = block;
    }
}

/* put_row() - the next unsent token of s; false when the batch has no room for it. */
static bool put_row(struct scheduler *sc, struct flight *f, struct sequence *s)
{
    uint32_t pos = s->n_sent;
    struct score_need need;
    bool wanted = state_need(s, pos, &need);
    if (f->n_rows == sc->config.rows_max || !fits(sc, f, wanted ? &need : NULL)) return false;
    if (pos % KV_BLOCK_POSITIONS == 0) map_blocks(sc, f, s);
    uint32_t r = f->n_rows++;
    f->token[r] = s->tokens[pos];
    f->seq[r] = s->slot;
    f->pos[r] = pos;
    f->wanted[r] = wanted;
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
    give_passed(sc, s);
    while (part.n_rows < n && s->n_sent < s->n_tokens && put_row(sc, f, s)) part.n_rows++;
    if (part.n_rows == 0) return 0;
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
        if (!fits(sc, f, &fetch->need)) return;
        count_need(sc, f, &fetch->need);
        f->fetch_heads[f->n_fetches++] =
            (struct flight_head){.sequence = s, .position = s->n_tokens - 1};
        s->fetch = false;
        s->in_flight++;
    }
}

static bool ready_to_decode(const struct sequence *s)
{
    return s != NULL && s->state == SEQUENCE_DECODE && s->in_flight == 0 && s->held_batch == 0;
}

uint32_t scheduler_groups(uint32_t n_stages, uint32_t n_decoding)
{
    uint32_t groups = (n_decoding + SCHEDULER_GROUP_ROWS - 1) / SCHEDULER_GROUP_ROWS;
    return groups < n_stages ? groups : n_stages;
}

static void put_decode_rows(struct scheduler *sc, struct flight *f, uint32_t decode_in_air)
{
    uint32_t n_decoding = 0, n_seqs = sc->config.n_seqs;
    for (uint32_t slot = 0; slot < n_seqs; slot++)
        n_decoding += sc->slots[slot] != NULL && sc->slots[slot]->state == SEQUENCE_DECODE;
    uint32_t groups = scheduler_groups(sc->config.n_stages, n_decoding);
    if (decode_in_air >= groups) return;
    uint32_t share = (n_decoding + groups - 1) / groups;
    for (uint32_t i = 0; i < n_seqs && f->n_rows < share; i++) {
        uint32_t slot = (sc->turn + i) % n_seqs;
        struct sequence *s = sc->slots[slot];
        if (!ready_to_decode(s)) continue;
        if (put_rows(sc, f, s, 1) == 0) break;
        f->decodes = true;
    }
    sc->turn = (sc->turn + 1) % n_seqs;
}

uint64_t scheduler_chunk(uint32_t n_stages, uint64_t waiting)
{
    enum { CHUNK_MIN = 32, CHUNKS_PER_STAGE = 2 };
    if (n_stages == 1) return waiting;
    uint64_t chunk = waiting / (CHUNKS_PER_STAGE * (uint64_t)n_stages);
    chunk = (chunk + CHUNK_MIN - 1) / CHUNK_MIN * CHUNK_MIN;
    return chunk > CHUNK_MIN ? chunk : CHUNK_MIN;
}

/* choose_chunk() - prompt rows of this batch. */
static uint32_t choose_chunk(const struct scheduler *sc)
{
    if (sc->config.chunk > 0) return sc->config.chunk;
    uint64_t waiting = 0;
    for (uint32_t slot = 0; slot < sc->config.n_seqs; slot++) {
        const struct sequence *s = sc->slots[slot];
        if (s != NULL && s->state == SEQUENCE_PROMPT) waiting += s->n_prompt - s->n_sent;
    }
    uint64_t chunk = scheduler_chunk(sc->config.n_stages, waiting);
    return chunk < sc->config.rows_max ? (uint32_t)chunk : sc->config.rows_max;
}

static void put_prompt_rows(struct scheduler *sc, struct flight *f)
{
    uint32_t budget = choose_chunk(sc);
    for (uint32_t slot = 0; slot < sc->config.n_seqs && budget > 0; slot++) {
        struct sequence *s = sc->slots[slot];
        if (s == NULL || s->state != SEQUENCE_PROMPT) continue;
        budget -= put_rows(sc, f, s, budget);
        if (s->n_sent < s->n_prompt) return;
        s->state = SEQUENCE_DECODE;
    }
}

bool scheduler_fill(struct scheduler *sc, struct flight *f, uint32_t in_air, uint32_t decode_in_air)
{
    admit(sc);
    memcpy(f->commands, sc->trims, sc->n_trims * sizeof *sc->trims);
    f->n_commands = sc->n_trims;
    put_fetches(sc, f);
    uint32_t held = 0;
    for (uint32_t slot = 0; slot < sc->config.n_seqs; slot++)
        held += sc->slots[slot] != NULL && sc->slots[slot]->held_batch != 0;
    if (in_air + held < sc->config.credits) {
        put_decode_rows(sc, f, decode_in_air);
        put_prompt_rows(sc, f);
    }
    if (f->n_rows == 0 && f->n_fetches == 0) return false;
    sc->n_trims = 0;
    return true;
}

/* leave() - s is out of the line: its blocks and its slot are free for whoever comes behind it in the stream. */
static void leave(struct scheduler *sc, struct sequence *s)
{
    if (s->slot == SEQUENCE_NO_SLOT) return;
    for (uint32_t c = 0; c < sc->config.n_kv_classes; c++)
        for (struct sequence_blocks *b = &s->blocks[c]; b->first < b->n; b->first++)
            block_allocator_give(sc->config.blocks[c], b->block[b->first]);
    if (s->n_sent > 0)
        sc->trims[sc->n_trims++] = (struct kv_command){.op = KV_TRIM, .seq = s->slot};
    sc->slots[s->slot] = NULL;
    s->slot = SEQUENCE_NO_SLOT;
}

void scheduler_finish(struct scheduler *sc, struct sequence *s, enum line_finish how)
{
    sc->n_working--;
    s->state = SEQUENCE_DONE;
    s->finish = how;
    s->fetch = false;
    s->held_batch = 0;
    leave(sc, s);
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

/* prompt_done() - all rows are home and no token will be chosen. */
static bool prompt_done(const struct sequence *s)
{
    bool chooses = s->sampler != NULL && s->n_prompt < s->capacity;
    return s->state == SEQUENCE_DECODE && s->in_flight == 0 && s->n_sent == s->n_prompt && !chooses;
}

void scheduler_land(struct scheduler *sc, struct flight *f)
{
    for (uint32_t i = 0; i < f->n_parts + f->n_fetches; i++) {
        struct sequence *s = i < f->n_parts ? f->parts[i].sequence : f->fetch_heads[i - f->n_parts].sequence;
        s->in_flight--;
        if (prompt_done(s)) scheduler_finish(sc, s, LINE_FINISH_LENGTH);
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

bool scheduler_idle(const struct scheduler *sc)
{
    return sc->n_live == 0;
}

bool scheduler_has_work(const struct scheduler *sc)
{
    return sc->n_working > 0;
}
