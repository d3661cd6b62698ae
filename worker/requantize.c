/* requantize - see requantize.h. */
#include "worker/requantize.h"

#include "engine/gguf_parts.h"
#include "engine/log.h"
#include "engine/quant_formats.h"
#include "worker/gguf_write.h"
#include "worker/mixture.h"
#include "worker/pour.h"

#include <inttypes.h>
#include <math.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct job {
    const struct quantize_order *order;
    struct gguf *in;
    struct gguf_writer *out;
    uint32_t n_layer;
};

/* ---- the header ---- */

/* is_replaced() - keys that speak of the file that was read. */
static bool is_replaced(struct gguf_str key)
{
    static const char *const keys[] = {
        "general.alignment", "general.file_type", "general.quantization_version",
        "split.no",          "split.count",       "split.tensors.count"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        if (key.len == strlen(keys[i]) && memcmp(key.data, keys[i], key.len) == 0) return true;
    return false;
}

static void put_metadata(const struct job *j)
{
    for (uint64_t i = 0; i < gguf_kv_count(j->in); i++) {
        const struct gguf_kv *kv = gguf_kv_at(j->in, i);
        if (!is_replaced(gguf_kv_key(kv))) gguf_writer_put_kv(j->out, kv);
    }
    gguf_writer_put_u32(j->out, "general.quantization_version", 2);
    gguf_writer_put_u32(j->out, "general.file_type", mixture_file_type(j->order->format));
}

static uint32_t count_layers(const struct gguf *in)
{
    uint32_t n = 0;
    for (uint64_t i = 0; i < gguf_tensor_count(in); i++) {
        uint32_t layer;
        struct gguf_str suffix;
        if (mixture_layer(gguf_tensor_at(in, i), &layer, &suffix) && layer >= n) n = layer + 1;
    }
    return n;
}

/* out_format() - what cannot be decoded stays as it is. */
static uint32_t out_format(const struct job *j, const struct gguf_tensor *t)
{
    if (format_find(t->format)->decode == NULL) return t->format;
    return mixture_choose(t, j->order->format, j->n_layer);
}

static void warn_of_loss(const struct job *j)
{
    for (uint64_t i = 0; i < gguf_tensor_count(j->in); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(j->in, i);
        if (format_find(t->format)->block_values == 1 || out_format(j, t) == t->format) continue;
        log_line(LOG_WARN,
                 "%s: tensor %.*s is %s already: two roundings lose more than one; an F32, F16 or "
                 "BF16 file is the better start",
                 j->order->in, (int)t->name.len, t->name.data, format_find(t->format)->name);
        return;
    }
}

/* ---- tensor by tensor ---- */

/* What fill_decoded() reads. */
struct source {
    const char *path;
    const struct gguf_tensor *tensor;
};

/* fill_decoded() - see pouring. */
static int fill_decoded(const void *ctx, uint64_t first, size_t n, float *out, struct err *err)
{
    const struct source *source = ctx;
    const struct gguf_tensor *t = source->tensor;
    const struct format *format = format_find(t->format);
    format->decode(t->data + format_row_bytes(format, first), out, n);
    for (size_t i = 0; i < n; i++)
        CHECK(isfinite(out[i]), err, ERR_NUMERIC,
              "%s: tensor %.*s: weight %" PRIu64 " is not finite: the file is damaged",
              source->path, (int)t->name.len, t->name.data, first + i);
    return ERR_NONE;
}

/* copy_bytes() - a piece at a time, so that the output never waits for a whole tensor. */
static int copy_bytes(const struct job *j, uint64_t index, const struct gguf_tensor *t,
                      struct err *err)
{
    enum { STEP = 1 << 20 };
    for (uint64_t at = 0; at < t->bytes; at += STEP) {
        const uint64_t left = t->bytes - at;
        TRY(gguf_writer_write(j->out, index, at, t->data + at, left < STEP ? left : STEP, err));
    }
    return ERR_NONE;
}

/* forget_pages() - the input's pages are not needed again; without this a large file would fill
 * the memory. Rounding to whole pages does no harm: they can be read again. */
static void forget_pages(const struct gguf_tensor *t)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    const uintptr_t first = (uintptr_t)t->data / page * page;
    const uintptr_t end = ((uintptr_t)t->data + t->bytes + page - 1) / page * page;
    madvise((void *)first, end - first, MADV_DONTNEED);
}

static int write_tensor(const struct job *j, uint64_t index, struct made_file *made,
                        struct err *err)
{
    const struct gguf_tensor *t = gguf_tensor_at(j->in, index);
    const struct source source = {j->order->in, t};
    const struct pouring pouring = {
        .writer = j->out,
        .tensor = index,
        .format = out_format(j, t),
        .n_values = t->shape[0] * t->shape[1] * t->shape[2] * t->shape[3],
        .n_threads = j->order->how.n_threads,
        .fill = fill_decoded,
        .ctx = &source,
    };
    if (pouring.format == t->format)
        TRY(copy_bytes(j, index, t, err));
    else
        TRY(pour_tensor(&pouring, err));
    forget_pages(t);
    made->n_tensors++;
    made->n_values += pouring.n_values;
    return ERR_NONE;
}

static int write_file(struct job *j, struct made_file *made, struct err *err)
{
    const struct making *how = &j->order->how;
    j->n_layer = count_layers(j->in);
    warn_of_loss(j);
    put_metadata(j);
    for (uint64_t i = 0; i < gguf_tensor_count(j->in); i++) {
        struct gguf_tensor t = *gguf_tensor_at(j->in, i);
        t.format = out_format(j, &t);
        gguf_writer_add_tensor(j->out, &t);
    }
    TRY(gguf_writer_begin(j->out, err));
    made->bytes = gguf_writer_file_bytes(j->out);
    uint64_t done = 0;
    for (uint64_t i = 0; i < gguf_tensor_count(j->in); i++) {
        if (how->progress != NULL) how->progress(how->progress_ctx, done, gguf_file_bytes(j->in));
        TRY(write_tensor(j, i, made, err));
        done += gguf_tensor_at(j->in, i)->bytes;
    }
    return gguf_writer_finish(j->out, err);
}

int requantize_file(const struct quantize_order *order, struct made_file *made, struct err *err)
{
    *made = (struct made_file){0};
    struct job j = {.order = order};
    int rc = gguf_parts_open(&j.in, order->in, err);
    if (rc == ERR_NONE) rc = gguf_writer_open(&j.out, order->out, err);
    if (rc == ERR_NONE) rc = write_file(&j, made, err);
    gguf_writer_close(j.out);
    gguf_close(j.in);
    return rc;
}
