/* fuzz_gguf - any bytes as a GGUF file, through the reader and the checks of a model.
 *
 * What is accepted is read: every key and element,
 * and the ends of every tensor.
 * Station before: tests/fuzz/run.sh. Stations inside: engine/gguf, gguf_parts, hparams, model. */
#include "engine/gguf.h"
#include "engine/model.h"
#include "tests/fuzz/fuzz_file.h"

enum { ZEROS = 1 << 20 };

static volatile uint64_t sink;

static void touch(const void *bytes, size_t n)
{
    const uint8_t *p = bytes;
    uint64_t sum = 0;
    for (size_t i = 0; i < n; i++) sum += p[i];
    sink += sum;
}

static void read_kv(const struct gguf *g, const struct gguf_kv *kv)
{
    struct gguf_str key = gguf_kv_key(kv), value = gguf_kv_value(kv), text = {"", 0};
    touch(value.data, value.len);
    char name[128];
    if (key.len < sizeof name) {
        memcpy(name, key.data, key.len);
        name[key.len] = '\0';
        struct err err;
        uint32_t u32 = 0;
        uint64_t u64 = 0;
        float f32 = 0;
        bool flag = false;
        sink += (uint64_t)(gguf_find(g, name) == kv);
        sink += (uint64_t)gguf_get_u32(g, name, &u32, &err);
        sink += (uint64_t)gguf_get_u64(g, name, &u64, &err);
        sink += (uint64_t)gguf_get_f32(g, name, &f32, &err);
        sink += (uint64_t)gguf_get_bool(g, name, &flag, &err);
        if (gguf_get_str(g, name, &text, &err) == ERR_NONE) touch(text.data, text.len);
    }
    const enum gguf_type element = gguf_kv_element_type(kv);
    touch(gguf_type_name(gguf_kv_type(kv)), 1);
    for (uint64_t i = 0; i < gguf_array_length(kv); i++) {
        if (element == GGUF_STRING) {
            text = gguf_array_str(kv, i);
            touch(text.data, text.len);
        } else if (element == GGUF_F32) {
            sink += gguf_array_f32(kv, i) > 0;
        } else if (element != GGUF_F64) {
            sink += (uint64_t)gguf_array_int(kv, i);
        }
    }
}

static void read_all(const struct gguf *g)
{
    for (uint64_t i = 0; i < gguf_kv_count(g); i++) read_kv(g, gguf_kv_at(g, i));
    for (uint64_t i = 0; i < gguf_tensor_count(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        touch(t->name.data, t->name.len);
        touch(t->data, 1);
        touch(t->data + t->bytes - 1, 1);
    }
    sink += gguf_digest(g) + gguf_file_bytes(g);
    for (uint32_t part = 0; part < gguf_part_count(g); part++) {
        const struct gguf_header h = gguf_part_header(g, part);
        uint8_t bytes[64];
        struct err err;
        const size_t n = h.n_bytes < sizeof bytes ? h.n_bytes : sizeof bytes;
        touch(h.bytes, h.n_bytes);
        gguf_read_ahead(g, part, 0, n);
        sink += (uint64_t)gguf_read(g, part, 0, bytes, n, &err);
        sink += (uint64_t)gguf_read(g, part, h.file_bytes, bytes, 1, &err); /* behind the end */
    }
}

static int count_tensor(void *ctx, const struct tensor_row *row, uint32_t layer,
                        const struct gguf_tensor *tensor, struct err *err)
{
    const struct model *m = ctx;
    (void)tensor;
    (void)err;
    sink += (uint64_t)(model_tensor(m, row->id, layer) != NULL);
    return ERR_NONE;
}

/* visit_stages() - as the first, a middle and the last stage of a line would. */
static void visit_stages(struct model *m)
{
    const uint32_t n = m->hp.n_layer, cuts[] = {0, n / 3, n - n / 3, n};
    struct err err;
    for (int i = 0; i < 3; i++)
        sink += (uint64_t)model_visit_range(m, (struct layer_range){cuts[i], cuts[i + 1]},
                                            count_tensor, m, &err);
}

static void open_both(const char *path)
{
    struct err err;
    struct gguf *g;
    if (gguf_open(&g, path, &err) == ERR_NONE) {
        read_all(g);
        gguf_close(g);
    }
    struct model *m;
    if (model_open(&m, path, &err) == ERR_NONE) {
        read_all(m->file);
        visit_stages(m);
        sink += m->digest;
        model_close(m);
    }
}

/* open_header() - as a worker that gets it from another host; the data is not here. */
static void open_header(const uint8_t *data, size_t size)
{
    const struct gguf_header h = {data, size, 4 * (uint64_t)size, 0};
    struct err err;
    struct model *m;
    if (model_open_headers(&m, "elsewhere.gguf", &h, 1, &err) != ERR_NONE) return;
    visit_stages(m);
    sink += m->digest;
    model_close(m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    open_header(data, size);
    open_both(fuzz_file(data, size, 0));
    open_both(fuzz_file(data, size, ZEROS));
    return 0;
}
