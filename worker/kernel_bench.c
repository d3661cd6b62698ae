/* kernel_bench - see kernel_bench.h. */
#include "worker/kernel_bench.h"

#include "engine/kernels/kernels.h"
#include "engine/weights_stream.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    ARENA_BYTES = 512 << 20, /* more than a cache holds */
    FILL = 0x3c, /* a byte of ordinary numbers in all formats: f16 1.06, f32 and bf16 0.0115 */
    ROWS_MANY = 512,
    WIDEST = 16384, /* values of a row */
    REPEATS = 3,
    BUDGET_MS = 60, /* of one repeat */
};

struct kernel_bench {
    kernel_figure_fn *on_figure;
    void *ctx;
    const struct kernel_limits *limits;
    struct kernels kernels, blas;
    double peak_float, peak_block; /* multiply-adds a second; NAN: not known */
    uint8_t *arena;                /* [ARENA_BYTES] */
    float *x, *y;                  /* [ROWS_MANY][WIDEST] */
    int8_t *q8;                    /* [ROWS_MANY][WIDEST] */
    float *scale;                  /* [ROWS_MANY][WIDEST / 32] */
    int32_t *sum;
};

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t); /* others may want the core, too */
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* step() - do a piece of the work; returns how much that was. */
typedef double step_fn(void *ctx);

/* rate() - work a second, the best of a few repeats: what disturbs only ever takes away. */
static double rate(step_fn *step, void *ctx)
{
    double best = 0;
    step(ctx);
    for (int i = 0; i < REPEATS; i++) {
        double work = 0, begin = now_s(), took;
        do {
            work += step(ctx);
            took = now_s() - begin;
        } while (took < BUDGET_MS * 1e-3);
        if (work / took > best) best = work / took;
    }
    return best;
}

/* ---- the limits ---- */

static double read_arena(void *ctx)
{
    struct kernel_bench *b = ctx;
    struct weight slots[TENSOR_COUNT * 2] = {0};
    slots[0] =
        (struct weight){.panels = {.data = b->arena}, .n_matrices = 1, .matrix_bytes = ARENA_BYTES};
    const struct weights all = {.range = {0, 1}, .slots = slots};
    return (double)weights_stream(&all, 1, UINT64_MAX);
}

static double peak_step(void *ctx)
{
    kernel_peak_fn *const *peak = ctx;
    return (double)(*peak)(100000);
}

static double measure_peak(kernel_peak_fn *peak)
{
    return peak == NULL ? (double)NAN : rate(peak_step, &peak);
}

/* ---- products ---- */

struct product {
    struct kernel_bench *b;
    const struct kernels *kernels;
    const struct format_kernels *format;
    struct panels w;
    size_t n_rows, panel_bytes, n_panels;
    size_t matrix, panel; /* where the walk over the arena is */
};

/* A bite of the walk, as a pass takes it; returns the panels done. */
static double product_step(void *ctx)
{
    struct product *p = ctx;
    const struct kernel_bench *b = p->b;
    const size_t matrix_bytes = p->panel_bytes * p->n_panels;
    struct panels w = p->w;
    w.data = b->arena + p->matrix * matrix_bytes;
    const size_t left = p->n_panels - p->panel, step = p->kernels->bite_panels;
    const size_t end = p->panel + (left < step ? left : step);
    for (size_t r = 0; r < p->n_rows; r += p->kernels->bite_rows) {
        const size_t n =
            p->n_rows - r < p->kernels->bite_rows ? p->n_rows - r : p->kernels->bite_rows;
        const struct activations x = {.f32 = b->x + r * w.n_in,
                                      .q8 = b->q8 + r * w.n_in,
                                      .scale = b->scale + r * w.n_in / QUANT_BLOCK,
                                      .sum = b->sum + r * w.n_in / QUANT_BLOCK};
        p->format->matmul(&w, p->panel, end, &x, n, b->y + r * w.n_out, w.n_out);
    }
    const double done = (double)(end - p->panel);
    p->panel = end % p->n_panels;
    if (p->panel == 0) p->matrix = (p->matrix + 1) % (ARENA_BYTES / matrix_bytes);
    return done;
}

static double panel_rate(struct kernel_bench *b, const struct kernels *kernels, size_t format,
                         const struct kernel_figure *f)
{
    struct product p = {.b = b,
                        .kernels = kernels,
                        .format = &kernels->format[format],
                        .w = {.n_in = f->n_in, .n_out = f->n_out},
                        .n_rows = f->rows};
    p.n_panels = panels_count(f->n_out);
    p.panel_bytes = PANEL_ROWS * format_row_bytes(format_find(p.format->format), f->n_in);
    return rate(product_step, &p);
}

static int measure_product(struct kernel_bench *b, size_t format, uint32_t n_in, uint32_t n_out,
                           uint32_t rows, struct err *err)
{
    const struct format_kernels *k = &b->kernels.format[format];
    const struct format *layout = format_find(k->format);
    struct kernel_figure f = {.isa = isa_name(b->kernels.isa),
                              .kernel = "matmul",
                              .format = layout->name,
                              .n_in = n_in,
                              .n_out = n_out,
                              .rows = rows,
                              .blas_gop_s = (double)NAN};
    const double panels = panel_rate(b, &b->kernels, format, &f);
    const double adds = (double)n_in * PANEL_ROWS * rows; /* of a panel */
    const double peak = k->reads_q8 ? b->peak_block : b->peak_float;
    f.seconds = (double)panels_count(n_out) / panels;
    f.gb_s = panels * PANEL_ROWS * (double)format_row_bytes(layout, n_in) * 1e-9;
    f.gop_s = 2 * panels * adds * 1e-9;
    f.share_of_reading = rows == 1 ? f.gb_s / b->limits->read_gb_s : (double)NAN;
    f.share_of_peak = rows == 1 ? (double)NAN : panels * adds / peak;
    if (b->blas.format[format].matmul != k->matmul)
        f.blas_gop_s = 2 * panel_rate(b, &b->blas, format, &f) * adds * 1e-9;
    return b->on_figure(b->ctx, &f, err);
}

static int measure_products(struct kernel_bench *b, struct err *err)
{
    /* One row and many, of layers of 1B and 8B models: [n_out, n_in]. */
    static const uint32_t shapes[][2] = {{2048, 2048}, {14336, 4096}};
    static const uint32_t rows[] = {1, ROWS_MANY};
    for (size_t i = 0; i < KERNEL_FORMAT_COUNT; i++)
        for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++)
            for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++)
                TRY(measure_product(b, i, shapes[s][1], shapes[s][0], rows[r], err));
    return ERR_NONE;
}

/* ---- what works on rows ---- */

enum { ROW = 4096, HEAD = 128 };

static double step_quantise(void *ctx)
{
    const struct kernel_bench *b = ctx;
    b->kernels.quantise(b->x, ROW / QUANT_BLOCK, b->q8, b->scale, b->sum);
    return 1;
}

static double step_norm_rms(void *ctx)
{
    const struct kernel_bench *b = ctx;
    b->kernels.norm[NORM_RMS](b->x, b->x + ROW, NULL, ROW, 1e-5F, b->y);
    return 1;
}

static double step_norm_layer(void *ctx)
{
    const struct kernel_bench *b = ctx;
    b->kernels.norm[NORM_LAYER](b->x, b->x + ROW, b->x + ROW, ROW, 1e-5F, b->y);
    return 1;
}

static double step_rope(void *ctx)
{
    const struct kernel_bench *b = ctx;
    for (size_t head = 0; head < ROW / HEAD; head++)
        b->kernels.rope[ROPE_HALF](b->y + head * HEAD, b->x, b->x + HEAD, HEAD);
    return 1;
}

static double step_silu(void *ctx)
{
    const struct kernel_bench *b = ctx;
    b->kernels.activate[ACT_SILU](b->y, b->x, ROW);
    return 1;
}

static double step_gelu(void *ctx)
{
    const struct kernel_bench *b = ctx;
    b->kernels.activate[ACT_GELU](b->y, b->x, ROW);
    return 1;
}

static double step_softcap(void *ctx)
{
    const struct kernel_bench *b = ctx;
    b->kernels.softcap(b->y, ROW, 30);
    return 1;
}

static double step_add(void *ctx)
{
    const struct kernel_bench *b = ctx;
    b->kernels.add(b->y, b->x, ROW);
    return 1;
}

static double step_add_scaled(void *ctx)
{
    const struct kernel_bench *b = ctx;
    b->kernels.add_scaled(b->y, b->x, 0.5F, ROW);
    return 1;
}

static double step_store_f16(void *ctx)
{
    const struct kernel_bench *b = ctx;
    b->kernels.store[KV_F16](b->x, ROW, (uint8_t *)b->y, 0, false);
    return 1;
}

/* bytes: read and written for each value. */
static int measure_rows(struct kernel_bench *b, struct err *err)
{
    static const struct {
        const char *kernel;
        step_fn *step;
        uint32_t bytes;
    } rows[] = {
        {"quantise", step_quantise, 5},
        {"norm rms", step_norm_rms, 12},
        {"norm layer", step_norm_layer, 16},
        {"rope half", step_rope, 8},
        {"silu", step_silu, 12},
        {"gelu", step_gelu, 12},
        {"softcap", step_softcap, 8},
        {"add", step_add, 12},
        {"add scaled", step_add_scaled, 12},
        {"store f16", step_store_f16, 6},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        memset(b->y, FILL, ROW * sizeof *b->y);
        const double calls = rate(rows[i].step, b);
        const struct kernel_figure f = {.isa = isa_name(b->kernels.isa),
                                        .kernel = rows[i].kernel,
                                        .format = "f32",
                                        .n_in = ROW,
                                        .rows = 1,
                                        .seconds = 1 / calls,
                                        .gb_s = calls * ROW * rows[i].bytes * 1e-9,
                                        .gop_s = (double)NAN,
                                        .share_of_reading = (double)NAN,
                                        .share_of_peak = (double)NAN,
                                        .blas_gop_s = (double)NAN};
        TRY(b->on_figure(b->ctx, &f, err));
    }
    return ERR_NONE;
}

/* ---- attention ---- */

struct attend {
    const struct kernel_bench *b;
    kernel_attention_fn *kernel;
    size_t block_bytes, block; /* the walk over the arena */
    uint32_t n_queries;
};

static double attend_step(void *ctx)
{
    struct attend *a = ctx;
    struct attention_queries queries = {.n = a->n_queries};
    struct attention_tile tile = {.dim_k = HEAD, .dim_v = HEAD, .scale = 0.1F};
    for (uint32_t i = 0; i < a->n_queries; i++) {
        queries.q[i] = a->b->x + i * HEAD;
        queries.acc[i] = a->b->y + i * HEAD;
        queries.max[i] = -INFINITY;
        tile.n_valid[i] = ATTENTION_TILE;
    }
    for (size_t i = 0; i < TILE_BLOCKS; i++) {
        tile.block[i] = a->b->arena + a->block * a->block_bytes;
        a->block = (a->block + 1) % (ARENA_BYTES / a->block_bytes);
    }
    a->kernel(&queries, &tile);
    return 1;
}

static int measure_attention(struct kernel_bench *b, enum kv_format kv, const char *name,
                             uint32_t n_queries, struct err *err)
{
    struct attend a = {.b = b,
                       .kernel = b->kernels.attention[kv],
                       .block_bytes = 2 * kv_part_bytes(kv, HEAD),
                       .n_queries = n_queries};
    const double tiles = rate(attend_step, &a);
    const double adds = 2.0 * HEAD * ATTENTION_TILE * n_queries;
    const struct kernel_figure f = {.isa = isa_name(b->kernels.isa),
                                    .kernel = "attention",
                                    .format = name,
                                    .n_in = HEAD,
                                    .n_out = ATTENTION_TILE,
                                    .rows = n_queries,
                                    .seconds = 1 / tiles,
                                    .gb_s = tiles * TILE_BLOCKS * (double)a.block_bytes * 1e-9,
                                    .gop_s = 2 * tiles * adds * 1e-9,
                                    .share_of_reading = tiles * TILE_BLOCKS *
                                                        (double)a.block_bytes * 1e-9 /
                                                        b->limits->read_gb_s,
                                    .share_of_peak = tiles * adds / b->peak_float,
                                    .blas_gop_s = (double)NAN};
    return b->on_figure(b->ctx, &f, err);
}

/* ---- all of them ---- */

static int measure_isa(struct kernel_bench *b, enum isa isa, struct err *err)
{
    kernels_init(&b->kernels, isa);
    b->blas = b->kernels;
    kernels_choose_matmul(&b->blas, MATMUL_BLAS);
    b->peak_float = measure_peak(b->kernels.peak_float);
    b->peak_block = measure_peak(b->kernels.peak_block);
    TRY(measure_products(b, err));
    for (uint32_t n = 1; n <= ATTENTION_QUERIES; n += ATTENTION_QUERIES - 1) {
        TRY(measure_attention(b, KV_F16, "f16", n, err));
        TRY(measure_attention(b, KV_F32, "f32", n, err));
        TRY(measure_attention(b, KV_Q8_0, "q8_0", n, err));
    }
    return measure_rows(b, err);
}

static void *take(size_t bytes)
{
    void *memory = aligned_alloc(64, bytes);
    if (memory != NULL) memset(memory, FILL, bytes);
    return memory;
}

int kernel_bench_run(struct kernel_limits *limits, kernel_figure_fn *on_figure, void *ctx,
                     struct err *err)
{
    const size_t n = (size_t)ROWS_MANY * WIDEST;
    struct kernel_bench b = {.on_figure = on_figure,
                             .ctx = ctx,
                             .limits = limits,
                             .arena = take(ARENA_BYTES),
                             .x = take(n * sizeof(float)),
                             .y = take(n * sizeof(float)),
                             .q8 = take(n),
                             .scale = take(n / QUANT_BLOCK * sizeof(float)),
                             .sum = take(n / QUANT_BLOCK * sizeof(int32_t))};
    enum isa best = ISA_GENERIC;
    int rc = isa_detect(&best, err);
    if (rc == ERR_NONE && (b.arena == NULL || b.x == NULL || b.y == NULL || b.q8 == NULL ||
                           b.scale == NULL || b.sum == NULL))
        rc = err_set(err, ERR_MEMORY, "no memory for %d MiB of weights", ARENA_BYTES >> 20);
    for (size_t i = 0; rc == ERR_NONE && i < n / QUANT_BLOCK; i++) b.sum[i] = QUANT_BLOCK * FILL;
    if (rc == ERR_NONE) limits->read_gb_s = rate(read_arena, &b) * 1e-9;
    for (int isa = (int)best; isa >= ISA_GENERIC && rc == ERR_NONE; isa--)
        rc = measure_isa(&b, (enum isa)isa, err);
    free(b.arena);
    free(b.x);
    free(b.y);
    free(b.q8);
    free(b.scale);
    free(b.sum);
    return rc;
}
