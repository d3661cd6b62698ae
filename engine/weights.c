/* weights - see weights.h. */
#include "engine/weights.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
    CHUNK_BYTES = 4 << 20, /* packed between two looks at the clock: from a disk, 40 ms at 100 MB/s */
    HUGE_PAGE = 2 << 20,
};

struct load {
    struct weights *w;
    const struct model *model;
    const struct kernels *kernels;
    uint32_t threads;
    weights_progress_fn *progress;
    void *ctx;
};

static struct weight *slot(const struct weights *w, enum tensor_id id, bool in_layer,
                           uint32_t layer)
{
    size_t group = in_layer ? 1 + (size_t)(layer - w->range.first) : 0;
    return &w->slots[group * TENSOR_COUNT + id];
}

/* drop_pages() - the file's pages under [from, to) are not needed any more; they can be read again,
 * so rounding to whole pages does no harm. */
static void drop_pages(const uint8_t *from, const uint8_t *to)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t first = (uintptr_t)from / page * page;
    uintptr_t last = ((uintptr_t)to + page - 1) / page * page;
    madvise((void *)first, last - first, MADV_DONTNEED);
}

/* take_memory() - in huge pages, as far as whole ones fit and the system has them: a product that
 * waits for memory would wait for page tables, too. */
static int take_memory(const struct gguf_tensor *t, uint64_t bytes, void **out, struct err *err)
{
    size_t align = bytes < HUGE_PAGE ? 64 : HUGE_PAGE;
    *out = aligned_alloc(align, (bytes + 63) / 64 * 64);
    CHECK(*out != NULL, err, ERR_MEMORY,
          "tensor %.*s needs %" PRIu64 " bytes and the system has no memory left: use more workers",
          (int)t->name.len, t->name.data, bytes);
    if (align == HUGE_PAGE) madvise(*out, bytes / HUGE_PAGE * HUGE_PAGE, MADV_HUGEPAGE);
    return ERR_NONE;
}

static void report(const struct load *l, uint32_t layer, uint64_t done)
{
    if (l->progress != NULL) l->progress(l->ctx, layer, l->w->bytes + done);
}

/* Packs one matrix whose rows lie side by side at rows; done: bytes of the tensor before it. */
static void pack_matrix(const struct load *l, const struct weight *w, const uint8_t *rows,
                        uint8_t *panels, uint32_t layer, uint64_t done)
{
    size_t n_in = w->panels.n_in, n_out = w->panels.n_out, n_panels = panels_count(n_out);
    size_t panel_bytes = w->matrix_bytes / n_panels, row_bytes = panel_bytes / PANEL_ROWS;
    kernel_pack_fn *pack = w->kernels->pack;
    size_t step = CHUNK_BYTES / panel_bytes + 1;
    for (size_t from = 0; from < n_panels; from += step) {
        size_t to = n_panels - from < step ? n_panels : from + step;
#pragma omp parallel for num_threads(l->threads) schedule(static)
        for (size_t p = from; p < to; p++) {
            size_t n = n_out - p * PANEL_ROWS < PANEL_ROWS ? n_out - p * PANEL_ROWS : PANEL_ROWS;
            pack(rows + p * panel_bytes, n, n_in, panels + p * panel_bytes);
        }
        size_t end = to == n_panels ? n_out * row_bytes : to * panel_bytes;
        drop_pages(rows + from * panel_bytes, rows + end);
        report(l, layer, done + to * panel_bytes);
    }
}

/* Sizes, kernels and memory of what a tensor becomes. */
static int take_panels(const struct load *l, struct weight *w, const struct held *h,
                       const struct gguf_tensor *t, uint8_t **panels, struct err *err)
{
    w->kernels = kernels_find_format(l->kernels, h->format);
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

static int load_matrices(const struct load *l, struct weight *w, const struct held *h,
                         uint32_t layer, const struct gguf_tensor *t, struct err *err)
{
    uint8_t *panels;
    TRY(take_panels(l, w, h, t, &panels, err));
    size_t file_bytes = h->n_out * format_row_bytes(format_find(h->format), h->n_in);
    for (size_t i = 0; i < h->n; i++)
        pack_matrix(l, w, t->data + i * file_bytes, panels + i * w->matrix_bytes, layer,
                    i * w->matrix_bytes);
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
static int load_latent(const struct load *l, struct weight *keys, struct weight *values,
                       const struct held held[2], uint32_t layer, const struct gguf_tensor *t,
                       struct err *err)
{
    uint8_t *key_panels, *value_panels;
    void *scratch;
    const struct format *format = format_find(t->format);
    TRY(take_panels(l, keys, &held[0], t, &key_panels, err));
    TRY(take_panels(l, values, &held[1], t, &value_panels, err));
    TRY(take_memory(t, 2 * held[0].n_in * held[0].n_out * sizeof(float), &scratch, err));
    const uint8_t *rows = t->data;
    size_t row_bytes = format_row_bytes(format, held[1].n_in);
    uint64_t done = held_bytes(&held[0]);
    for (size_t h = 0; h < held[0].n; h++) {
        pack_keys(keys, format, rows, scratch, key_panels + h * keys->matrix_bytes);
        rows += held[0].n_in * row_bytes;
        pack_matrix(l, values, rows, value_panels + h * values->matrix_bytes, layer,
                    done + h * values->matrix_bytes);
        rows += held[1].n_out * row_bytes;
    }
    free(scratch);
    drop_pages(t->data, t->data + t->bytes);
    return ERR_NONE;
}

static int load_values(const struct load *l, struct weight *w, const struct held *h, uint32_t layer,
                       const struct gguf_tensor *t, struct err *err)
{
    size_t n_values = h->n_in * h->n_out * h->n;
    void *memory;
    TRY(take_memory(t, held_bytes(h), &memory, err));
    w->values = memory;
    w->panels = (struct panels){.n_in = h->n_in, .n_out = h->n_out * h->n};
    format_find(t->format)->decode(t->data, w->values, n_values);
    for (size_t i = 0; i < n_values; i++)
        CHECK(isfinite(w->values[i]), err, ERR_FILE,
              "tensor %.*s: value %zu is not finite: the file is damaged", (int)t->name.len,
              t->name.data, i);
    drop_pages(t->data, t->data + t->bytes);
    report(l, layer, held_bytes(h));
    return ERR_NONE;
}

static int load_tensor(void *ctx, const struct tensor_row *row, uint32_t layer,
                       const struct gguf_tensor *t, struct err *err)
{
    struct load *l = ctx;
    struct held held[2];
    uint32_t n = model_held(l->model, row, t, held);
    struct weight *to[2];
    for (uint32_t i = 0; i < n; i++)
        to[i] = slot(l->w, held[i].id, row->scope == SCOPE_LAYER, layer);
    if (n == 2)
        TRY(load_latent(l, to[0], to[1], held, layer, t, err));
    else if (held[0].is_packed)
        TRY(load_matrices(l, to[0], held, layer, t, err));
    else
        TRY(load_values(l, to[0], held, layer, t, err));
    l->w->bytes += model_held_bytes(l->model, row, t);
    return ERR_NONE;
}

int weights_load(struct weights *w, const struct model *m, struct layer_range range,
                 const struct kernels *kernels, uint32_t threads, weights_progress_fn *progress,
                 void *ctx, struct err *err)
{
    *w = (struct weights){.range = range};
    size_t groups = 1 + (size_t)(range.end - range.first);
    w->slots = calloc(groups * TENSOR_COUNT, sizeof *w->slots);
    CHECK(w->slots != NULL, err, ERR_MEMORY, "no memory for the tensors of %zu layers", groups - 1);
    struct load l = {.w = w,
                     .model = m,
                     .kernels = kernels,
                     .threads = threads,
                     .progress = progress,
                     .ctx = ctx};
    int rc = model_visit_range(m, range, load_tensor, &l, err);
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
