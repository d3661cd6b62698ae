/* exec - see exec.h. */
#include "worker/exec.h"

#include "proto/stage_bytes.h"
#include "worker/score_select.h"

#include <stdlib.h>
#include <string.h>

/* The score rows of one batch, kept until a later header releases them. */
struct kept_rows {
    uint64_t batch_id; /* 0: free */
    uint32_t n_rows;
    float *rows; /* [wanted_max, n_vocab] */
};

struct exec {
    struct exec_config config;
    uint32_t heads_max;     /* wanted rows and fetches of one batch */
    struct kept_rows *kept; /* [credits] */
    struct score_selector *selector;
    float *rows_in, *rows_out; /* [rows_max, n_embd], where rows travel in another form; or NULL */
    struct score_head *heads;  /* [heads_max] */
    int32_t *ids;              /* [pairs_max + n_vocab]: a head may overrun before it is counted */
    float *scores;
    float *id_scores;
    uint32_t pairs_max, id_scores_max;
    uint64_t bytes; /* of all of these */
};

static int take(struct exec *x, void **out, size_t count, size_t size, const char *what,
                struct err *err)
{
    size_t bytes = (count * size + 63) & ~(size_t)63;
    *out = aligned_alloc(64, bytes);
    CHECK(*out != NULL, err, ERR_MEMORY, "no memory for %zu bytes of %s", bytes, what);
    x->bytes += bytes;
    return ERR_NONE;
}

static int take_answers(struct exec *x, struct err *err)
{
    const struct exec_config *c = &x->config;
    x->heads_max = c->limits.wanted_max + c->limits.credits;
    x->pairs_max = frame_pairs_max(x->heads_max, c->n_vocab);
    x->id_scores_max = ASKED_IDS_MAX;
    TRY(score_selector_open(&x->selector, c->n_vocab, err));
    x->bytes += score_selector_bytes(c->n_vocab);
    TRY(take(x, (void **)&x->heads, x->heads_max, sizeof *x->heads, "score heads", err));
    size_t pairs = (size_t)x->pairs_max + c->n_vocab;
    TRY(take(x, (void **)&x->ids, pairs, sizeof *x->ids, "score ids", err));
    TRY(take(x, (void **)&x->scores, pairs, sizeof *x->scores, "scores", err));
    TRY(take(x, (void **)&x->id_scores, x->id_scores_max, sizeof *x->id_scores, "scores", err));
    x->kept = calloc(c->limits.credits, sizeof *x->kept);
    CHECK(x->kept != NULL, err, ERR_MEMORY, "no memory for score rows");
    for (uint32_t i = 0; i < c->limits.credits; i++)
        TRY(take(x, (void **)&x->kept[i].rows, (size_t)c->limits.wanted_max * c->n_vocab,
                 sizeof(float), "score rows", err));
    return ERR_NONE;
}

/* take_rows() - where rows travel as floats, the stage reads and writes them in the frames. */
static int take_rows(struct exec *x, struct err *err)
{
    const struct exec_config *c = &x->config;
    size_t n = (size_t)c->limits.rows_max * c->n_embd;
    if (c->wire == WIRE_F32) return ERR_NONE;
    if (!c->is_first) TRY(take(x, (void **)&x->rows_in, n, sizeof(float), "rows", err));
    if (!c->is_last) TRY(take(x, (void **)&x->rows_out, n, sizeof(float), "rows", err));
    return ERR_NONE;
}

int exec_open(struct exec **out, const struct exec_config *config, struct err *err)
{
    struct exec *x = calloc(1, sizeof *x);
    CHECK(x != NULL, err, ERR_MEMORY, "no memory for a stage's buffers");
    x->config = *config;
    int rc = take_rows(x, err);
    if (rc == ERR_NONE && config->is_last) rc = take_answers(x, err);
    if (rc != ERR_NONE) {
        exec_close(x);
        return rc;
    }
    *out = x;
    return ERR_NONE;
}

void exec_close(struct exec *x)
{
    if (x == NULL) return;
    if (x->kept != NULL)
        for (uint32_t i = 0; i < x->config.limits.credits; i++) free(x->kept[i].rows);
    free(x->kept);
    score_selector_close(x->selector);
    free(x->rows_in);
    free(x->rows_out);
    free(x->heads);
    free(x->ids);
    free(x->scores);
    free(x->id_scores);
    free(x);
}

uint64_t exec_bytes(const struct exec *x)
{
    return x->bytes;
}

/* form_of() - how the rows of b travel. */
static enum wire_format form_of(const struct exec *x, const struct msg_batch *b)
{
    return b->as_f32 != 0 ? WIRE_F32 : x->config.wire;
}

static int check_limits(const struct exec *x, const struct msg_batch *b,
                        const struct frame_view *view, struct err *err)
{
    const struct line_limits *lim = &x->config.limits;
    CHECK(b->batch.n_rows <= lim->rows_max && b->batch.n_wanted <= lim->wanted_max &&
              b->n_fetches <= lim->credits,
          err, ERR_PEER,
          "batch %llu has %u rows, %u wanted, %u fetches; the line's limits are %u, %u, %u",
          (unsigned long long)b->id, b->batch.n_rows, b->batch.n_wanted, b->n_fetches,
          lim->rows_max, lim->wanted_max, lim->credits);
    uint64_t want = view->row_bytes == 0 && view->rows == NULL
                        ? 0
                        : b->batch.n_rows * wire_row_bytes(form_of(x, b), x->config.n_embd);
    CHECK(view->row_bytes == want, err, ERR_PEER,
          "batch %llu came with %llu bytes of rows, want %llu", (unsigned long long)b->id,
          (unsigned long long)view->row_bytes, (unsigned long long)want);
    return ERR_NONE;
}

static void release_rows(struct exec *x, uint64_t release_before)
{
    for (uint32_t i = 0; i < x->config.limits.credits; i++)
        if (x->kept[i].batch_id < release_before) x->kept[i].batch_id = 0;
}

static struct kept_rows *find_rows(struct exec *x, uint64_t batch_id)
{
    for (uint32_t i = 0; i < x->config.limits.credits; i++)
        if (x->kept[i].batch_id == batch_id) return &x->kept[i];
    return NULL;
}

/* answers counts what the heads of one RESULT have used of the buffers so far. */
struct answers {
    uint32_t n_heads, n_pairs, n_ids;
};

static int answer_row(struct exec *x, const float *z, const struct score_need *need,
                      struct answers *a, struct err *err)
{
    CHECK(need->n_ids <= x->id_scores_max - a->n_ids, err, ERR_PEER,
          "a batch asks for %u scores by id, the limit is %u", need->n_ids, x->id_scores_max);
    struct score_head *head = &x->heads[a->n_heads];
    const struct score_room room = {x->ids + a->n_pairs, x->scores + a->n_pairs,
                                    x->id_scores + a->n_ids};
    TRY(score_select(x->selector, z, need, &room, head, err));
    a->n_heads++;
    a->n_ids += need->n_ids;
    a->n_pairs += head->n;
    CHECK(a->n_pairs <= x->pairs_max, err, ERR_PEER, "a batch asks for more than %u scores at once",
          x->pairs_max);
    return ERR_NONE;
}

static int answer_batch(struct exec *x, const struct msg_batch *b, const struct kept_rows *mine,
                        struct answers *a, struct err *err)
{
    uint32_t n_vocab = x->config.n_vocab;
    for (uint32_t k = 0; k < b->batch.n_wanted; k++)
        TRY(answer_row(x, mine->rows + (size_t)k * n_vocab, &b->needs[k], a, err));
    for (uint32_t k = 0; k < b->n_fetches; k++) {
        const struct msg_fetch *f = &b->fetches[k];
        struct kept_rows *old = find_rows(x, f->batch_id);
        CHECK(f->batch_id != 0 && old != NULL && f->wanted < old->n_rows, err, ERR_PEER,
              "scores of row %u of batch %llu are asked for again, but are not kept", f->wanted,
              (unsigned long long)f->batch_id);
        TRY(answer_row(x, old->rows + (size_t)f->wanted * n_vocab, &f->need, a, err));
    }
    return ERR_NONE;
}

static int finish_line(struct exec *x, const struct msg_batch *b, const float *in, uint8_t *out,
                       size_t capacity, size_t *len, struct err *err)
{
    release_rows(x, b->release_before);
    /* A batch that wants nothing takes no place: a fetch must get through when all places
     * are held. */
    struct kept_rows *mine = b->batch.n_wanted > 0 ? find_rows(x, 0) : &x->kept[0];
    CHECK(mine != NULL, err, ERR_PEER,
          "batch %llu comes before the score rows of earlier ones were released",
          (unsigned long long)b->id);
    TRY(stage_forward(x->config.stage, &b->batch, in, mine->rows, err));
    if (b->batch.n_wanted > 0) {
        mine->batch_id = b->id;
        mine->n_rows = b->batch.n_wanted;
    }
    struct answers a = {0};
    TRY(answer_batch(x, b, mine, &a, err));
    struct message m = {.type = MESSAGE_RESULT,
                        .u.result = {.id = b->id, .n_heads = a.n_heads, .heads = x->heads}};
    return codec_pack(x->config.codec, &m, 0, out, capacity, len, err);
}

/* rows_of() - the rows that came in, as floats; NULL on the first stage. Rows that come there all
 * the same are the stage's to refuse. */
static const float *rows_of(struct exec *x, const struct msg_batch *b,
                            const struct frame_view *view)
{
    const enum wire_format form = form_of(x, b);
    if (view->rows == NULL || form == WIRE_F32 || x->rows_in == NULL)
        return (const float *)(const void *)view->rows;
    wire_rows_decode(form, view->rows, b->batch.n_rows, x->config.n_embd, x->rows_in);
    return x->rows_in;
}

int exec_batch(struct exec *x, const struct msg_batch *b, const struct frame_view *view,
               uint8_t *out, size_t capacity, size_t *len, struct err *err)
{
    TRY(check_limits(x, b, view, err));
    const float *in = rows_of(x, b, view);
    if (x->config.is_last) return finish_line(x, b, in, out, capacity, len, err);

    const enum wire_format form = form_of(x, b);
    uint64_t row_bytes = b->batch.n_rows * wire_row_bytes(form, x->config.n_embd);
    *len = frame_total_bytes(view->head_bytes, row_bytes);
    CHECK(*len <= capacity, err, ERR_PEER,
          "batch %llu needs a frame of %zu bytes, the line's limit is %zu",
          (unsigned long long)b->id, *len, capacity);
    memcpy(out + FRAME_HEADER_BYTES, view->head, view->head_bytes);
    frame_write_header(out, MESSAGE_BATCH, view->head_bytes, row_bytes);
    uint8_t *wire = frame_rows(out, view->head_bytes);
    float *rows = form != WIRE_F32 ? x->rows_out : (float *)(void *)wire;
    TRY(stage_forward(x->config.stage, &b->batch, in, rows, err));
    if (form != WIRE_F32) wire_rows_encode(form, rows, b->batch.n_rows, x->config.n_embd, wire);
    return ERR_NONE;
}
