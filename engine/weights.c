/* weights - see weights.h. */
#include "engine/weights.h"

#include "engine/huge_pages.h"

#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    /* Read at once and packed by one thread: from a disk, 5 ms at 100 MB/s; and it stays in a cache
     * between the two. */
    CHUNK_BYTES = 512 << 10,
    BUFFERS_MAX = 8, /* chunks that wait for a thread, or are at work */
};

/* One tensor of the range, and what the table says of it. */
struct wanted {
    const struct tensor_row *row;
    uint32_t layer;
    const struct gguf_tensor *tensor;
};

enum buffer_state { BUFFER_FREE, BUFFER_FILLED, BUFFER_TAKEN };

/* Bytes of a matrix as the file has them, for panels from .. to. */
struct buffer {
    uint8_t *bytes; /* [buffer_bytes] */
    enum buffer_state state;
    size_t from, to;
};

struct load {
    struct weights *w;
    const struct weights_order *order;
    const struct weight_source *source;
    struct wanted *wanted; /* [n_wanted], in the order of the files */
    size_t n_wanted;
    /* Buffer 0 is the reader's own, the others go to whichever thread is free. */
    struct buffer buffers[1 + BUFFERS_MAX];
    size_t buffer_bytes, n_buffers;
    /* Over the states and all_read. Who has nothing to pack sleeps: bytes may be slow to come, and
     * a coordinator on this host, which sends them, wants the CPUs that OpenMP's waiting would
     * take. */
    pthread_mutex_t lock;
    pthread_cond_t filled;
    bool all_read; /* of the matrix at hand */
    const struct wanted *now;
    uint64_t read, packed;     /* bytes of it */
    struct digest_run *digest; /* of what was read of it, outside of layers */
};

static struct weight *slot(const struct weights *w, enum tensor_id id, bool in_layer,
                           uint32_t layer)
{
    size_t group = in_layer ? 1 + (size_t)(layer - w->range.first) : 0;
    return &w->slots[group * TENSOR_COUNT + id];
}

static int take_memory(const struct gguf_tensor *t, uint64_t bytes, void **out, struct err *err)
{
    *out = huge_pages_take(bytes);
    CHECK(*out != NULL, err, ERR_MEMORY,
          "tensor %.*s needs %" PRIu64 " bytes and the system has no memory left: use more workers",
          (int)t->name.len, t->name.data, bytes);
    return ERR_NONE;
}

static void report(const struct load *l)
{
    if (l->order->progress != NULL)
        l->order->progress(l->order->progress_ctx, l->now->layer, l->w->bytes + l->packed);
}

/* name_place() - an error of the source says for which tensor it came. */
static int name_place(const struct load *l, int rc, struct err *err)
{
    if (err == NULL) return rc;
    char text[ERR_TEXT_MAX];
    const struct gguf_tensor *t = l->now->tensor;
    snprintf(text, sizeof text, "%s", err->text);
    return err_set(err, (enum err_code)rc, "tensor %.*s, byte %" PRIu64 " of %" PRIu64 ": %.400s",
                   (int)t->name.len, t->name.data, l->read, t->bytes, text);
}

static void free_buffers(struct load *l)
{
    for (size_t i = 0; i <= BUFFERS_MAX; i++) free(l->buffers[i].bytes);
    l->buffer_bytes = 0;
}

/* grow_buffers() - between matrices. */
static int grow_buffers(struct load *l, size_t n, struct err *err)
{
    if (n <= l->buffer_bytes) return ERR_NONE;
    free_buffers(l);
    bool taken = true;
    for (size_t i = 0; i < l->n_buffers; i++) {
        l->buffers[i].bytes = malloc(n);
        taken = taken && l->buffers[i].bytes != NULL;
    }
    CHECK(taken, err, ERR_MEMORY, "no memory to read %zu bytes at once", n * l->n_buffers);
    l->buffer_bytes = n;
    return ERR_NONE;
}

static bool is_digested(const struct wanted *now)
{
    return now->row->scope != SCOPE_LAYER;
}

/* read_next() - the next n bytes of the tensor at hand. All that is read passes here, in the order
 * of the file and in one thread: so its digest depends on nothing else. */
static int read_next(struct load *l, size_t n, uint8_t *out, struct err *err)
{
    for (size_t done = 0; done < n;) {
        const size_t step = n - done < CHUNK_BYTES ? n - done : CHUNK_BYTES;
        int rc = l->source->read(l->source->ctx, out + done, step, err);
        if (rc != ERR_NONE) return name_place(l, rc, err);
        if (is_digested(l->now)) digest_add(l->digest, out + done, step);
        done += step;
        l->read += step;
        report(l);
    }
    return ERR_NONE;
}

/* take_buffer() - one that is in this state, for the caller alone, or NULL. With the lock held. */
static struct buffer *take_buffer(struct load *l, enum buffer_state state)
{
    for (size_t i = 1; i < l->n_buffers; i++) {
        if (l->buffers[i].state != state) continue;
        l->buffers[i].state = BUFFER_TAKEN;
        return &l->buffers[i];
    }
    return NULL;
}

/* A buffer that nobody works on, or the reader's own. */
static struct buffer *find_buffer(struct load *l)
{
    pthread_mutex_lock(&l->lock);
    struct buffer *b = take_buffer(l, BUFFER_FREE);
    pthread_mutex_unlock(&l->lock);
    return b != NULL ? b : &l->buffers[0];
}

static void hand_over(struct load *l, struct buffer *b)
{
    pthread_mutex_lock(&l->lock);
    b->state = BUFFER_FILLED;
    pthread_cond_signal(&l->filled);
    pthread_mutex_unlock(&l->lock);
}

static void end_reading(struct load *l)
{
    pthread_mutex_lock(&l->lock);
    l->all_read = true;
    pthread_cond_broadcast(&l->filled);
    pthread_mutex_unlock(&l->lock);
}

/* The panels of a matrix whose rows are in a buffer. */
static void pack_chunk(const struct weight *w, const struct buffer *b, uint8_t *panels)
{
    const size_t n_in = w->panels.n_in, n_out = w->panels.n_out;
    const size_t panel_bytes = w->matrix_bytes / panels_count(n_out);
    for (size_t p = b->from; p < b->to; p++) {
        const size_t left = n_out - p * PANEL_ROWS;
        w->kernels->pack(b->bytes + (p - b->from) * panel_bytes,
                         left < PANEL_ROWS ? left : PANEL_ROWS, n_in, panels + p * panel_bytes);
    }
}

/* pack_chunks() - what the reader has handed over, until it has read all. */
static void pack_chunks(struct load *l, const struct weight *w, uint8_t *panels)
{
    pthread_mutex_lock(&l->lock);
    for (;;) {
        struct buffer *b = take_buffer(l, BUFFER_FILLED);
        if (b != NULL) {
            pthread_mutex_unlock(&l->lock);
            pack_chunk(w, b, panels);
            pthread_mutex_lock(&l->lock);
            b->state = BUFFER_FREE;
        } else if (!l->all_read) {
            pthread_cond_wait(&l->filled, &l->lock);
        } else {
            break;
        }
    }
    pthread_mutex_unlock(&l->lock);
}

/* read_chunks() - one thread, the loader's own, reads; the others pack what it has read, and so
 * does it, where they are all busy: nobody waits for anybody before the end. */
static int read_chunks(struct load *l, const struct weight *w, size_t step, uint8_t *panels,
                       struct err *err)
{
    const size_t n_out = w->panels.n_out, n_panels = panels_count(n_out);
    const size_t panel_bytes = w->matrix_bytes / n_panels, row_bytes = panel_bytes / PANEL_ROWS;
    for (size_t from = 0; from < n_panels; from += step) {
        const size_t to = n_panels - from < step ? n_panels : from + step;
        const size_t end = to == n_panels ? n_out * row_bytes : to * panel_bytes;
        struct buffer *b = find_buffer(l);
        TRY(read_next(l, end - from * panel_bytes, b->bytes, err));
        b->from = from;
        b->to = to;
        if (b == &l->buffers[0])
            pack_chunk(w, b, panels);
        else
            hand_over(l, b);
        l->packed += (to - from) * panel_bytes;
        report(l);
    }
    return ERR_NONE;
}

/* Packs one matrix, whose rows come next. */
static int pack_matrix(struct load *l, const struct weight *w, uint8_t *panels, struct err *err)
{
    const size_t panel_bytes = w->matrix_bytes / panels_count(w->panels.n_out);
    const size_t step = panel_bytes < CHUNK_BYTES ? CHUNK_BYTES / panel_bytes : 1;
    int rc = ERR_NONE;
    TRY(grow_buffers(l, step * panel_bytes, err));
    l->all_read = false;
#pragma omp parallel num_threads(l->order->threads)
    {
#pragma omp master
        {
            rc = read_chunks(l, w, step, panels, err);
            end_reading(l);
        }
        pack_chunks(l, w, panels);
    }
    return rc;
}

/* Sizes, kernels and memory of what a tensor becomes. */
static int take_panels(const struct load *l, struct weight *w, const struct held *h,
                       const struct gguf_tensor *t, uint8_t **panels, struct err *err)
{
    w->kernels = kernels_find_format(l->order->kernels, h->format);
    CHECK(w->kernels != NULL, err, ERR_UNSUPPORTED, "tensor %.*s: no kernels for format %s",
          (int)t->name.len, t->name.data, format_find(h->format)->name);
    void *memory;
    TRY(take_memory(t, held_bytes(h), &memory, err));
    *panels = memory;
    w->panels = (struct panels){.data = memory, .n_in = h->n_in, .n_out = h->n_out};
    w->n_matrices = h->n;
    w->matrix_bytes = held_bytes(h) / h->n;
    return ERR_NONE;
}

static int load_matrices(struct load *l, struct weight *w, const struct held *h,
                         const struct gguf_tensor *t, struct err *err)
{
    uint8_t *panels;
    TRY(take_panels(l, w, h, t, &panels, err));
    for (size_t i = 0; i < h->n; i++) TRY(pack_matrix(l, w, panels + i * w->matrix_bytes, err));
    return ERR_NONE;
}

/* turn() - out[j][i] = rows[i][j], of values of so many bytes. */
static void turn(const uint8_t *rows, size_t n_rows, size_t n_columns, size_t bytes, uint8_t *out)
{
    for (size_t i = 0; i < n_rows; i++)
        for (size_t j = 0; j < n_columns; j++)
            memcpy(out + (j * n_rows + i) * bytes, rows + (i * n_columns + j) * bytes, bytes);
}

/* pack_keys() - the key rows of one head, turned round: the matrix that takes a query to the
 * latent. scratch: twice the matrix, as f32. */
static void pack_keys(const struct weight *keys, const struct format *format, const uint8_t *rows,
                      uint8_t *scratch, uint8_t *panels)
{
    size_t plain = keys->panels.n_in, width = keys->panels.n_out, n_panels = panels_count(width);
    size_t panel_bytes = keys->matrix_bytes / n_panels, bytes = panel_bytes / PANEL_ROWS / plain;
    uint8_t *turned = scratch + plain * width * sizeof(float);
    if (format->block_values == 1)
        memcpy(scratch, rows, plain * width * bytes);
    else
        format->decode(rows, (float *)(void *)scratch, plain * width);
    turn(scratch, plain, width, bytes, turned);
    for (size_t p = 0; p < n_panels; p++) {
        size_t n = width - p * PANEL_ROWS < PANEL_ROWS ? width - p * PANEL_ROWS : PANEL_ROWS;
        keys->kernels->pack(turned + p * panel_bytes, n, plain, panels + p * panel_bytes);
    }
}

/* The older form of latent attention: for each head its key rows, then its value rows. */
static int load_heads(struct load *l, const struct weight *keys, const struct weight *values,
                      const struct held held[2], const struct gguf_tensor *t,
                      uint8_t *const panels[2], uint8_t *scratch, struct err *err)
{
    const struct format *format = format_find(t->format);
    const size_t key_bytes = held[0].n_in * format_row_bytes(format, held[1].n_in);
    TRY(grow_buffers(l, key_bytes, err));
    for (size_t h = 0; h < held[0].n; h++) {
        TRY(read_next(l, key_bytes, l->buffers[0].bytes, err));
        pack_keys(keys, format, l->buffers[0].bytes, scratch, panels[0] + h * keys->matrix_bytes);
        l->packed += keys->matrix_bytes;
        TRY(pack_matrix(l, values, panels[1] + h * values->matrix_bytes, err));
    }
    return ERR_NONE;
}

static int load_latent(struct load *l, struct weight *keys, struct weight *values,
                       const struct held held[2], const struct gguf_tensor *t, struct err *err)
{
    uint8_t *panels[2];
    void *scratch;
    TRY(take_panels(l, keys, &held[0], t, &panels[0], err));
    TRY(take_panels(l, values, &held[1], t, &panels[1], err));
    TRY(take_memory(t, 2 * held[0].n_in * held[0].n_out * sizeof(float), &scratch, err));
    int rc = load_heads(l, keys, values, held, t, panels, scratch, err);
    free(scratch);
    return rc;
}

static int load_values(struct load *l, struct weight *w, const struct held *h,
                       const struct gguf_tensor *t, struct err *err)
{
    const struct format *format = format_find(t->format);
    const size_t n_values = h->n_in * h->n_out * h->n;
    const size_t step = CHUNK_BYTES / format->block_bytes * format->block_values;
    void *memory;
    TRY(take_memory(t, held_bytes(h), &memory, err));
    w->values = memory;
    w->panels = (struct panels){.n_in = h->n_in, .n_out = h->n_out * h->n};
    TRY(grow_buffers(l, CHUNK_BYTES, err));
    for (size_t from = 0; from < n_values; from += step) {
        const size_t n = n_values - from < step ? n_values - from : step;
        TRY(read_next(l, format_row_bytes(format, n), l->buffers[0].bytes, err));
        format->decode(l->buffers[0].bytes, w->values + from, n);
        for (size_t i = from; i < from + n; i++)
            CHECK(isfinite(w->values[i]), err, ERR_FILE,
                  "tensor %.*s: value %zu is not finite: the file is damaged", (int)t->name.len,
                  t->name.data, i);
        l->packed += n * sizeof(float);
        report(l);
    }
    return ERR_NONE;
}

/* note_digest() - the tensor at hand was read. */
static void note_digest(struct load *l)
{
    const struct tensor_row *row = l->now->row;
    const bool is_own = model_tensor(l->order->model, row->id, 0) == l->now->tensor;
    BUG_IF(l->w->n_digests == TENSOR_DIGESTS_MAX, "more tensors outside of layers than expected");
    l->w->digests[l->w->n_digests++] =
        (struct tensor_digest){is_own ? row->id : row->other, digest_end(l->digest)};
}

static int load_tensor(struct load *l, const struct wanted *now, struct err *err)
{
    const struct model *m = l->order->model;
    const struct gguf_tensor *t = now->tensor;
    struct held held[2];
    struct weight *to[2];
    const uint32_t n = model_held(m, now->row, t, held);
    for (uint32_t i = 0; i < n; i++)
        to[i] = slot(l->w, held[i].id, now->row->scope == SCOPE_LAYER, now->layer);
    l->now = now;
    l->read = l->packed = 0;
    digest_begin(l->digest);
    if (n == 2)
        TRY(load_latent(l, to[0], to[1], held, t, err));
    else if (held[0].is_packed)
        TRY(load_matrices(l, to[0], held, t, err));
    else
        TRY(load_values(l, to[0], held, t, err));
    l->w->bytes += model_held_bytes(m, now->row, t);
    if (is_digested(now)) note_digest(l);
    return ERR_NONE;
}

/* ---- what, and in which order ---- */

static int count_wanted(void *ctx, const struct tensor_row *row, uint32_t layer,
                        const struct gguf_tensor *t, struct err *err)
{
    struct load *l = ctx;
    (void)row;
    (void)layer;
    (void)t;
    (void)err;
    l->n_wanted++;
    return ERR_NONE;
}

static int note_wanted(void *ctx, const struct tensor_row *row, uint32_t layer,
                       const struct gguf_tensor *t, struct err *err)
{
    struct load *l = ctx;
    (void)err;
    l->wanted[l->n_wanted++] = (struct wanted){row, layer, t};
    return ERR_NONE;
}

static int compare_places(const void *a, const void *b)
{
    const struct gguf_tensor *x = ((const struct wanted *)a)->tensor;
    const struct gguf_tensor *y = ((const struct wanted *)b)->tensor;
    if (x->part != y->part) return x->part < y->part ? -1 : 1;
    return (x->offset > y->offset) - (x->offset < y->offset);
}

static int list_wanted(struct load *l, struct err *err)
{
    TRY(model_visit_range(l->order->model, l->order->range, count_wanted, l, err));
    l->wanted = calloc(l->n_wanted + 1, sizeof *l->wanted);
    CHECK(l->wanted != NULL, err, ERR_MEMORY, "no memory for a list of %zu tensors", l->n_wanted);
    l->n_wanted = 0;
    TRY(model_visit_range(l->order->model, l->order->range, note_wanted, l, err));
    qsort(l->wanted, l->n_wanted, sizeof *l->wanted, compare_places);
    return ERR_NONE;
}

static int load_all(struct load *l, struct weight_extent *extents, struct err *err)
{
    for (size_t i = 0; i < l->n_wanted; i++) {
        const struct gguf_tensor *t = l->wanted[i].tensor;
        extents[i] = (struct weight_extent){t, t->part, t->offset, t->bytes};
    }
    TRY(l->source->begin(l->source->ctx, extents, l->n_wanted, err));
    for (size_t i = 0; i < l->n_wanted; i++) TRY(load_tensor(l, &l->wanted[i], err));
    return ERR_NONE;
}

static int list_and_load(struct load *l, struct err *err)
{
    CHECK(l->digest != NULL, err, ERR_MEMORY, "no memory for a digest");
    TRY(list_wanted(l, err));
    struct weight_extent *extents = calloc(l->n_wanted + 1, sizeof *extents);
    CHECK(extents != NULL, err, ERR_MEMORY, "no memory for a list of %zu tensors", l->n_wanted);
    int rc = load_all(l, extents, err);
    free(extents);
    return rc;
}

int weights_load(struct weights *w, const struct weights_order *order, struct err *err)
{
    *w = (struct weights){.range = order->range};
    size_t groups = 1 + (size_t)(order->range.end - order->range.first);
    w->slots = calloc(groups * TENSOR_COUNT, sizeof *w->slots);
    CHECK(w->slots != NULL, err, ERR_MEMORY, "no memory for the tensors of %zu layers", groups - 1);
    struct weight_file_state files;
    const struct weight_source own = weight_source_file(&files, order->model->file);
    const size_t spare = 2 * ((size_t)order->threads - 1);
    struct load l = {.w = w,
                     .order = order,
                     .source = order->source != NULL ? order->source : &own,
                     .n_buffers = 1 + (spare < BUFFERS_MAX ? spare : BUFFERS_MAX),
                     .digest = digest_open(),
                     .lock = PTHREAD_MUTEX_INITIALIZER,
                     .filled = PTHREAD_COND_INITIALIZER};
    int rc = list_and_load(&l, err);
    digest_close(l.digest);
    free(l.wanted);
    free_buffers(&l);
    if (rc != ERR_NONE) weights_free(w);
    return rc;
}

void weights_free(struct weights *w)
{
    size_t n = w->slots == NULL ? 0 : (1 + (size_t)(w->range.end - w->range.first)) * TENSOR_COUNT;
    for (size_t i = 0; i < n; i++) {
        free(w->slots[i].values);
        free((void *)(uintptr_t)w->slots[i].panels.data);
    }
    free(w->slots);
    *w = (struct weights){0};
}

static bool is_held(const struct weight *weight)
{
    return weight->kernels != NULL || weight->values != NULL;
}

const struct weight *weights_get(const struct weights *w, enum tensor_id id, uint32_t layer)
{
    if (id == TENSOR_NONE) return NULL;
    /* In one family an id has one scope, so at most one of the two slots is ever filled. */
    const struct weight *outside = slot(w, id, false, 0);
    if (is_held(outside)) return outside;
    const struct weight *inside = slot(w, id, true, layer);
    return is_held(inside) ? inside : NULL;
}

const float *weights_values(const struct weights *w, enum tensor_id id, uint32_t layer)
{
    const struct weight *weight = weights_get(w, id, layer);
    return weight == NULL ? NULL : weight->values;
}

const struct weight *weights_output(const struct weights *w)
{
    const struct weight *own = weights_get(w, TENSOR_OUTPUT, w->range.first);
    return own != NULL ? own : weights_get(w, TENSOR_TOKEN_EMBD, w->range.first);
}
