/* codec_data - BATCH and RESULT on their way to the wire and back.
 *
 * Packing lays the members of a list side by side (parallel arrays); a list that already lies so is
 * written from where it is. Unpacking does the reverse and checks everything.
 * Stations: codec.c before and after; line/pipeline and worker/exec beyond it. */
#include "proto/codec_wire.h"

#include <inttypes.h>
#include <math.h>

enum {
    /* Bytes that one entry takes on the wire at least: see the lists in tandem.proto. */
    WIRE_COMMAND_MIN = 5,
    WIRE_NEED_MIN = 16,
    WIRE_ADJUST_MIN = 9,
    WIRE_FETCH_MIN = 9,
    WIRE_HEAD_MIN = 10,
    FLAG_WHOLE = 1,
    FLAG_RAW = 2,
};

CODEC_GROWTH_HOLDS(struct kv_command, WIRE_COMMAND_MIN);
CODEC_GROWTH_HOLDS(struct score_need, WIRE_NEED_MIN);
CODEC_GROWTH_HOLDS(struct score_adjust, WIRE_ADJUST_MIN);
CODEC_GROWTH_HOLDS(struct msg_fetch, WIRE_NEED_MIN + WIRE_FETCH_MIN);
CODEC_GROWTH_HOLDS(struct score_head, WIRE_HEAD_MIN);

/* ---- BATCH ---- */

/* GIVE(w, field, p, n) - a parallel array of a generated struct. */
#define GIVE(w, field, p, n) ((w)->field = (p), (w)->n_##field = (n))

static int commands_to_wire(struct arena *a, const struct batch *b, Wire__Batch *w, struct err *err)
{
    size_t n = b->n_commands;
    TAKE(w->command_op, a, n);
    TAKE(w->command_seq, a, n);
    TAKE(w->command_index, a, n);
    TAKE(w->command_block, a, n);
    TAKE(w->command_class, a, n);
    for (size_t i = 0; i < n; i++) {
        w->command_op[i] = b->commands[i].op;
        w->command_seq[i] = b->commands[i].seq;
        w->command_index[i] = b->commands[i].index;
        w->command_block[i] = b->commands[i].block;
        w->command_class[i] = b->commands[i].kv_class;
    }
    w->n_command_op = w->n_command_seq = w->n_command_index = n;
    w->n_command_block = w->n_command_class = n;
    return ERR_NONE;
}

/* The k-th need of a batch: the wanted rows' come first, then the fetches'. */
static const struct score_need *need_at(const struct msg_batch *b, size_t k)
{
    size_t n_wanted = b->batch.n_wanted;
    return k < n_wanted ? &b->needs[k] : &b->fetches[k - n_wanted].need;
}

static int adjusts_to_wire(struct arena *a, const struct msg_batch *b, Wire__Batch *w,
                           struct err *err)
{
    size_t n_needs = (size_t)b->batch.n_wanted + b->n_fetches;
    size_t n_adjust = 0, n_ids = 0;
    for (size_t k = 0; k < n_needs; k++) {
        n_adjust += need_at(b, k)->n_adjust;
        n_ids += need_at(b, k)->n_ids;
    }
    TAKE(w->adjust_id, a, n_adjust);
    TAKE(w->adjust_repeat, a, n_adjust);
    TAKE(w->adjust_delta, a, n_adjust);
    TAKE(w->ids, a, n_ids);
    for (size_t k = 0; k < n_needs; k++) {
        const struct score_need *need = need_at(b, k);
        for (size_t i = 0; i < need->n_adjust; i++) {
            size_t at = w->n_adjust_id++;
            w->adjust_id[at] = (uint32_t)need->adjust[i].id;
            w->adjust_repeat[at] = need->adjust[i].repeat;
            w->adjust_delta[at] = need->adjust[i].delta;
        }
        for (size_t i = 0; i < need->n_ids; i++) w->ids[w->n_ids++] = (uint32_t)need->ids[i];
    }
    w->n_adjust_repeat = w->n_adjust_delta = w->n_adjust_id;
    return ERR_NONE;
}

static int needs_to_wire(struct arena *a, const struct msg_batch *b, Wire__Batch *w,
                         struct err *err)
{
    size_t n = (size_t)b->batch.n_wanted + b->n_fetches;
    TAKE(w->need_temperature, a, n);
    TAKE(w->need_count, a, n);
    TAKE(w->need_mass, a, n);
    TAKE(w->need_ratio, a, n);
    TAKE(w->need_raw, a, n);
    TAKE(w->need_n_adjust, a, n);
    TAKE(w->need_n_ids, a, n);
    for (size_t k = 0; k < n; k++) {
        const struct score_need *need = need_at(b, k);
        w->need_temperature[k] = need->temperature;
        w->need_count[k] = need->count;
        w->need_mass[k] = need->mass;
        w->need_ratio[k] = need->ratio;
        w->need_raw[k] = need->raw;
        w->need_n_adjust[k] = need->n_adjust;
        w->need_n_ids[k] = need->n_ids;
    }
    w->n_need_temperature = w->n_need_count = w->n_need_mass = w->n_need_ratio = n;
    w->n_need_raw = w->n_need_n_adjust = w->n_need_n_ids = n;
    return adjusts_to_wire(a, b, w, err);
}

TO_WIRE(batch)
{
    const struct msg_batch *b = &m->u.batch;
    const struct batch *rows = &b->batch;
    Wire__Batch *w = wire;
    w->id = b->id;
    w->release_before = b->release_before;
    w->idle_ns = b->idle_ns;
    w->as_f32 = b->as_f32;
    GIVE(w, token, (uint32_t *)rows->token, rows->n_rows);
    GIVE(w, seq, (uint32_t *)rows->seq, rows->n_rows);
    GIVE(w, pos, (uint32_t *)rows->pos, rows->n_rows);
    w->wanted = (ProtobufCBinaryData){.len = rows->n_rows, .data = (uint8_t *)rows->wanted};
    TRY(commands_to_wire(&c->out, rows, w, err));
    TRY(needs_to_wire(&c->out, b, w, err));

    TAKE(w->fetch_batch, &c->out, b->n_fetches);
    TAKE(w->fetch_wanted, &c->out, b->n_fetches);
    for (size_t i = 0; i < b->n_fetches; i++) {
        w->fetch_batch[i] = b->fetches[i].batch_id;
        w->fetch_wanted[i] = b->fetches[i].wanted;
    }
    w->n_fetch_batch = w->n_fetch_wanted = b->n_fetches;
    return ERR_NONE;
}

/* Tokens, sequences, positions and blocks out of range are the stage's to refuse: it knows its
 * limits. */
static int rows_from_wire(const Wire__Batch *w, struct batch *b, struct err *err)
{
    size_t n = w->n_token;
    TRY(check_number("BATCH.token entries", n, 0, CODEC_NUMBER_MAX, err));
    TRY(check_entries("BATCH.seq", w->n_seq, n, err));
    TRY(check_entries("BATCH.pos", w->n_pos, n, err));
    TRY(check_entries("BATCH.wanted", w->wanted.len, n, err));
    TRY(check_numbers("BATCH.token", w->token, n, INT32_MAX, err));
    for (size_t i = 0; i < n; i++) b->n_wanted += w->wanted.data[i] != 0;
    for (size_t i = 1; i < n; i++)
        CHECK(w->seq[i] != w->seq[i - 1] || w->pos[i] - w->pos[i - 1] == 1, err, ERR_PEER,
              "BATCH.pos[%zu] is %" PRIu32 " after %" PRIu32 " of the same sequence", i, w->pos[i],
              w->pos[i - 1]);
    b->n_rows = (uint32_t)n;
    b->token = (const int32_t *)w->token;
    b->seq = w->seq;
    b->pos = w->pos;
    b->wanted = w->wanted.data;
    return ERR_NONE;
}

static int commands_from_wire(struct arena *a, const Wire__Batch *w, struct batch *b,
                              struct err *err)
{
    size_t n = w->n_command_op;
    TRY(check_entries("BATCH.command_seq", w->n_command_seq, n, err));
    TRY(check_entries("BATCH.command_index", w->n_command_index, n, err));
    TRY(check_entries("BATCH.command_block", w->n_command_block, n, err));
    TRY(check_entries("BATCH.command_class", w->n_command_class, n, err));
    TRY(check_numbers("BATCH.command_op", w->command_op, n, KV_TRIM, err));
    struct kv_command *commands;
    TAKE(commands, a, n);
    for (size_t i = 0; i < n; i++)
        commands[i] = (struct kv_command){
            .op = (enum kv_op)w->command_op[i],
            .seq = w->command_seq[i],
            .index = w->command_index[i],
            .block = w->command_block[i],
            .kv_class = w->command_class[i],
        };
    b->commands = commands;
    b->n_commands = (uint32_t)n;
    return ERR_NONE;
}

/* Lengths of the parallel arrays of n needs, and what they cut. */
static int check_needs(const Wire__Batch *w, size_t n, struct err *err)
{
    TRY(check_entries("BATCH.need_temperature", w->n_need_temperature, n, err));
    TRY(check_entries("BATCH.need_count", w->n_need_count, n, err));
    TRY(check_entries("BATCH.need_mass", w->n_need_mass, n, err));
    TRY(check_entries("BATCH.need_ratio", w->n_need_ratio, n, err));
    TRY(check_entries("BATCH.need_raw", w->n_need_raw, n, err));
    TRY(check_entries("BATCH.need_n_adjust", w->n_need_n_adjust, n, err));
    TRY(check_entries("BATCH.need_n_ids", w->n_need_n_ids, n, err));
    TRY(check_numbers("BATCH.need_raw", w->need_raw, n, 1, err));
    TRY(check_entries("BATCH.adjust_repeat", w->n_adjust_repeat, w->n_adjust_id, err));
    TRY(check_entries("BATCH.adjust_delta", w->n_adjust_delta, w->n_adjust_id, err));
    TRY(check_sum("BATCH.adjust_id", w->n_adjust_id, w->need_n_adjust, n, err));
    TRY(check_sum("BATCH.ids", w->n_ids, w->need_n_ids, n, err));
    TRY(check_numbers("BATCH.adjust_id", w->adjust_id, w->n_adjust_id, INT32_MAX, err));
    TRY(check_numbers("BATCH.ids", w->ids, w->n_ids, INT32_MAX, err));
    TRY(check_scores("BATCH.adjust_delta", w->adjust_delta, w->n_adjust_delta, err));
    TRY(check_positive("BATCH.adjust_repeat", w->adjust_repeat, w->n_adjust_repeat, err));
    TRY(check_positive("BATCH.need_temperature", w->need_temperature, n, err));
    TRY(check_not_negative("BATCH.need_mass", w->need_mass, n, err));
    TRY(check_not_negative("BATCH.need_ratio", w->need_ratio, n, err));
    return ERR_NONE;
}

/* n needs, checked by check_needs(), as structs; the adjustments of each must ascend. */
static int needs_from_wire(struct arena *a, const Wire__Batch *w, size_t n, struct score_need **out,
                           struct err *err)
{
    struct score_need *needs;
    struct score_adjust *adjust;
    TAKE(needs, a, n);
    TAKE(adjust, a, w->n_adjust_id);
    size_t at_adjust = 0, at_ids = 0;
    for (size_t k = 0; k < n; k++) {
        needs[k] = (struct score_need){
            .temperature = w->need_temperature[k],
            .count = w->need_count[k],
            .mass = w->need_mass[k],
            .ratio = w->need_ratio[k],
            .raw = w->need_raw[k] != 0,
            .adjust = adjust + at_adjust,
            .n_adjust = w->need_n_adjust[k],
            .ids = w->n_ids > 0 ? (const int32_t *)w->ids + at_ids : NULL,
            .n_ids = w->need_n_ids[k],
        };
        for (size_t i = 0; i < needs[k].n_adjust; i++) {
            size_t at = at_adjust + i;
            CHECK(i == 0 || w->adjust_id[at] > w->adjust_id[at - 1], err, ERR_PEER,
                  "BATCH.adjust_id[%zu] is %" PRIu32 " after %" PRIu32 ", want ascending ids", at,
                  w->adjust_id[at], w->adjust_id[at - 1]);
            adjust[at] = (struct score_adjust){
                .id = (int32_t)w->adjust_id[at],
                .repeat = w->adjust_repeat[at],
                .delta = w->adjust_delta[at],
            };
        }
        at_adjust += needs[k].n_adjust;
        at_ids += needs[k].n_ids;
    }
    *out = needs;
    return ERR_NONE;
}

static int fetches_from_wire(struct arena *a, const Wire__Batch *w, const struct score_need *needs,
                             struct msg_batch *b, struct err *err)
{
    size_t n = w->n_fetch_batch;
    struct msg_fetch *fetches;
    TAKE(fetches, a, n);
    for (size_t i = 0; i < n; i++) {
        CHECK(w->fetch_batch[i] >= b->release_before && w->fetch_batch[i] < b->id, err, ERR_PEER,
              "BATCH.fetch_batch[%zu] is %" PRIu64 ", want %" PRIu64 " or later, before %" PRIu64,
              i, w->fetch_batch[i], b->release_before, b->id);
        fetches[i] = (struct msg_fetch){
            .batch_id = w->fetch_batch[i],
            .wanted = w->fetch_wanted[i],
            .need = needs[i],
        };
    }
    b->fetches = fetches;
    b->n_fetches = (uint32_t)n;
    return ERR_NONE;
}

FROM_WIRE(batch)
{
    const Wire__Batch *w = wire;
    struct msg_batch *b = &m->u.batch;
    *b = (struct msg_batch){.id = w->id,
                            .release_before = w->release_before,
                            .idle_ns = w->idle_ns,
                            .as_f32 = w->as_f32};
    TRY(check_number("BATCH.id", w->id, 1, UINT64_MAX, err));
    TRY(check_number("BATCH.release_before", w->release_before, 0, w->id, err));
    TRY(check_number("BATCH.as_f32", w->as_f32, 0, 1, err));
    TRY(rows_from_wire(w, &b->batch, err));
    TRY(commands_from_wire(&c->in, w, &b->batch, err));

    TRY(check_entries("BATCH.fetch_wanted", w->n_fetch_wanted, w->n_fetch_batch, err));
    size_t n_needs = b->batch.n_wanted + w->n_fetch_batch;
    struct score_need *needs = NULL;
    TRY(check_needs(w, n_needs, err));
    TRY(needs_from_wire(&c->in, w, n_needs, &needs, err));
    b->needs = needs;
    TRY(fetches_from_wire(&c->in, w, needs + b->batch.n_wanted, b, err));

    uint64_t row_bytes = c->view->row_bytes;
    uint32_t n_rows = b->batch.n_rows;
    CHECK(n_rows == 0 ? row_bytes == 0 : row_bytes % n_rows == 0, err, ERR_PEER,
          "BATCH %" PRIu64 " of %" PRIu32 " rows has %" PRIu64 " bytes of rows behind it", b->id,
          n_rows, row_bytes);
    return ERR_NONE;
}

/* ---- RESULT ---- */

static bool follows(const void *next, const void *list, size_t bytes)
{
    return (uintptr_t)next == (uintptr_t)list + bytes;
}

/* The pairs and id scores of all heads follow each other in memory: what exec's buffers
 * look like. */
static bool heads_are_joined(const struct msg_result *r, bool have_ids)
{
    for (uint32_t k = 1; k < r->n_heads; k++) {
        const struct score_head *a = &r->heads[k - 1], *b = &r->heads[k];
        if (!follows(b->ids, a->ids, a->n * sizeof *a->ids)) return false;
        if (!follows(b->scores, a->scores, a->n * sizeof *a->scores)) return false;
        if (have_ids && !follows(b->id_scores, a->id_scores, a->n_ids * sizeof *a->id_scores))
            return false;
    }
    return true;
}

/* The lists of all heads, one after the other. */
static int join_heads(struct arena *a, const struct msg_result *r, Wire__Result *w, struct err *err)
{
    TAKE(w->token, a, w->n_token);
    TAKE(w->score, a, w->n_score);
    TAKE(w->id_score, a, w->n_id_score);
    size_t pair = 0, id = 0;
    for (uint32_t k = 0; k < r->n_heads; k++) {
        const struct score_head *h = &r->heads[k];
        for (uint32_t i = 0; i < h->n; i++, pair++) {
            w->token[pair] = (uint32_t)h->ids[i];
            w->score[pair] = h->scores[i];
        }
        for (uint32_t i = 0; i < h->n_ids; i++, id++) w->id_score[id] = h->id_scores[i];
    }
    return ERR_NONE;
}

TO_WIRE(result)
{
    const struct msg_result *r = &m->u.result;
    Wire__Result *w = wire;
    size_t n = r->n_heads;
    w->id = r->id;
    TAKE(w->lse, &c->out, n);
    TAKE(w->pair_count, &c->out, n);
    TAKE(w->flags, &c->out, n);
    TAKE(w->id_count, &c->out, n);
    for (size_t k = 0; k < n; k++) {
        const struct score_head *h = &r->heads[k];
        w->lse[k] = h->lse;
        w->pair_count[k] = h->n;
        w->flags[k] = (h->whole ? FLAG_WHOLE : 0u) | (h->raw != NULL ? FLAG_RAW : 0u);
        w->id_count[k] = h->n_ids;
        w->n_token += h->n;
        w->n_id_score += h->n_ids;
    }
    w->n_score = w->n_token;
    w->n_lse = w->n_pair_count = w->n_flags = n;
    w->n_id_count = w->n_id_score > 0 ? n : 0;
    if (n == 0) return ERR_NONE;
    if (!heads_are_joined(r, w->n_id_score > 0)) return join_heads(&c->out, r, w, err);
    w->token = (uint32_t *)r->heads[0].ids;
    w->score = (float *)r->heads[0].scores;
    w->id_score = (float *)r->heads[0].id_scores;
    return ERR_NONE;
}

static int check_result(const Wire__Result *w, uint32_t n_vocab, struct err *err)
{
    size_t n = w->n_lse;
    TRY(check_number("RESULT.id", w->id, 1, UINT64_MAX, err));
    TRY(check_entries("RESULT.pair_count", w->n_pair_count, n, err));
    TRY(check_entries("RESULT.flags", w->n_flags, n, err));
    if (w->n_id_count > 0) TRY(check_entries("RESULT.id_count", w->n_id_count, n, err));
    TRY(check_numbers("RESULT.flags", w->flags, n, FLAG_WHOLE | FLAG_RAW, err));
    TRY(check_entries("RESULT.score", w->n_score, w->n_token, err));
    TRY(check_sum("RESULT.token", w->n_token, w->pair_count, n, err));
    TRY(check_sum("RESULT.id_score", w->n_id_score, w->id_count, w->n_id_count, err));
    TRY(check_numbers("RESULT.token", w->token, w->n_token,
                      n_vocab > 0 ? n_vocab - 1 : (uint32_t)INT32_MAX, err));
    TRY(check_scores("RESULT.score", w->score, w->n_score, err));
    TRY(check_scores("RESULT.id_score", w->id_score, w->n_id_score, err));
    for (size_t k = 0; k < n; k++)
        CHECK(w->lse[k] < INFINITY, err, ERR_PEER, "RESULT.lse[%zu] is %g, want a number", k,
              w->lse[k]);

    return ERR_NONE;
}

FROM_WIRE(result)
{
    const Wire__Result *w = wire;
    TRY(check_result(w, c->n_vocab, err));
    size_t n = w->n_lse, at_pairs = 0, at_ids = 0;
    const float *rows = (const float *)(const void *)c->view->rows;
    uint64_t raw_bytes = 0;
    struct score_head *heads;
    TAKE(heads, &c->in, n);
    for (size_t k = 0; k < n; k++) {
        struct score_head *h = &heads[k];
        *h = (struct score_head){
            .lse = w->lse[k],
            .whole = (w->flags[k] & FLAG_WHOLE) != 0,
            .n = w->pair_count[k],
            .n_ids = w->n_id_count > 0 ? w->id_count[k] : 0,
        };
        if (h->n > 0) h->ids = (const int32_t *)w->token + at_pairs;
        if (h->n > 0) h->scores = w->score + at_pairs;
        if (h->n_ids > 0) h->id_scores = w->id_score + at_ids;
        at_pairs += h->n;
        at_ids += h->n_ids;
        if ((w->flags[k] & FLAG_RAW) == 0) continue;
        raw_bytes += (uint64_t)c->n_vocab * sizeof(float);
        CHECK(c->n_vocab > 0 && raw_bytes <= c->view->row_bytes, err, ERR_PEER,
              "RESULT has %" PRIu64 " bytes of raw rows, too few for head %zu of a vocabulary of "
              "%" PRIu32,
              c->view->row_bytes, k, c->n_vocab);
        h->raw = rows;
        rows += c->n_vocab;
    }
    CHECK(raw_bytes == c->view->row_bytes, err, ERR_PEER,
          "RESULT has %" PRIu64 " bytes of raw rows, want %" PRIu64, c->view->row_bytes, raw_bytes);
    m->u.result = (struct msg_result){.id = w->id, .n_heads = (uint32_t)n, .heads = heads};
    return ERR_NONE;
}
