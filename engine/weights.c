/* weights - see weights.h. */
#include "engine/weights.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Packed between two looks at the clock; at 100 MB/s from a disk this is 40 ms. */
enum { CHUNK_BYTES = 4 << 20 };

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

static int take_memory(const struct gguf_tensor *t, uint64_t bytes, void **out, struct err *err)
{
    *out = aligned_alloc(64, (bytes + 63) / 64 * 64);
    CHECK(*out != NULL, err, ERR_MEMORY,
          "tensor %.*s needs %" PRIu64 " bytes and the system has no memory left: use more workers",
          (int)t->name.len, t->name.data, bytes);
    return ERR_NONE;
}

static void report(const struct load *l, uint32_t layer, uint64_t done)
{
    if (l->progress != NULL) l->progress(l->ctx, layer, l->w->bytes + done);
}

static int load_matrix(const struct load *l, struct weight *slot, uint32_t layer,
                       const struct gguf_tensor *t, struct err *err)
{
    const struct format *format = format_find(t->format);
    slot->kernels = kernels_find_format(l->kernels, t->format);
    CHECK(slot->kernels != NULL, err, ERR_UNSUPPORTED, "tensor %.*s: no kernels for format %s",
          (int)t->name.len, t->name.data, format->name);
    size_t n_in = t->shape[0], n_out = t->shape[1];
    size_t row_bytes = format_row_bytes(format, n_in);
    size_t panel_bytes = PANEL_ROWS * row_bytes, n_panels = panels_count(n_out);
    void *memory;
    TRY(take_memory(t, n_panels * panel_bytes, &memory, err));
    uint8_t *panels = memory;
    slot->panels = (struct panels){.data = panels, .n_in = n_in, .n_out = n_out};

    kernel_pack_fn *pack = slot->kernels->pack;
    size_t step = CHUNK_BYTES / panel_bytes + 1;
    for (size_t from = 0; from < n_panels; from += step) {
        size_t to = n_panels - from < step ? n_panels : from + step;
#pragma omp parallel for num_threads(l->threads) schedule(static)
        for (size_t p = from; p < to; p++) {
            size_t rows = n_out - p * PANEL_ROWS < PANEL_ROWS ? n_out - p * PANEL_ROWS : PANEL_ROWS;
            pack(t->data + p * panel_bytes, rows, n_in, panels + p * panel_bytes);
        }
        size_t end = to == n_panels ? n_out * row_bytes : to * panel_bytes;
        drop_pages(t->data + from * panel_bytes, t->data + end);
        report(l, layer, to * panel_bytes);
    }
    return ERR_NONE;
}

static int load_values(const struct load *l, struct weight *slot, uint32_t layer,
                       const struct gguf_tensor *t, struct err *err)
{
    size_t n_in = t->shape[0], n_out = t->shape[1] * t->shape[2];
    void *memory;
    TRY(take_memory(t, n_in * n_out * sizeof(float), &memory, err));
    slot->values = memory;
    slot->panels = (struct panels){.n_in = n_in, .n_out = n_out};
    format_find(t->format)->decode(t->data, slot->values, n_in * n_out);
    for (size_t i = 0; i < n_in * n_out; i++)
        CHECK(isfinite(slot->values[i]), err, ERR_FILE,
              "tensor %.*s: value %zu is not finite: the file is damaged", (int)t->name.len,
              t->name.data, i);
    drop_pages(t->data, t->data + t->bytes);
    report(l, layer, n_in * n_out * sizeof(float));
    return ERR_NONE;
}

static int load_tensor(void *ctx, const struct tensor_row *row, uint32_t layer,
                       const struct gguf_tensor *t, struct err *err)
{
    struct load *l = ctx;
    struct weight *to = slot(l->w, row->id, row->scope == SCOPE_LAYER, layer);
    bool as_values = row->role == ROLE_VECTOR || row->id == TENSOR_POSITION_EMBD;
    TRY(as_values ? load_values(l, to, layer, t, err) : load_matrix(l, to, layer, t, err));
    l->w->bytes += model_held_bytes(row, t);
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
