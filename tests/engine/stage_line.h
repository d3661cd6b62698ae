/* stage_line - a line of stages in one process, for tests: sequences of ids in, scores out, cut
 * into batches as a test likes. */
#ifndef TANDEM_TESTS_ENGINE_STAGE_LINE_H
#define TANDEM_TESTS_ENGINE_STAGE_LINE_H

#include "engine/stage.h"
#include "mapped_source.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINE_STAGES = 4, LINE_SEQS = 4, LINE_CTX = 512, LINE_BLOCKS = 100, LINE_ROWS = 520 };

/* How a line is cut and fed. Zeros mean: one stage, one thread, everything in one batch, generic,
 * f16, packed products. */
struct line_way {
    uint32_t stages, threads, chunk;
    enum isa isa;
    enum kv_format kv;
    enum matmul_choice matmul;
    uint32_t n_ctx; /* 0: LINE_CTX */
    bool beside;    /* three other sequences share every batch */
    bool shuffled;  /* blocks in a mixed order */
};

struct line {
    struct line_way way;
    uint32_t n_stages, n_vocab, n_embd;
    struct stage *stage[LINE_STAGES];
    uint32_t next_block;
    uint32_t mapped[LINE_SEQS];
    uint32_t n_kv_classes;
    float *hop[2], *out;
};

static inline float *line_take(size_t n)
{
    float *p = aligned_alloc(64, (n * sizeof *p + 63) / 64 * 64);
    assert_non_null(p);
    return p;
}

static inline void line_open(struct line *l, const struct model *m, struct line_way way)
{
    *l = (struct line){.way = way, .n_stages = way.stages > 0 ? way.stages : 1};
    l->n_vocab = m->hp.n_vocab;
    l->n_kv_classes = m->hp.n_kv_classes;
    l->n_embd = m->hp.n_embd;
    for (uint32_t i = 0; i < l->n_stages; i++) {
        struct stage_config config = {
            .model = m,
            .range = {i * m->hp.n_layer / l->n_stages, (i + 1) * m->hp.n_layer / l->n_stages},
            .limits = {.n_ctx = way.n_ctx > 0 ? way.n_ctx : LINE_CTX,
                       .n_seqs = LINE_SEQS,
                       .n_blocks = {LINE_BLOCKS, LINE_BLOCKS, LINE_BLOCKS, LINE_BLOCKS},
                       .rows_max = LINE_ROWS,
                       .wanted_max = LINE_ROWS,
                       .credits = 1,
                       .kv = way.kv},
            .isa = way.isa,
            .matmul = way.matmul,
            .source = &mapped_source,
            .threads = way.threads > 0 ? way.threads : 1,
        };
        struct err err;
        if (stage_open(&l->stage[i], &config, &err) != ERR_NONE) fail_msg("%s", err.text);
    }
    for (int i = 0; i < 2; i++) l->hop[i] = line_take((size_t)LINE_ROWS * l->n_embd);
    l->out = line_take((size_t)LINE_ROWS * l->n_vocab);
}

static inline void line_close(struct line *l)
{
    for (uint32_t i = 0; i < l->n_stages; i++) stage_close(l->stage[i]);
    free(l->hop[0]);
    free(l->hop[1]);
    free(l->out);
}

/* Rows under construction. */
struct line_batch {
    int32_t token[LINE_ROWS];
    uint32_t seq[LINE_ROWS], pos[LINE_ROWS];
    uint8_t wanted[LINE_ROWS];
    struct kv_command command[LINE_BLOCKS * KV_CLASSES_MAX];
    struct batch b;
};

static inline void line_add(struct line *l, struct line_batch *batch, uint32_t seq, uint32_t first,
                            const int32_t *ids, uint32_t n, bool wanted)
{
    for (uint32_t i = 0; i < n; i++) {
        uint32_t row = batch->b.n_rows++, pos = first + i;
        assert_true(row < LINE_ROWS);
        while (l->mapped[seq] <= pos / KV_BLOCK_POSITIONS) {
            uint32_t block = l->next_block++;
            /* 7 has no common factor with 40, so this visits every block. */
            if (l->way.shuffled) block = (block * 7 + 13) % LINE_BLOCKS;
            for (uint32_t c = 0; c < l->n_kv_classes; c++)
                batch->command[batch->b.n_commands++] = (struct kv_command){.op = KV_MAP,
                                                                            .kv_class = c,
                                                                            .seq = seq,
                                                                            .index = l->mapped[seq],
                                                                            .block = block};
            l->mapped[seq]++;
        }
        batch->token[row] = ids[i];
        batch->seq[row] = seq;
        batch->pos[row] = pos;
        batch->wanted[row] = wanted;
        batch->b.n_wanted += wanted;
    }
}

/* Through all stages; scores of the wanted rows are in l->out. */
static inline void line_forward(struct line *l, struct line_batch *batch)
{
    struct batch *b = &batch->b;
    struct err err;
    b->token = batch->token;
    b->seq = batch->seq;
    b->pos = batch->pos;
    b->wanted = batch->wanted;
    b->commands = batch->command;
    const float *in = NULL;
    for (uint32_t i = 0; i < l->n_stages; i++) {
        float *out = i + 1 == l->n_stages ? l->out : l->hop[i % 2];
        if (stage_forward(l->stage[i], b, in, out, &err) != ERR_NONE) fail_msg("%s", err.text);
        in = out;
    }
}

/* line_trim() - a sequence keeps its first blocks only. */
static inline void line_trim(struct line *l, uint32_t seq, uint32_t blocks)
{
    struct kv_command trim = {.op = KV_TRIM, .seq = seq, .index = blocks};
    struct batch b = {.n_commands = 1, .commands = &trim};
    struct err err;
    for (uint32_t i = 0; i < l->n_stages; i++)
        if (stage_forward(l->stage[i], &b, NULL, NULL, &err) != ERR_NONE) fail_msg("%s", err.text);
    l->mapped[seq] = blocks;
}

/* line_score() - scores after each of n ids of sequence 1, starting at position first:
 * out[n][n_vocab]. */
static inline void line_score(struct line *l, const int32_t *ids, uint32_t first, uint32_t n,
                              float *out)
{
    static struct line_batch batch;
    uint32_t chunk = l->way.chunk > 0 ? l->way.chunk : n;
    for (uint32_t at = 0; at < n; at += chunk) {
        uint32_t rows = n - at < chunk ? n - at : chunk, before = 0;
        batch.b = (struct batch){0};
        /* The others have the same ids, other paces, and stand before and after; some of them want
         * scores. */
        uint32_t place = (first + at) % 40;
        if (l->way.beside && place + 3 <= 40) line_add(l, &batch, 3, place, ids, 3, false);
        if (l->way.beside && place + 1 <= 40) {
            line_add(l, &batch, 0, place, ids + 1, 1, true);
            before = 1;
        }
        line_add(l, &batch, 1, first + at, ids + at, rows, true);
        if (l->way.beside && place + 2 <= 40) line_add(l, &batch, 2, place, ids + 2, 2, true);
        line_forward(l, &batch);
        memcpy(out + (size_t)at * l->n_vocab, l->out + (size_t)before * l->n_vocab,
               (size_t)rows * l->n_vocab * sizeof *out);
    }
}

static inline int32_t line_best(const float *scores, uint32_t n)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < n; i++)
        if (scores[i] > scores[best]) best = i;
    return (int32_t)best;
}

#endif
