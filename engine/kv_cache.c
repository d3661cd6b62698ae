/* kv_cache - see kv_cache.h. */
#include "engine/kv_cache.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static uint64_t layer_block_bytes(const struct kv_cache *kv, uint32_t layer)
{
    return kv->layer[layer].head_bytes * kv->layer[layer].row.n_head;
}

/* Sizes and offsets of the layers. ERR_CAPACITY where the pool has more bytes than can
 * be counted. */
static int size_pool(struct kv_cache *kv, struct err *err)
{
    uint64_t at = 0;
    for (uint32_t i = 0; i < kv->n_layers; i++) {
        uint64_t bytes;
        uint32_t n_blocks = kv->n_blocks[kv->layer[i].kv_class];
        kv->layer[i].offset = at;
        bool over = __builtin_mul_overflow(layer_block_bytes(kv, i), n_blocks, &bytes) ||
                    __builtin_add_overflow(at, bytes, &at);
        CHECK(!over && at < SIZE_MAX / 2, err, ERR_CAPACITY,
              "a KV pool of %" PRIu32 " blocks in %" PRIu32
              " layers is larger than any memory: ask for a smaller context",
              n_blocks, kv->n_layers);
    }
    kv->pool_bytes = at;
    return ERR_NONE;
}

static int take_tables(struct kv_cache *kv, struct err *err)
{
    size_t tables = (size_t)kv->n_classes * kv->n_seqs, entries = tables * kv->blocks_per_seq;
    kv->layer = calloc(kv->n_layers + 1, sizeof *kv->layer);
    kv->table = calloc(entries + 1, sizeof *kv->table);
    kv->mapped = calloc(tables + 1, sizeof *kv->mapped);
    kv->checked = calloc(tables + 1, sizeof *kv->checked);
    CHECK(kv->layer && kv->table && kv->mapped && kv->checked, err, ERR_MEMORY,
          "no memory for the block tables of %" PRIu32 " sequences of %" PRIu32
          " blocks: ask for a smaller context or fewer sequences",
          kv->n_seqs, kv->blocks_per_seq);
    kv->table_bytes = (entries + 2 * tables) * sizeof *kv->table;
    return ERR_NONE;
}

/* The pool comes from the system as zeros that take no memory until they are written. */
static int take_pool(struct kv_cache *kv, struct err *err)
{
    TRY(size_pool(kv, err));
    if (kv->pool_bytes == 0) return ERR_NONE;
    void *pool =
        mmap(NULL, kv->pool_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(pool != MAP_FAILED, err, ERR_MEMORY,
          "the KV pool needs %" PRIu64 " bytes and the system refuses: ask for a smaller context, "
          "or use more workers",
          kv->pool_bytes);
    madvise(pool, kv->pool_bytes, MADV_HUGEPAGE); /* a wish: attention reads all of it */
    kv->pool = pool;
    return ERR_NONE;
}

static int open_parts(struct kv_cache *kv, const struct model *m, struct layer_range range,
                      struct err *err)
{
    TRY(take_tables(kv, err));
    for (uint32_t i = 0; i < kv->n_layers; i++) {
        struct cache_row row = hparams_cache_row(&m->hp, range.first + i);
        kv->layer[i].row = row;
        kv->layer[i].kv_class = m->hp.layer[range.first + i].kv_class;
        kv->layer[i].head_bytes =
            kv_part_bytes(kv->format, row.dim_k) + kv_part_bytes(kv->format, row.dim_v);
    }
    return take_pool(kv, err);
}

int kv_cache_open(struct kv_cache *kv, const struct model *m, struct layer_range range,
                  const struct line_limits *limits, struct err *err)
{
    *kv = (struct kv_cache){
        .format = limits->kv,
        .n_classes = m->hp.n_kv_classes,
        .n_seqs = limits->n_seqs,
        .blocks_per_seq =
            (uint32_t)(((uint64_t)limits->n_ctx + KV_BLOCK_POSITIONS - 1) / KV_BLOCK_POSITIONS),
        .n_layers = range.end - range.first,
    };
    memcpy(kv->n_blocks, limits->n_blocks, sizeof kv->n_blocks);
    int rc = open_parts(kv, m, range, err);
    if (rc != ERR_NONE) kv_cache_close(kv);
    return rc;
}

void kv_cache_close(struct kv_cache *kv)
{
    if (kv->pool != NULL) munmap(kv->pool, kv->pool_bytes);
    free(kv->layer);
    free(kv->table);
    free(kv->mapped);
    free(kv->checked);
    *kv = (struct kv_cache){0};
}

static int check_block(const struct kv_cache *kv, uint32_t at, uint32_t kv_class, uint32_t block,
                       struct err *err)
{
    CHECK(kv_class < kv->n_classes, err, ERR_PEER,
          "KV command %" PRIu32 " names cache class %" PRIu32 ", there are %" PRIu32, at, kv_class,
          kv->n_classes);
    CHECK(block < kv->n_blocks[kv_class], err, ERR_PEER,
          "KV command %" PRIu32 " names block %" PRIu32 ", the pool has %" PRIu32, at, block,
          kv->n_blocks[kv_class]);
    return ERR_NONE;
}

static int check_seq(const struct kv_cache *kv, uint32_t at, uint32_t seq, struct err *err)
{
    CHECK(seq < kv->n_seqs, err, ERR_PEER,
          "KV command %" PRIu32 " names sequence %" PRIu32 ", there are %" PRIu32, at, seq,
          kv->n_seqs);
    return ERR_NONE;
}

static int check_map(struct kv_cache *kv, uint32_t at, const struct kv_command *c, struct err *err)
{
    TRY(check_seq(kv, at, c->seq, err));
    TRY(check_block(kv, at, c->kv_class, c->block, err));
    uint32_t *n = &kv->checked[c->kv_class * kv->n_seqs + c->seq];
    CHECK(c->index <= *n && c->index < kv->blocks_per_seq, err, ERR_PEER,
          "KV command %" PRIu32 " maps entry %" PRIu32 " of sequence %" PRIu32
          ", which has %" PRIu32 " of at most %" PRIu32,
          at, c->index, c->seq, *n, kv->blocks_per_seq);
    if (c->index == *n) ++*n;
    return ERR_NONE;
}

/* trim() - every class's table of the sequence keeps its first entries at most. */
static void trim(const struct kv_cache *kv, uint32_t *counts, const struct kv_command *c)
{
    for (uint32_t k = 0; k < kv->n_classes; k++) {
        uint32_t *n = &counts[k * kv->n_seqs + c->seq];
        if (c->index < *n) *n = c->index;
    }
}

static int check_command(struct kv_cache *kv, uint32_t at, const struct kv_command *c,
                         struct err *err)
{
    switch (c->op) {
    case KV_MAP:
        return check_map(kv, at, c, err);
    case KV_COPY:
        TRY(check_block(kv, at, c->kv_class, c->index, err));
        return check_block(kv, at, c->kv_class, c->block, err);
    case KV_TRIM:
        TRY(check_seq(kv, at, c->seq, err));
        trim(kv, kv->checked, c);
        return ERR_NONE;
    }
    return err_set(err, ERR_PEER, "KV command %" PRIu32 " is of kind %d, which does not exist", at,
                   (int)c->op);
}

int kv_cache_check(struct kv_cache *kv, const struct kv_command *commands, uint32_t n,
                   struct err *err)
{
    memcpy(kv->checked, kv->mapped, (size_t)kv->n_classes * kv->n_seqs * sizeof *kv->checked);
    for (uint32_t i = 0; i < n; i++) TRY(check_command(kv, i, &commands[i], err));
    return ERR_NONE;
}

static void copy_block(struct kv_cache *kv, uint32_t kv_class, uint32_t from, uint32_t to)
{
    if (from == to) return;
    for (uint32_t i = 0; i < kv->n_layers; i++) {
        const struct kv_layer *l = &kv->layer[i];
        if (l->kv_class != kv_class) continue;
        uint8_t *head = kv->pool + l->offset;
        for (uint32_t h = 0; h < l->row.n_head; h++) {
            memcpy(head + to * l->head_bytes, head + from * l->head_bytes, l->head_bytes);
            head += kv->n_blocks[kv_class] * l->head_bytes;
        }
    }
}

static void map(struct kv_cache *kv, const struct kv_command *c)
{
    size_t table = (size_t)c->kv_class * kv->n_seqs + c->seq;
    kv->table[table * kv->blocks_per_seq + c->index] = c->block;
    if (c->index == kv->mapped[table]) kv->mapped[table]++;
}

void kv_cache_obey(struct kv_cache *kv, const struct kv_command *commands, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        const struct kv_command *c = &commands[i];
        if (c->op == KV_COPY) copy_block(kv, c->kv_class, c->index, c->block);
        if (c->op == KV_MAP) map(kv, c);
        if (c->op == KV_TRIM) trim(kv, kv->mapped, c);
    }
}
