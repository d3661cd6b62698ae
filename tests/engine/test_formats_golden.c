/* Every number format in a whole model: what quantised activations cost against the same weights in
 * F32, and the bitwise promise through other ways of cutting a line. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/engine/golden.h"
#include "tests/engine/stage_line.h"
#include "tests/test_data.h"

#include <sys/mman.h>
#include <unistd.h>

static enum isa best_isa;

/* ---- a model with other matrices ---- */

/* The tensors of a model, some of them replaced. Their data lies in a mapped file, as tensor data
 * must. */
struct recast {
    struct model model; /* shares everything but tensors with the original */
    struct gguf_tensor *tensors;
    uint8_t *map;
    size_t bytes;
};

/* A tensor's new data and number format, at most 4 bytes a value; false: it stays. */
typedef bool recast_fn(struct gguf_tensor *t, uint32_t format, uint8_t *data);

static struct recast recast_new(const struct model *m, recast_fn *recast, uint32_t format)
{
    size_t slots = (1 + (size_t)m->hp.n_layer) * TENSOR_COUNT;
    struct recast r = {.model = *m, .tensors = calloc(slots, sizeof *r.tensors)};
    const struct gguf_tensor **pointers = calloc(slots, sizeof *pointers);
    assert_non_null(r.tensors);
    assert_non_null(pointers);
    r.model.tensors = pointers;
    for (size_t i = 0; i < slots; i++)
        if (m->tensors[i] != NULL) r.bytes += m->tensors[i]->n_values * sizeof(float) + 64;
    FILE *file = tmpfile();
    assert_non_null(file);
    assert_int_equal(ftruncate(fileno(file), (off_t)r.bytes), 0);
    r.map = mmap(NULL, r.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fileno(file), 0);
    assert_ptr_not_equal(r.map, MAP_FAILED);
    fclose(file);
    uint8_t *at = r.map;
    for (size_t i = 0; i < slots; i++) {
        if (m->tensors[i] == NULL) continue;
        struct gguf_tensor *t = &r.tensors[i];
        *t = *m->tensors[i];
        pointers[i] = t;
        if (t->n_dims < 2 || !recast(t, format, at)) continue;
        t->data = at;
        t->bytes = format_row_bytes(format_find(t->format), t->n_values);
        at += (t->bytes + 63) / 64 * 64;
    }
    return r;
}

static void recast_free(struct recast *r)
{
    munmap(r->map, r->bytes);
    free(r->model.tensors);
    free(r->tensors);
}
