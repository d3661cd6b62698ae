/* fake_stages - see fake_stages.h. */
#include "fake_stages.h"

#include "engine/isa.h"
#include "proto/codec.h"
#include "proto/frame_sizes.h"
#include "worker/score_select.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { KEPT_MAX = FAKE_STAGES_MAX + 2 };

static uint64_t mix(uint64_t h, uint64_t x)
{
    h = (h ^ x) * 0x9e3779b97f4a7c15u;
    return h ^ (h >> 29);
}

static void scores_of_hash(uint64_t h, uint32_t n_vocab, float *z)
{
    for (uint32_t i = 0; i < n_vocab; i++) z[i] = (float)(mix(h, i + 1) % 1000) / 100.0f;
}

void fake_scores(const int32_t *tokens, uint32_t n, uint32_t n_vocab, float *z)
{
    uint64_t h = 1;
    for (uint32_t i = 0; i < n; i++) h = mix(h, (uint64_t)tokens[i]);
    scores_of_hash(h, n_vocab, z);
}

/* A block of the "cache": which token each of its places holds, at which position. */
struct fake_block {
    int32_t token[KV_BLOCK_POSITIONS];
    uint32_t pos[KV_BLOCK_POSITIONS];
};

/* One sequence as a stage sees it: its tables, and how many entries of each are mapped. */
struct seen {
    uint32_t *block[KV_CLASSES_MAX]; /* [n_ctx / 32 + 1] */
    uint32_t n_mapped[KV_CLASSES_MAX];
};

struct kept {
    uint64_t id;
    uint32_t n_rows;
    float *rows;
};

struct stage_state {
    struct fake_stages *f;
    struct link *l;
    struct codec *codec;
    struct msg_load load;
    struct seen *seqs;
    struct fake_block *pool[KV_CLASSES_MAX]; /* [n_blocks] */
    struct kept kept[KEPT_MAX];
    struct score_selector *selector;
    bool last, stopped;
};

static void broke(struct stage_state *s, const char *rule, uint64_t batch)
{
    if (s->f->broken_rule[0] == '\0')
        snprintf(s->f->broken_rule, sizeof s->f->broken_rule, "batch %llu: %.200s",
                 (unsigned long long)batch, rule);
}

static void send_control(struct stage_state *s, const struct message *m)
{
    size_t capacity, len;
    uint8_t *frame;
    while ((frame = link_send_begin(s->l, LINK_CONTROL, 0, &capacity)) == NULL)
        link_wait(s->l, 1000);
    if (codec_pack(s->codec, m, 0, frame, capacity, &len, NULL) == ERR_NONE)
        link_send(s->l, LINK_CONTROL, 0, len, NULL);
}

static void take_control(struct stage_state *s, bool *loaded)
{
    int from;
    const uint8_t *frame;
    size_t len;
    struct message m;
    struct frame_view view;
    if (link_receive(s->l, LINK_CONTROL, &from, &frame, &len, NULL) != ERR_NONE || frame == NULL)
        return;
    if (codec_unpack(s->codec, frame, len, &m, &view, NULL) == ERR_NONE) {
        if (m.type == MESSAGE_STOP) s->stopped = true;
        if (m.type == MESSAGE_CLOCK) send_control(s, &m); /* a clock that always shows 0 */
        if (m.type == MESSAGE_LOAD) {
            s->load = m.u.load;
            *loaded = true;
        }
    }
    link_receive_done(s->l, LINK_CONTROL);
}

static void obey_map(struct stage_state *s, const struct kv_command *c, uint64_t id)
{
    struct seen *q = &s->seqs[c->seq];
    if (c->block >= s->load.n_blocks[c->kv_class]) {
        broke(s, "a block that does not exist is mapped", id);
        return;
    }
    if (c->index > q->n_mapped[c->kv_class]) broke(s, "a table has a gap", id);
    q->block[c->kv_class][c->index] = c->block;
    if (c->index == q->n_mapped[c->kv_class]) q->n_mapped[c->kv_class]++;
}

static void obey(struct stage_state *s, const struct kv_command *c, uint64_t id)
{
    if (c->op == KV_MAP) obey_map(s, c, id);
    if (c->op == KV_COPY) s->pool[c->kv_class][c->block] = s->pool[c->kv_class][c->index];
    for (uint32_t k = 0; c->op == KV_TRIM && k < KV_CLASSES_MAX; k++)
        if (s->seqs[c->seq].n_mapped[k] > c->index) s->seqs[c->seq].n_mapped[k] = c->index;
}

/* place_of() - where a class keeps a position of a sequence. */
static struct fake_block *place_of(const struct stage_state *s, uint32_t kv_class, uint32_t seq,
                                   uint32_t pos)
{
    return &s->pool[kv_class][s->seqs[seq].block[kv_class][pos / KV_BLOCK_POSITIONS]];
}

/* check_window() - all that a row at pos sees in a class is there, and is what class 0 has. */
static void check_window(struct stage_state *s, uint32_t kv_class, uint32_t seq, uint32_t pos,
                         uint64_t id)
{
    const uint32_t window = s->f->model->hp.kv_class_window[kv_class];
    for (uint32_t i = window > 0 && pos >= window ? pos - window + 1 : 0; i <= pos; i++) {
        const uint32_t at = i % KV_BLOCK_POSITIONS;
        const struct fake_block *b = place_of(s, kv_class, seq, i), *all = place_of(s, 0, seq, i);
        if (b->pos[at] != i || b->token[at] != all->token[at])
            broke(s, "a row sees what is not its own", id);
    }
}

/* take_rows() - all rows into the "cache", as a stage does; then z of the wanted ones into k, from
 * the cache alone. */
static void take_rows(struct stage_state *s, const struct msg_batch *b, struct kept *k)
{
    const uint32_t n_vocab = s->f->model->hp.n_vocab, n_classes = s->f->model->hp.n_kv_classes;
    if (k != NULL) k->n_rows = 0;
    for (uint32_t r = 0; r < b->batch.n_rows; r++) {
        const uint32_t pos = b->batch.pos[r], seq = b->batch.seq[r];
        for (uint32_t c = 0; c < n_classes; c++) {
            if (pos >= s->load.n_ctx || pos / KV_BLOCK_POSITIONS >= s->seqs[seq].n_mapped[c]) {
                broke(s, "a row's block is not mapped", b->id);
                return;
            }
            struct fake_block *to = place_of(s, c, seq, pos);
            to->token[pos % KV_BLOCK_POSITIONS] = b->batch.token[r];
            to->pos[pos % KV_BLOCK_POSITIONS] = pos;
        }
    }
    for (uint32_t r = 0; r < b->batch.n_rows; r++) {
        const uint32_t pos = b->batch.pos[r], seq = b->batch.seq[r];
        for (uint32_t c = 0; c < n_classes; c++) check_window(s, c, seq, pos, b->id);
        if (!b->batch.wanted[r] || k == NULL) continue;
        uint64_t h = 1;
        for (uint32_t i = 0; i <= pos; i++)
            h = mix(h, (uint64_t)place_of(s, 0, seq, i)->token[i % KV_BLOCK_POSITIONS]);
        scores_of_hash(h, n_vocab, k->rows + (size_t)k->n_rows++ * n_vocab);
    }
}

static struct kept *find_kept(struct stage_state *s, uint64_t id)
{
    for (uint32_t i = 0; i < s->load.credits; i++)
        if (s->kept[i].id == id) return &s->kept[i];
    return NULL;
}

static void answer(struct stage_state *s, const struct msg_batch *b, uint8_t *out, size_t capacity,
                   size_t *len)
{
    uint32_t n_vocab = s->f->model->hp.n_vocab, n_heads = b->batch.n_wanted + b->n_fetches;
    for (uint32_t i = 0; i < s->load.credits; i++)
        if (s->kept[i].id < b->release_before) s->kept[i].id = 0;
    struct kept *mine = b->batch.n_wanted > 0 ? find_kept(s, 0) : NULL;
    if (mine == NULL && b->batch.n_wanted > 0) {
        broke(s, "score rows are not released in time", b->id);
        mine = &s->kept[0];
    }
    if (mine != NULL) mine->id = b->id;
    take_rows(s, b, mine);
    struct score_head *heads = calloc(n_heads + 1, sizeof *heads);
    int32_t *ids = calloc((size_t)(n_heads + 1) * n_vocab, sizeof *ids);
    float *scores = calloc((size_t)(n_heads + 1) * n_vocab * 2, sizeof *scores);
    float *id_scores = scores + (size_t)(n_heads + 1) * n_vocab;
    for (uint32_t k = 0; k < n_heads; k++) {
        bool fetch = k >= b->batch.n_wanted;
        const struct msg_fetch *f = fetch ? &b->fetches[k - b->batch.n_wanted] : NULL;
        const struct kept *from = fetch ? find_kept(s, f->batch_id) : mine;
        const struct score_need *need = fetch ? &f->need : &b->needs[k];
        uint32_t row = fetch ? f->wanted : k;
        if (from == NULL || row >= from->n_rows) {
            broke(s, "score rows are asked for that were released", b->id);
            from = &s->kept[0];
        }
        s->f->fetches += fetch;
        struct err err;
        const size_t at = (size_t)k * n_vocab;
        const struct score_room room = {ids + at, scores + at, id_scores + at};
        if (score_select(s->selector, from->rows + (size_t)row * n_vocab, need, &room, &heads[k],
                         &err) != ERR_NONE)
            broke(s, err.text, b->id);
        if (s->f->options.short_heads && !fetch && need->count == 0 && heads[k].n > 1) {
            heads[k].n = 1;
            heads[k].whole = false;
        }
    }
    struct message m = {.type = MESSAGE_RESULT,
                        .u.result = {.id = b->id, .n_heads = n_heads, .heads = heads}};
    struct err err;
    if (codec_pack(s->codec, &m, 0, out, capacity, len, &err) != ERR_NONE)
        broke(s, err.text, b->id);
    free(heads);
    free(ids);
    free(scores);
}

static void run_frame(struct stage_state *s, const uint8_t *frame, size_t frame_len)
{
    struct message m;
    struct frame_view view;
    struct err err;
    if (codec_unpack(s->codec, frame, frame_len, &m, &view, &err) != ERR_NONE) {
        broke(s, err.text, 0);
        return;
    }
    const struct msg_batch *b = &m.u.batch;
    if (b->batch.n_rows > s->load.rows_max) broke(s, "too many rows", b->id);
    if (s->last && b->batch.n_rows > s->f->rows_most) s->f->rows_most = b->batch.n_rows;
    for (uint32_t i = 0; i < b->batch.n_commands; i++) obey(s, &b->batch.commands[i], b->id);
    size_t capacity, len = 0;
    uint8_t *out;
    while ((out = link_send_begin(s->l, LINK_DATA, 0, &capacity)) == NULL) link_wait(s->l, 1000);
    if (s->last && b->id == s->f->options.fail_batch) {
        send_control(s, &(struct message){
                            .type = MESSAGE_ERROR,
                            .u.error = {.code = ERR_NUMERIC, .text = "score 7 is not finite"}});
        return;
    }
    if (s->last) {
        answer(s, b, out, capacity, &len);
    } else {
        take_rows(s, b, NULL);
        memcpy(out, frame, frame_len);
        len = frame_len;
    }
    link_send(s->l, LINK_DATA, 0, len, NULL);
}

static void say_hello(struct stage_state *s)
{
    const struct fake_options *o = &s->f->options;
    const uint32_t cpus = o->cpus > 0 ? o->cpus : 1;
    struct message m = {.type = MESSAGE_HELLO,
                        .u.hello = {.version = o->version != NULL ? o->version : TANDEM_VERSION,
                                    .host = "fake",
                                    .pid = (uint32_t)getpid(),
                                    .family = s->f->model->family->name,
                                    .model_digest = s->f->model->digest ^ o->digest_xor,
                                    .model_sample = s->f->model->sample,
                                    .isa = ISA_GENERIC,
                                    .cpus = cpus,
                                    .cpus_online = cpus}};
    send_control(s, &m);
}

static void open_state(struct stage_state *s)
{
    uint32_t n_vocab = s->f->model->hp.n_vocab;
    s->last = s->load.layer_end == s->f->model->hp.n_layer;
    s->seqs = calloc(s->load.n_seqs, sizeof *s->seqs);
    for (uint32_t i = 0; i < s->load.n_seqs; i++) {
        for (uint32_t c = 0; c < KV_CLASSES_MAX; c++)
            s->seqs[i].block[c] = calloc(s->load.n_ctx / KV_BLOCK_POSITIONS + 1, sizeof(uint32_t));
    }
    for (uint32_t c = 0; c < s->f->model->hp.n_kv_classes; c++)
        s->pool[c] = calloc(s->load.n_blocks[c], sizeof *s->pool[c]);
    for (uint32_t i = 0; i < s->load.credits; i++)
        s->kept[i].rows = calloc((size_t)s->load.wanted_max * n_vocab, sizeof(float));
    score_selector_open(&s->selector, n_vocab, NULL);
    size_t in = frame_batch_bytes_max(s->load.rows_max,
                                      s->load.stage == 0 ? 0 : s->f->model->hp.n_embd, WIRE_F32);
    size_t out = s->last
                     ? frame_result_bytes_max(s->load.wanted_max + s->load.credits, n_vocab)
                     : frame_batch_bytes_max(s->load.rows_max, s->f->model->hp.n_embd, WIRE_F32);
    link_open_data(s->l, in, out, 2, 2, NULL);
}

static void close_state(struct stage_state *s)
{
    for (uint32_t i = 0; s->seqs != NULL && i < s->load.n_seqs; i++) {
        for (uint32_t c = 0; c < KV_CLASSES_MAX; c++) free(s->seqs[i].block[c]);
    }
    for (uint32_t i = 0; i < KEPT_MAX; i++) free(s->kept[i].rows);
    free(s->seqs);
    for (uint32_t c = 0; c < KV_CLASSES_MAX; c++) free(s->pool[c]);
    score_selector_close(s->selector);
    codec_close(s->codec);
}

static void say_ready(struct stage_state *s)
{
    const struct tensor_digest *digests = s->f->options.digests;
    struct message m = {.type = MESSAGE_READY, .u.ready = {.threads = 1}};
    if (digests != NULL) m.u.ready.digests = &digests[s->load.stage];
    m.u.ready.n_digests = digests != NULL;
    send_control(s, &m);
}

struct start {
    struct fake_stages *f;
    struct link *l;
};

static void *run_stage(void *arg)
{
    struct start *start = arg;
    struct stage_state s = {.f = start->f, .l = start->l};
    free(start);
    codec_open(&s.codec, BATCH_HEAD_MAX, s.f->model->hp.n_vocab, NULL);
    bool loaded = false;
    say_hello(&s);
    while (!loaded && !s.stopped) {
        take_control(&s, &loaded);
        link_wait(s.l, 1000);
    }
    if (loaded) {
        open_state(&s);
        say_ready(&s);
    }
    while (!s.stopped) {
        int from;
        const uint8_t *frame;
        size_t len;
        if (link_receive(s.l, LINK_DATA, &from, &frame, &len, NULL) != ERR_NONE) break;
        if (frame != NULL) {
            run_frame(&s, frame, len);
            link_receive_done(s.l, LINK_DATA);
            link_made_progress(s.l);
        } else {
            link_wait(s.l, 2000);
        }
        take_control(&s, &loaded);
    }
    if (loaded) send_control(&s, &(struct message){.type = MESSAGE_REPORT});
    for (int i = 0; i < 200 && link_pending_sends(s.l) > 0; i++)
        link_wait(s.l, 1000); /* Nobody may read them. */
    link_close(s.l, false);
    close_state(&s);
    return NULL;
}

void fake_stages_start(struct fake_stages *f, int n, const struct model *model,
                       const struct fake_options *options)
{
    *f = (struct fake_stages){.n = n, .model = model};
    if (options != NULL) f->options = *options;
    if (link_local_open(f->link, n + 1, LINK_IDLE_SLEEP, NULL) != ERR_NONE) abort();
    for (int i = 0; i < n; i++) {
        struct start *start = malloc(sizeof *start);
        *start = (struct start){.f = f, .l = f->link[i + 1]};
        pthread_create(&f->thread[i], NULL, run_stage, start);
    }
}

void fake_stages_join(struct fake_stages *f)
{
    for (int i = 0; i < f->n; i++) pthread_join(f->thread[i], NULL);
    link_close(f->link[0], false);
}
