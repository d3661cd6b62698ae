/* Attend: how a batch's attention is shared between threads. One row looks back at 8192 positions
 * of a cache; a spy in place of the kernel counts what each thread reads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "engine/attention.h"
#include "tests/engine/kernel_tables.h"

#include <omp.h>

enum { CTX = 8192, TILES = CTX / ATTENTION_TILE, THREADS_MAX = 3 };

struct shape {
    uint32_t n_head, n_head_kv, dim;
};
static const struct shape shapes[] = {{32, 4, 64}, {8, 2, 128}, {3, 3, 32}, {4, 1, 64}};

/* One layer and one sequence that has come to the end of its context. */
struct past {
    struct shape shape;
    struct kv_cache kv;
    struct kv_layer layer;
    uint32_t table[CTX / KV_BLOCK_POSITIONS];
    float *q, *parts;
    uint64_t n_parts;
};

static void fill_head(const struct past *p, uint32_t head)
{
    const struct kernels *generic = &tables[ISA_GENERIC];
    const size_t dim = p->shape.dim;
    float *values = random_floats(dim);
    for (uint32_t pos = 0; pos < CTX; pos++) {
        uint8_t *keys = kv_cache_block(&p->kv, 0, 0, pos / KV_BLOCK_POSITIONS, head);
        uint8_t *v = keys + kv_part_bytes(p->kv.format, dim);
        for (size_t d = 0; d < dim; d++) values[d] = random_float();
        generic->store[p->kv.format](values, dim, keys, pos % KV_BLOCK_POSITIONS, true);
        generic->store[p->kv.format](values, dim, v, pos % KV_BLOCK_POSITIONS, false);
    }
    free(values);
}

static void past_open(struct past *p, struct shape shape, enum kv_format format)
{
    const uint32_t n_blocks = CTX / KV_BLOCK_POSITIONS;
    *p = (struct past){.shape = shape};
    p->layer = (struct kv_layer){.head_bytes = 2 * kv_part_bytes(format, shape.dim),
                                 .row = {shape.n_head_kv, shape.dim, shape.dim}};
    p->kv = (struct kv_cache){.format = format,
                              .n_classes = 1,
                              .n_seqs = 1,
                              .blocks_per_seq = n_blocks,
                              .n_blocks = {n_blocks},
                              .n_layers = 1,
                              .layer = &p->layer,
                              .pool = take(p->layer.head_bytes * n_blocks * shape.n_head_kv),
                              .table = p->table};
    for (uint32_t i = 0; i < n_blocks; i++) p->table[i] = (i * 37 + 5) % n_blocks;
    for (uint32_t h = 0; h < shape.n_head_kv; h++) fill_head(p, h);
    p->q = random_floats((size_t)shape.n_head * shape.dim);
    p->n_parts = (uint64_t)shape.n_head * (TILES + 1) * (shape.dim + 2);
    p->parts = take(p->n_parts * sizeof *p->parts);
}

static void past_close(struct past *p)
{
    free(p->kv.pool);
    free(p->q);
    free(p->parts);
}

/* Positions that each thread has read, of all heads of keys. */
static uint32_t n_read[THREADS_MAX];
static kernel_attention_fn *kernel;

static KERNEL_ATTENTION(spy)
{
    n_read[omp_get_thread_num()] += tile->n_valid[0] - tile->first[0];
    kernel(queries, tile);
}

/* attend() - the last position's result of every head, by a team of threads. */
static void attend(struct past *past, const struct kernels *table, uint32_t threads, float *out)
{
    const struct shape s = past->shape;
    struct kernels kernels = *table;
    struct layer_hparams layer = {.n_head = s.n_head, .n_head_kv = s.n_head_kv};
    struct model model = {.hp = {.n_layer = 1, .layer = &layer, .attn_scale = 1}};
    struct weight slots[2 * TENSOR_COUNT] = {0};
    struct weights weights = {.range = {0, 1}, .slots = slots};
    struct row_group group = {0, 1};
    struct buffers buffers = {.groups = &group, .parts = past->parts, .n_parts = past->n_parts};
    uint32_t pos = CTX - 1, seq = 0;
    struct batch batch = {.n_rows = 1, .pos = &pos, .seq = &seq};
    struct pass pass = {.model = &model,
                        .kernels = &kernels,
                        .weights = &weights,
                        .kv = &past->kv,
                        .buffers = &buffers,
                        .batch = &batch,
                        .n_rows = 1,
                        .n_groups = 1};
    size_t width = (size_t)s.n_head * s.dim;
    struct attention a = {.n_head = s.n_head,
                          .n_head_kv = s.n_head_kv,
                          .dim_k = s.dim,
                          .dim_v = s.dim,
                          .q = past->q,
                          .out = out,
                          .q_row = width,
                          .out_row = width,
                          .out_head = s.dim};
    struct barrier barrier;
    barrier_init(&barrier);
    memset(n_read, 0, sizeof n_read);
    kernel = table->attention[past->kv.format];
    kernels.attention[past->kv.format] = spy;
#pragma omp parallel num_threads((int)threads)
    {
        struct team team = {
            .id = (uint32_t)omp_get_thread_num(), .size = threads, .barrier = &barrier};
        attention_attend(&pass, &team, &a);
    }
}

static void check_shares(uint32_t n_head_kv, uint32_t threads)
{
    uint32_t all = n_head_kv * CTX, sum = 0;
    for (uint32_t t = 0; t < threads; t++) {
        sum += n_read[t];
        assert_in_range(n_read[t], all / threads - ATTENTION_TILE, all / threads + ATTENTION_TILE);
    }
    assert_int_equal(sum, all);
}

static void decode_attention_at_8k_is_split_over_all_threads_and_gives_the_same_bits(void **state)
{
    (void)state;
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (int format = 0; format < KV_FORMAT_COUNT; format++) {
            struct past past;
            past_open(&past, shapes[s], (enum kv_format)format);
            size_t n = (size_t)shapes[s].n_head * shapes[s].dim;
            float *want = take(n * sizeof *want), *got = take(n * sizeof *got);
            for (int i = 0; i < n_tables; i++) {
                attend(&past, &tables[i], 1, want);
                for (uint32_t threads = 2; threads <= THREADS_MAX; threads++) {
                    memset(got, 0, n * sizeof *got);
                    attend(&past, &tables[i], threads, got);
                    check_shares(shapes[s].n_head_kv, threads);
                    assert_memory_equal(got, want, n * sizeof *got);
                }
            }
            free(want);
            free(got);
            past_close(&past);
        }
}

int main(void)
{
    if (!tables_init()) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decode_attention_at_8k_is_split_over_all_threads_and_gives_the_same_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
