/* random_message - see random_message.h. */
#include "random_message.h"

#include "../splitmix.h"
#include "engine/err.h"
#include "engine/isa.h"
#include "proto/wire_rows.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

uint64_t random_next(struct random_store *r)
{
    return splitmix_next(&r->state);
}

static uint32_t below(struct random_store *r, uint32_t n)
{
    return (uint32_t)(random_next(r) % n);
}

/* Numbers of every length: varints have many. */
static uint64_t any_number(struct random_store *r)
{
    return random_next(r) >> below(r, 64);
}

static float any_score(struct random_store *r)
{
    if (below(r, 16) == 0) return -INFINITY;
    return (float)(int32_t)random_next(r) / 65536.0f;
}

static float positive(struct random_store *r)
{
    return (float)(1 + below(r, 1000)) / 64.0f;
}

static const char *any_text(struct random_store *r, unsigned which)
{
    uint32_t n = below(r, 4) == 0 ? MESSAGE_TEXT_MAX - 1 : below(r, 40);
    for (uint32_t i = 0; i < n; i++) r->text[which][i] = (char)(' ' + below(r, 95));
    r->text[which][n] = '\0';
    return r->text[which];
}

static void any_need(struct random_store *r, size_t k, struct score_need *need)
{
    *need = (struct score_need){
        .temperature = positive(r),
        .count = (uint32_t)any_number(r),
        .mass = (float)below(r, 3) / 2,
        .ratio = (float)below(r, 3) / 2,
        .raw = below(r, 2) == 1,
        .adjust = r->adjust[k],
        .n_adjust = below(r, RANDOM_LIST + 1),
        .ids = r->ids[k],
        .n_ids = below(r, 3) == 0 ? below(r, RANDOM_LIST + 1) : 0,
    };
    int32_t id = (int32_t)below(r, 1000);
    for (uint32_t i = 0; i < need->n_adjust; i++, id += 1 + (int32_t)below(r, 100000))
        r->adjust[k][i] = (struct score_adjust){id, positive(r), any_score(r)};
    for (uint32_t i = 0; i < need->n_ids; i++) r->ids[k][i] = (int32_t)below(r, INT32_MAX);
}

static void any_rows(struct random_store *r, struct batch *b)
{
    b->n_rows = below(r, RANDOM_ROWS + 1);
    for (uint32_t i = 0; i < b->n_rows; i++) {
        r->token[i] = (int32_t)below(r, INT32_MAX);
        r->wanted[i] = below(r, 3) == 0;
        b->n_wanted += r->wanted[i];
        bool same_seq = i > 0 && below(r, 2) == 0;
        r->seq[i] = same_seq ? r->seq[i - 1] : i;
        r->pos[i] = same_seq ? r->pos[i - 1] + 1 : below(r, 1 << 20);
    }
    b->token = r->token;
    b->seq = r->seq;
    b->pos = r->pos;
    b->wanted = r->wanted;
}

static void any_batch(struct random_store *r, struct msg_batch *m)
{
    *m = (struct msg_batch){.id = 2 + random_next(r) / 4};
    m->release_before = m->id / 2;
    m->idle_ns = below(r, 2) * any_number(r);
    m->as_f32 = below(r, 2);
    any_rows(r, &m->batch);
    m->batch.n_commands = below(r, RANDOM_COMMANDS + 1);
    m->batch.commands = r->commands;
    for (uint32_t i = 0; i < m->batch.n_commands; i++)
        r->commands[i] = (struct kv_command){(enum kv_op)below(r, KV_TRIM + 1),
                                             (uint32_t)any_number(r), (uint32_t)any_number(r),
                                             (uint32_t)any_number(r), (uint32_t)any_number(r)};
    m->needs = r->needs;
    for (uint32_t k = 0; k < m->batch.n_wanted; k++) any_need(r, k, &r->needs[k]);
    m->fetches = r->fetches;
    m->n_fetches = below(r, RANDOM_FETCHES + 1);
    for (uint32_t k = 0; k < m->n_fetches; k++) {
        r->fetches[k].batch_id = m->release_before + random_next(r) % (m->id - m->release_before);
        r->fetches[k].wanted = (uint32_t)any_number(r);
        any_need(r, RANDOM_ROWS + k, &r->fetches[k].need);
    }
}

static void any_result(struct random_store *r, struct msg_result *m)
{
    *m = (struct msg_result){.id = 1 + random_next(r) / 2, .heads = r->heads};
    m->n_heads = below(r, RANDOM_ROWS + 1);
    bool with_ids = below(r, 2) == 1;
    for (uint32_t k = 0; k < m->n_heads; k++) {
        struct score_head *h = &r->heads[k];
        *h = (struct score_head){
            .lse = (double)any_score(r) * 1.000000001,
            .whole = below(r, 2) == 1,
            .n = 1 + below(r, RANDOM_LIST),
            .ids = r->pair_ids[k],
            .scores = r->pair_scores[k],
            .n_ids = with_ids ? below(r, RANDOM_LIST + 1) : 0,
            .id_scores = r->id_scores[k],
            .raw = below(r, 4) == 0 ? r->raw[k] : NULL,
        };
        for (uint32_t i = 0; i < h->n; i++) r->pair_ids[k][i] = (int32_t)below(r, RANDOM_VOCAB);
        for (uint32_t i = 0; i < h->n; i++) r->pair_scores[k][i] = any_score(r);
        for (uint32_t i = 0; i < h->n_ids; i++) r->id_scores[k][i] = any_score(r);
        for (uint32_t i = 0; i < RANDOM_VOCAB; i++) r->raw[k][i] = any_score(r);
    }
}

static void any_load(struct random_store *r, struct msg_load *m)
{
    m->n_stages = 1 + below(r, MESSAGE_RANKS_MAX - 1);
    m->stage = below(r, m->n_stages);
    m->layer_end = 1 + below(r, 65536);
    m->layer_first = below(r, m->layer_end);
    m->isa = below(r, ISA_COUNT);
    m->kv_format = below(r, 3);
    m->wire_format = below(r, WIRE_FORMAT_COUNT);
    m->n_ctx = 1 + below(r, 1 << 30);
    m->n_seqs = 1 + below(r, 1 << 30);
    for (uint32_t c = 0; c < KV_CLASSES_MAX; c++) m->n_blocks[c] = below(r, 1 << 30);
    m->rows_max = 1 + below(r, 1 << 30);
    m->wanted_max = 1 + below(r, m->rows_max);
    m->credits = 1 + below(r, MESSAGE_RANKS_MAX);
    m->threads = below(r, 65536);
    m->trace_layers = below(r, 2);
    m->from_rank = below(r, MESSAGE_RANKS_MAX);
    m->to_rank = below(r, MESSAGE_RANKS_MAX);
}

static void any_heartbeat(struct random_store *r, struct msg_heartbeat *m)
{
    *m = (struct msg_heartbeat){
        .state = 1 + below(r, WORKER_MEASURING),
        .batch_id = any_number(r),
        .layer = below(r, 65536),
        .done = any_number(r),
        .total = any_number(r),
        .accounts = r->accounts,
        .n_accounts = below(r, MESSAGE_ACCOUNTS_MAX + 1),
        .marks = r->marks,
        .n_marks = below(r, 2) * below(r, MESSAGE_MARKS_MAX + 1),
    };
    for (uint32_t i = 0; i < m->n_accounts; i++)
        r->accounts[i] = (struct msg_account){
            any_number(r),  (uint32_t)any_number(r), (uint32_t)any_number(r), random_next(r),
            random_next(r), random_next(r),          random_next(r),          any_number(r),
            any_number(r),  any_number(r),           any_number(r),           any_number(r)};
    for (uint32_t i = 0; i < m->n_marks; i++)
        r->marks[i] = (struct msg_layer_mark){any_number(r), below(r, 65536), random_next(r)};
}

static void any_probe(struct random_store *r, struct msg_probe *m)
{
    *m = (struct msg_probe){.bytes = r->sizes, .n_bytes = below(r, LINK_RAW_SIZES_MAX + 1)};
    if (m->n_bytes > 0)
        m->rounds = 1 + below(r, LINK_RAW_ROUNDS_MAX);
    else
        m->threads = below(r, 65536);
    m->format = (uint32_t)any_number(r);
    m->isa = below(r, ISA_COUNT);
    m->weight_bytes = any_number(r);
    for (uint32_t i = 0; i < m->n_bytes; i++) r->sizes[i] = 1 + below(r, INT32_MAX);
}

static void any_model(struct random_store *r, struct msg_model *m)
{
    *m = (struct msg_model){random_next(r), any_number(r), 1 + below(r, 64), r->header_bytes,
                            r->file_bytes};
    for (uint32_t i = 0; i < m->n_parts; i++) {
        r->header_bytes[i] = 1 + below(r, 1 << 20);
        r->file_bytes[i] = r->header_bytes[i] + (any_number(r) >> 2);
    }
}

static void any_hello(struct random_store *r, const uint64_t n[8], struct msg_hello *m)
{
    *m = (struct msg_hello){
        .version = any_text(r, 0),
        .host = any_text(r, 1),
        .pid = (uint32_t)n[0],
        .family = any_text(r, 2),
        .model_digest = n[1],
        .isa = below(r, ISA_COUNT),
        .cpus = (uint32_t)n[2],
        .cpus_online = (uint32_t)n[4],
        .memory_bytes = n[3],
        .cgroup_bytes = n[5],
        .cgroup = any_text(r, 3),
        .ulimit_bytes = n[6],
        .ulimit = any_text(r, 4),
        .wants_model = below(r, 2),
        .model_sample = n[7],
    };
}

static void any_ready(struct random_store *r, const uint64_t n[5], struct msg_ready *m)
{
    *m = (struct msg_ready){n[0], n[1], n[2], n[3], 1 + below(r, 65536), n[4], r->digests, 0};
    m->n_digests = below(r, TENSOR_DIGESTS_MAX + 1);
    for (uint32_t i = 0; i < m->n_digests; i++)
        r->digests[i] = (struct tensor_digest){(uint32_t)any_number(r), random_next(r)};
}

void random_message(struct random_store *r, enum message_type type, struct message *out)
{
    *out = (struct message){.type = type};
    uint64_t n[12];
    for (int i = 0; i < 12; i++) n[i] = any_number(r);
    switch (type) {
    case MESSAGE_HELLO:
        any_hello(r, n, &out->u.hello);
        break;
    case MESSAGE_WATCH:
        out->u.watch = (struct msg_watch){(uint32_t)n[0], any_text(r, 0)};
        break;
    case MESSAGE_LOAD:
        any_load(r, &out->u.load);
        break;
    case MESSAGE_READY:
        any_ready(r, n, &out->u.ready);
        break;
    case MESSAGE_HEARTBEAT:
        any_heartbeat(r, &out->u.heartbeat);
        break;
    case MESSAGE_ERROR:
        out->u.error = (struct msg_error){1 + below(r, ERR_CODE_COUNT - 1), any_text(r, 0)};
        break;
    case MESSAGE_STOP:
        out->u.stop.idle_ns = n[0];
        break;
    case MESSAGE_REPORT:
        out->u.report = (struct msg_report){n[0], n[1], n[2], n[3], n[4],  n[5],
                                            n[6], n[7], n[8], n[9], n[10], n[11]};
        break;
    case MESSAGE_PROBE:
        any_probe(r, &out->u.probe);
        break;
    case MESSAGE_PROBED:
        out->u.probed = (struct msg_probed){n[0], n[1], n[2]};
        break;
    case MESSAGE_CLOCK:
        out->u.clock = (struct msg_clock){n[0], n[1]};
        break;
    case MESSAGE_MODEL:
        any_model(r, &out->u.model);
        break;
    case MESSAGE_PULL:
        out->u.pull = (struct msg_pull){below(r, MESSAGE_PARTS_MAX), n[0] >> 1,
                                        1 + below(r, MESSAGE_PULL_BYTES_MAX)};
        break;
    case MESSAGE_PIECE:
        out->u.piece = (struct msg_piece){below(r, MESSAGE_PARTS_MAX), n[0] >> 1, n[1], r->piece,
                                          1 + below(r, sizeof r->piece)};
        for (size_t i = 0; i < sizeof r->piece; i++) r->piece[i] = (uint8_t)random_next(r);
        break;
    case MESSAGE_BATCH:
        any_batch(r, &out->u.batch);
        break;
    case MESSAGE_RESULT:
        any_result(r, &out->u.result);
        break;
    }
}

/* ---- the same? ---- */

static bool same_bytes(const void *a, const void *b, size_t n)
{
    return n == 0 || memcmp(a, b, n) == 0;
}

static bool same_need(const struct score_need *a, const struct score_need *b)
{
    return same_bytes(&a->temperature, &b->temperature, 4) && a->count == b->count &&
           same_bytes(&a->mass, &b->mass, 4) && same_bytes(&a->ratio, &b->ratio, 4) &&
           a->raw == b->raw && a->n_adjust == b->n_adjust && a->n_ids == b->n_ids &&
           same_bytes(a->adjust, b->adjust, a->n_adjust * sizeof *a->adjust) &&
           same_bytes(a->ids, b->ids, a->n_ids * sizeof *a->ids);
}

static bool same_batch(const struct msg_batch *a, const struct msg_batch *b)
{
    const struct batch *x = &a->batch, *y = &b->batch;
    bool same = a->id == b->id && a->release_before == b->release_before &&
                a->idle_ns == b->idle_ns && a->as_f32 == b->as_f32 && x->n_rows == y->n_rows &&
                x->n_wanted == y->n_wanted && x->n_commands == y->n_commands &&
                a->n_fetches == b->n_fetches && same_bytes(x->token, y->token, 4ul * x->n_rows) &&
                same_bytes(x->seq, y->seq, 4ul * x->n_rows) &&
                same_bytes(x->pos, y->pos, 4ul * x->n_rows) &&
                same_bytes(x->wanted, y->wanted, x->n_rows) &&
                same_bytes(x->commands, y->commands, x->n_commands * sizeof *x->commands);
    for (uint32_t k = 0; same && k < x->n_wanted; k++) same = same_need(&a->needs[k], &b->needs[k]);
    for (uint32_t k = 0; same && k < a->n_fetches; k++)
        same = a->fetches[k].batch_id == b->fetches[k].batch_id &&
               a->fetches[k].wanted == b->fetches[k].wanted &&
               same_need(&a->fetches[k].need, &b->fetches[k].need);
    return same;
}

static bool same_head(const struct score_head *a, const struct score_head *b)
{
    return same_bytes(&a->lse, &b->lse, 8) && a->whole == b->whole && a->n == b->n &&
           a->n_ids == b->n_ids && same_bytes(a->ids, b->ids, 4ul * a->n) &&
           same_bytes(a->scores, b->scores, 4ul * a->n) &&
           same_bytes(a->id_scores, b->id_scores, 4ul * a->n_ids) &&
           (a->raw == NULL) == (b->raw == NULL) &&
           (a->raw == NULL || same_bytes(a->raw, b->raw, 4ul * RANDOM_VOCAB));
}

static bool same_result(const struct msg_result *a, const struct msg_result *b)
{
    bool same = a->id == b->id && a->n_heads == b->n_heads;
    for (uint32_t k = 0; same && k < a->n_heads; k++) same = same_head(&a->heads[k], &b->heads[k]);
    return same;
}

static bool same_hello(const struct msg_hello *a, const struct msg_hello *b)
{
    return strcmp(a->version, b->version) == 0 && strcmp(a->host, b->host) == 0 &&
           strcmp(a->family, b->family) == 0 && a->pid == b->pid &&
           a->model_digest == b->model_digest && a->isa == b->isa && a->cpus == b->cpus &&
           a->cpus_online == b->cpus_online && a->memory_bytes == b->memory_bytes &&
           a->cgroup_bytes == b->cgroup_bytes && a->ulimit_bytes == b->ulimit_bytes &&
           strcmp(a->cgroup, b->cgroup) == 0 && strcmp(a->ulimit, b->ulimit) == 0 &&
           a->wants_model == b->wants_model && a->model_sample == b->model_sample;
}

/* Member by member: the struct has padding. */
static bool same_digests(const struct msg_ready *a, const struct msg_ready *b)
{
    for (uint32_t i = 0; i < a->n_digests; i++)
        if (a->digests[i].tensor != b->digests[i].tensor ||
            a->digests[i].digest != b->digests[i].digest)
            return false;
    return true;
}

static bool same_ready(const struct msg_ready *a, const struct msg_ready *b)
{
    return a->weight_bytes == b->weight_bytes && a->kv_bytes == b->kv_bytes &&
           a->buffer_bytes == b->buffer_bytes && a->load_ns == b->load_ns &&
           a->threads == b->threads && a->rss_bytes == b->rss_bytes &&
           a->n_digests == b->n_digests && same_digests(a, b);
}

static bool same_accounts(const struct msg_heartbeat *a, const struct msg_heartbeat *b)
{
    return same_bytes(a->accounts, b->accounts, a->n_accounts * sizeof *a->accounts);
}

/* Member by member: the struct has padding. */
static bool same_marks(const struct msg_heartbeat *a, const struct msg_heartbeat *b)
{
    for (uint32_t i = 0; i < a->n_marks; i++)
        if (a->marks[i].batch_id != b->marks[i].batch_id ||
            a->marks[i].layer != b->marks[i].layer || a->marks[i].begin_ns != b->marks[i].begin_ns)
            return false;
    return true;
}

static bool same_heartbeat(const struct msg_heartbeat *a, const struct msg_heartbeat *b)
{
    return a->state == b->state && a->batch_id == b->batch_id && a->layer == b->layer &&
           a->done == b->done && a->total == b->total && a->n_accounts == b->n_accounts &&
           a->n_marks == b->n_marks && same_accounts(a, b) && same_marks(a, b);
}

static bool same_probe(const struct msg_probe *a, const struct msg_probe *b)
{
    return a->n_bytes == b->n_bytes && a->rounds == b->rounds && a->threads == b->threads &&
           a->format == b->format && a->isa == b->isa && a->weight_bytes == b->weight_bytes &&
           same_bytes(a->bytes, b->bytes, a->n_bytes * sizeof *a->bytes);
}

static bool same_model(const struct msg_model *a, const struct msg_model *b)
{
    return a->digest == b->digest && a->stamp == b->stamp && a->n_parts == b->n_parts &&
           same_bytes(a->header_bytes, b->header_bytes, a->n_parts * sizeof *a->header_bytes) &&
           same_bytes(a->file_bytes, b->file_bytes, a->n_parts * sizeof *a->file_bytes);
}

static bool same_piece(const struct msg_piece *a, const struct msg_piece *b)
{
    return a->part == b->part && a->offset == b->offset && a->digest == b->digest &&
           a->n_bytes == b->n_bytes && same_bytes(a->bytes, b->bytes, a->n_bytes);
}

bool same_message(const struct message *a, const struct message *b)
{
    if (a->type != b->type) return false;
    switch (a->type) {
    case MESSAGE_HELLO:
        return same_hello(&a->u.hello, &b->u.hello);
    case MESSAGE_WATCH:
        return a->u.watch.pid == b->u.watch.pid && strcmp(a->u.watch.host, b->u.watch.host) == 0;
    case MESSAGE_LOAD:
        return same_bytes(&a->u.load, &b->u.load, sizeof a->u.load);
    case MESSAGE_READY:
        return same_ready(&a->u.ready, &b->u.ready);
    case MESSAGE_HEARTBEAT:
        return same_heartbeat(&a->u.heartbeat, &b->u.heartbeat);
    case MESSAGE_ERROR:
        return a->u.error.code == b->u.error.code && strcmp(a->u.error.text, b->u.error.text) == 0;
    case MESSAGE_STOP:
        return a->u.stop.idle_ns == b->u.stop.idle_ns;
    case MESSAGE_REPORT:
        return same_bytes(&a->u.report, &b->u.report, sizeof a->u.report);
    case MESSAGE_PROBE:
        return same_probe(&a->u.probe, &b->u.probe);
    case MESSAGE_PROBED:
        return a->u.probed.read_bytes_s == b->u.probed.read_bytes_s &&
               a->u.probed.ops_s == b->u.probed.ops_s &&
               a->u.probed.few_ops_s == b->u.probed.few_ops_s;
    case MESSAGE_CLOCK:
        return same_bytes(&a->u.clock, &b->u.clock, sizeof a->u.clock);
    case MESSAGE_MODEL:
        return same_model(&a->u.model, &b->u.model);
    case MESSAGE_PULL:
        return a->u.pull.part == b->u.pull.part && a->u.pull.offset == b->u.pull.offset &&
               a->u.pull.bytes == b->u.pull.bytes;
    case MESSAGE_PIECE:
        return same_piece(&a->u.piece, &b->u.piece);
    case MESSAGE_BATCH:
        return same_batch(&a->u.batch, &b->u.batch);
    case MESSAGE_RESULT:
        return same_result(&a->u.result, &b->u.result);
    }
    return false;
}
