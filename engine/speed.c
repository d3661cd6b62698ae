/* speed - see speed.h. */
#include "engine/speed.h"

#include "engine/barrier.h"
#include "engine/clock.h"
#include "engine/huge_pages.h"
#include "engine/kernels/kernels.h"

#include <inttypes.h>
#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

enum {
    WIDTH = 2048,      /* of a matrix: usual, and whole blocks in every format */
    ROWS_MANY = 128,   /* of a prompt's batch */
    MANY_MATRICES = 8, /* are enough where many rows share them */
    TRIAL_MS = 150,
    PIECES = 16,     /* of a pass over the weights, each timed by itself; one or more of them, */
    LEAST_US = 1000, /* so that no time is shorter */
    TIMES_MAX = 256,
    REPORT_MS = 50,
    FILL = 0x11, /* in every format and place a small number: nothing overflows, nothing is 0 */
};

struct bench {
    struct kernels kernels;
    const struct format_kernels *format;
    uint8_t **weights; /* [n] each [matrix_bytes], apart as a model's tensors are */
    size_t n, n_out, matrix_bytes;
    uint32_t threads;
    float *rows, *scale, *y;
    int8_t *q8;
    int32_t *sum;
    void (*progress)(void *ctx);
    void *ctx;
    uint64_t reported_ns;
};

/* size_matrices() - as many as fill bytes; where that is less than one, fewer outputs. */
static void size_matrices(struct bench *b, uint64_t bytes)
{
    if (bytes > SPEED_BYTES_MAX) bytes = SPEED_BYTES_MAX;
    const uint64_t row = model_matrix_bytes(b->format->format, WIDTH, PANEL_ROWS) / PANEL_ROWS;
    const uint64_t least = (uint64_t)b->threads * PANEL_ROWS;
    b->n_out = WIDTH;
    if (bytes < WIDTH * row) b->n_out = bytes / row / PANEL_ROWS * PANEL_ROWS;
    if (b->n_out < least) b->n_out = least;
    b->matrix_bytes = b->n_out * row;
    b->n = bytes > b->matrix_bytes ? bytes / b->matrix_bytes : 1;
}

/* report() - by the calling thread, where it is due. */
static void report(struct bench *b)
{
    if (b->progress == NULL || clock_now_ns() - b->reported_ns < (uint64_t)REPORT_MS * 1000000U)
        return;
    b->progress(b->ctx);
    b->reported_ns = clock_now_ns();
}

/* fill() - each thread touches first what it will read. */
static void fill(struct bench *b)
{
    for (size_t i = 0; i < b->n; i++) {
#pragma omp parallel num_threads(b->threads)
        {
            const size_t id = (size_t)omp_get_thread_num(), size = (size_t)omp_get_num_threads();
            const size_t from = b->matrix_bytes * id / size, to = b->matrix_bytes * (id + 1) / size;
            memset(b->weights[i] + from, FILL, to - from);
        }
        report(b);
    }
    const size_t blocks = (size_t)ROWS_MANY * WIDTH / QUANT_BLOCK;
    for (size_t i = 0; i < blocks * QUANT_BLOCK; i++) b->rows[i] = 1.0F / (float)(1 + i % 7);
    b->kernels.quantise(b->rows, blocks, b->q8, b->scale, b->sum);
}

static int take_all(struct bench *b, struct err *err)
{
    const size_t values = (size_t)ROWS_MANY * WIDTH, blocks = values / QUANT_BLOCK;
    b->weights = calloc(b->n, sizeof *b->weights);
    bool taken = b->weights != NULL;
    for (size_t i = 0; i < b->n && taken; i++) {
        b->weights[i] = huge_pages_take(b->matrix_bytes);
        taken = b->weights[i] != NULL;
    }
    b->rows = huge_pages_take(values * sizeof *b->rows);
    b->q8 = huge_pages_take(values);
    b->scale = huge_pages_take(blocks * sizeof *b->scale);
    b->sum = huge_pages_take(blocks * sizeof *b->sum);
    b->y = huge_pages_take(ROWS_MANY * b->n_out * sizeof *b->y);
    CHECK(taken && b->rows != NULL && b->q8 != NULL && b->scale != NULL && b->sum != NULL &&
              b->y != NULL,
          err, ERR_MEMORY, "no memory to measure products with %zu bytes of weights",
          b->n * b->matrix_bytes);
    fill(b);
    return ERR_NONE;
}

static void give_back(struct bench *b)
{
    for (size_t i = 0; b->weights != NULL && i < b->n; i++) free(b->weights[i]);
    free(b->weights);
    free(b->rows);
    free(b->q8);
    free(b->scale);
    free(b->sum);
    free(b->y);
}

/* multiply() - panels [from, to) of a matrix with n_rows rows, cut as a forward pass cuts them. */
static void multiply(const struct bench *b, const struct panels *w, size_t from, size_t to,
                     size_t n_rows)
{
    const size_t panels = b->kernels.bite_panels, rows = b->kernels.bite_rows;
    for (size_t p = from; p < to; p += panels)
        for (size_t r = 0; r < n_rows; r += rows) {
            const struct activations x = {.f32 = b->rows + r * WIDTH,
                                          .q8 = b->q8 + r * WIDTH,
                                          .scale = b->scale + r * WIDTH / QUANT_BLOCK,
                                          .sum = b->sum + r * WIDTH / QUANT_BLOCK};
            b->format->matmul(w, p, to - p < panels ? to : p + panels, &x,
                              n_rows - r < rows ? n_rows - r : rows, b->y + r * b->n_out, b->n_out);
        }
}

/* walk() - seconds for n matrices, one after the other; all threads meet behind each. */
static double walk(struct bench *b, size_t first, size_t n, size_t n_rows)
{
    struct barrier barrier;
    barrier_init(&barrier);
    const uint64_t begin = clock_now_ns();
#pragma omp parallel num_threads(b->threads)
    {
        const size_t id = (size_t)omp_get_thread_num(), size = (size_t)omp_get_num_threads();
        const size_t count = panels_count(b->n_out);
        for (size_t i = first; i < first + n; i++) {
            const struct panels w = {.data = b->weights[i], .n_in = WIDTH, .n_out = b->n_out};
            multiply(b, &w, count * id / size, count * (id + 1) / size, n_rows);
            if (id == 0) report(b);
            if (size > 1) barrier_wait(&barrier, (uint32_t)size);
        }
    }
    return (double)(clock_now_ns() - begin) * 1e-9;
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* usual_walk() - seconds for a matrix: the median of many short times, since others on the machine,
 * or a rank that is to be measured beside this one and has not begun yet, spoil some of them. One
 * pass over n matrices at least, so that none comes from a cache that a model does not fit into. */
static double usual_walk(struct bench *b, size_t n, size_t n_rows)
{
    double times[TIMES_MAX];
    const size_t piece = (n + PIECES - 1) / PIECES;
    size_t count = 0, at = 0;
    const uint64_t begin = clock_now_ns();
    for (bool passed = false; count < TIMES_MAX; count++) {
        double seconds = 0;
        size_t walked = 0;
        if (passed && clock_now_ns() - begin > (uint64_t)TRIAL_MS * 1000000U) break;
        while (seconds < LEAST_US * 1e-6) {
            const size_t k = n - at < piece ? n - at : piece;
            seconds += walk(b, at, k, n_rows);
            walked += k;
            at = at + k < n ? at + k : 0;
            passed |= at == 0;
        }
        times[count] = seconds / (double)walked;
    }
    qsort(times, count, sizeof *times, compare);
    return times[count / 2];
}

/* solve() - the figures of speed.h from the times for one matrix of one row, of few and of many.
 * Some of what rows cost may be hidden behind the reading, and noise may hide more of it: a row of
 * few costs something, and one of many no less than half of its share of all. */
static struct plan_speed solve(const struct bench *b, double one_s, double few_s, double many_s)
{
    const double ops = 2.0 * WIDTH * (double)b->n_out;
    const double share_s = many_s / ROWS_MANY;
    const double row_s = fmax((many_s - few_s) / (ROWS_MANY - PLAN_FEW_ROWS), share_s / 2);
    const double few_row_s = fmax((few_s - one_s) / (PLAN_FEW_ROWS - 1), row_s / 16);
    const double read_s = fmax(one_s - few_row_s, one_s / 2);
    return (struct plan_speed){.read_bytes_s = (double)b->matrix_bytes / read_s,
                               .ops_s = ops / row_s,
                               .few_ops_s = ops / few_row_s};
}

int speed_measure(struct plan_speed *out, uint32_t format, enum isa isa, uint32_t threads,
                  uint64_t bytes, void (*progress)(void *ctx), void *ctx, struct err *err)
{
    struct bench b = {.threads = threads, .progress = progress, .ctx = ctx};
    kernels_init(&b.kernels, isa);
    kernels_choose_matmul(&b.kernels, MATMUL_AUTO);
    b.format = kernels_find_format(&b.kernels, format);
    CHECK(b.format != NULL, err, ERR_UNSUPPORTED, "no kernels for number format %" PRIu32, format);
    size_matrices(&b, bytes);
    int rc = take_all(&b, err);
    if (rc == ERR_NONE) {
        const size_t many = b.n < MANY_MATRICES ? b.n : MANY_MATRICES;
        const double one_s = usual_walk(&b, b.n, 1);
        const double few_s = usual_walk(&b, b.n, PLAN_FEW_ROWS);
        *out = solve(&b, one_s, few_s, usual_walk(&b, many, ROWS_MANY));
    }
    give_back(&b);
    return rc;
}
