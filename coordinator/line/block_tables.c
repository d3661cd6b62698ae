/* block_tables - see block_tables.h. */
#include "coordinator/line/block_tables.h"

#include "coordinator/line/block_allocator.h"
#include "coordinator/line/prefix_index.h"

#include <stdlib.h>

struct block_tables {
    struct block_tables_config config;
    struct block_allocator *pools[KV_CLASSES_MAX];
    struct prefix_index *index;
    uint64_t batch; /* that is being filled */
};

int block_tables_open(struct block_tables **out, const struct block_tables_config *config,
                      struct err *err)
{
    struct block_tables *bt = calloc(1, sizeof *bt);
    CHECK(bt != NULL, err, ERR_MEMORY, "no memory for block tables");
    bt->config = *config;
    int rc = prefix_index_open(&bt->index, config->n_blocks, config->n_classes, err);
    for (uint32_t c = 0; rc == ERR_NONE && c < config->n_classes; c++)
        rc = block_allocator_open(&bt->pools[c], config->n_blocks[c], config->shuffle,
                                  config->shuffle_seed, err);
    if (rc != ERR_NONE) {
        block_tables_close(bt);
        return rc;
    }
    *out = bt;
    return ERR_NONE;
}

void block_tables_close(struct block_tables *bt)
{
    if (bt == NULL) return;
    for (uint32_t c = 0; c < KV_CLASSES_MAX; c++) block_allocator_close(bt->pools[c]);
    prefix_index_close(bt->index);
    free(bt);
}

/* first_seen() - the block of the first position that a row at pos sees. */
static uint32_t first_seen(const struct block_tables *bt, uint32_t kv_class, uint32_t pos)
{
    const uint32_t window = bt->config.window[kv_class];
    return window == 0 || pos < window ? 0 : (pos - window + 1) / KV_BLOCK_POSITIONS;
}

/* ---- how many ---- */

void block_tables_add_need(const struct block_tables *bt, const struct sequence *s,
                           struct block_need *need)
{
    const uint32_t positions = s->n_tokens < s->capacity ? s->n_tokens + 1 : s->capacity;
    for (uint32_t c = 0; c < bt->config.n_classes; c++) {
        const struct sequence_blocks *b = &s->blocks[c];
        uint32_t more = block_tables_count(positions) - b->n;
        /* A window gives back as much as it takes; its ends may lie inside a block. */
        const uint32_t window = bt->config.window[c];
        const uint32_t most = block_tables_count(window) + 1;
        const uint32_t held = b->n - b->first;
        if (window > 0 && held + more > most) more = held < most ? most - held : 0;
        need->n[c] += more;
    }
}

void block_tables_spare(const struct block_tables *bt, const struct sequence *s,
                        struct block_need *need)
{
    uint32_t node = PREFIX_NONE;
    if (!bt->config.share || s->scores != LINE_SCORES_NONE) return;
    for (uint32_t k = 0; (k + 1) * KV_BLOCK_POSITIONS < s->n_tokens && need->n[0] > 0; k++) {
        node = prefix_index_find(bt->index, node, s->tokens + k * KV_BLOCK_POSITIONS);
        if (node == PREFIX_NONE || !block_allocator_is_held(bt->pools[0], node)) return;
        need->n[0]--;
    }
}

bool block_tables_has(const struct block_tables *bt, const struct block_need *need, uint32_t more)
{
    for (uint32_t c = 0; c < bt->config.n_classes; c++)
        if (block_allocator_available(bt->pools[c]) < need->n[c] + more) return false;
    return true;
}

uint32_t block_tables_held(const struct block_tables *bt)
{
    uint32_t held = 0;
    for (uint32_t c = 0; c < bt->config.n_classes; c++) held += block_allocator_held(bt->pools[c]);
    return held;
}

uint32_t block_tables_most(const struct block_tables *bt, uint32_t kv_class)
{
    return block_allocator_most(bt->pools[kv_class]);
}

/* ---- taking ---- */

/* forget() - the contents of a block that lay idle are about to be overwritten. */
static void forget(struct block_tables *bt, uint32_t kv_class, uint32_t block)
{
    if (kv_class > 0) {
        uint32_t owner = prefix_index_owner(bt->index, kv_class, block);
        prefix_index_set_block(bt->index, owner, kv_class, PREFIX_NONE);
        return;
    }
    for (uint32_t c = 1; c < bt->config.n_classes; c++) {
        uint32_t other = prefix_index_block(bt->index, block, c);
        if (other != PREFIX_NONE) block_allocator_drop(bt->pools[c], other);
    }
    prefix_index_remove(bt->index, block);
}

void block_tables_begin_batch(struct block_tables *bt, uint64_t batch)
{
    bt->batch = batch;
}

bool block_tables_begins(const struct sequence *s)
{
    return s->n_sent >= s->blocks[0].n * KV_BLOCK_POSITIONS;
}

bool block_tables_grow(struct block_tables *bt, struct sequence *s)
{
    if (!block_tables_has(bt, &(struct block_need){0}, 1)) return false;
    for (uint32_t c = 0; c < bt->config.n_classes; c++) {
        struct sequence_blocks *b = &s->blocks[c];
        bool was_kept;
        block_allocator_take(bt->pools[c], &b->block[b->n], &was_kept);
        if (was_kept) forget(bt, c, b->block[b->n]);
        b->n++;
    }
    return true;
}

/* ---- sharing ---- */

static uint32_t last_chained(const struct sequence *s)
{
    return s->n_chained > 0 ? s->blocks[0].block[s->n_chained - 1] : PREFIX_NONE;
}

/* enter_full() - the next full block of s is the first with its contents. */
static void enter_full(struct block_tables *bt, struct sequence *s)
{
    const uint32_t k = s->n_chained, node = s->blocks[0].block[k];
    prefix_index_add(bt->index, last_chained(s), s->tokens + k * KV_BLOCK_POSITIONS, node,
                     bt->batch);
    block_allocator_keep(bt->pools[0], node);
    for (uint32_t c = 1; c < bt->config.n_classes; c++) {
        if (k < s->blocks[c].first) continue;
        prefix_index_set_block(bt->index, node, c, s->blocks[c].block[k]);
        block_allocator_keep(bt->pools[c], s->blocks[c].block[k]);
    }
}

/* join_full() - the next full block of s was computed twice: it takes the one of the index, where
 * there is one, or the index takes its. */
static void join_full(struct block_tables *bt, struct sequence *s, uint32_t node)
{
    const uint32_t k = s->n_chained;
    for (uint32_t c = 0; c < bt->config.n_classes; c++) {
        struct sequence_blocks *b = &s->blocks[c];
        uint32_t known = c == 0 ? node : prefix_index_block(bt->index, node, c);
        if (k < b->first) continue;
        if (known == PREFIX_NONE) {
            prefix_index_set_block(bt->index, node, c, b->block[k]);
            block_allocator_keep(bt->pools[c], b->block[k]);
            continue;
        }
        block_allocator_share(bt->pools[c], known);
        block_allocator_give(bt->pools[c], b->block[k]);
        b->block[k] = known;
        if (k < b->told) b->told = k;
    }
}

/* chain_full() - the index learns of the full blocks of s. may_join: no row of s is in the batch at
 * hand, so a block that was computed twice may be given back. */
static void chain_full(struct block_tables *bt, struct sequence *s, bool may_join)
{
    if (!bt->config.share) return;
    for (; s->n_chained < s->n_sent / KV_BLOCK_POSITIONS; s->n_chained++) {
        const int32_t *tokens = s->tokens + s->n_chained * KV_BLOCK_POSITIONS;
        uint32_t node = prefix_index_find(bt->index, last_chained(s), tokens);
        if (node == PREFIX_NONE)
            enter_full(bt, s);
        else if (may_join)
            join_full(bt, s, node);
        else
            return;
    }
}

void block_tables_note_full(struct block_tables *bt, struct sequence *s)
{
    chain_full(bt, s, false);
}

/* sendable_limit() - positions that need not be sent where they are in the cache. */
static uint32_t sendable_limit(const struct sequence *s)
{
    return s->scores != LINE_SCORES_NONE ? s->n_home : s->n_tokens - 1;
}

/* end_copying() - the stages are told, or nothing is to be copied after all. */
static void end_copying(struct block_tables *bt, struct sequence *s)
{
    for (uint32_t c = 0; s->copies && c < bt->config.n_classes; c++)
        block_allocator_give(bt->pools[c], s->blocks[c].copy_from);
    s->copies = false;
}

/* find_shared() - how many blocks of s, from position 0 on, it has or can take: the most with which
 * every class has what the next row sees. *node: the last of them. */
static uint32_t find_shared(const struct block_tables *bt, const struct sequence *s, uint32_t *node)
{
    const uint32_t limit = sendable_limit(s);
    uint32_t best = s->n_chained, at = last_chained(s);
    uint32_t whole_since[KV_CLASSES_MAX] = {0}; /* from this block on none is missing */
    *node = at;
    for (uint32_t k = best; (k + 1) * KV_BLOCK_POSITIONS <= limit; k++) {
        if (k - s->n_chained == BLOCK_TABLES_PASS_MAX) break;
        at = prefix_index_find(bt->index, at, s->tokens + k * KV_BLOCK_POSITIONS);
        if (at == PREFIX_NONE) break;
        bool is_whole = true;
        for (uint32_t c = 1; c < bt->config.n_classes; c++) {
            if (prefix_index_block(bt->index, at, c) == PREFIX_NONE) whole_since[c] = k + 1;
            is_whole &= whole_since[c] <= first_seen(bt, c, (k + 1) * KV_BLOCK_POSITIONS);
        }
        if (!is_whole) continue;
        best = k + 1;
        *node = at;
    }
    return best;
}

/* take_shared() - s holds what rows from block n on see; entries before that only fill
 * the tables. */
static void take_shared(struct block_tables *bt, struct sequence *s, uint32_t n, uint32_t node)
{
    for (uint32_t k = n; k-- > s->n_chained; node = prefix_index_parent(bt->index, node)) {
        for (uint32_t c = 0; c < bt->config.n_classes; c++) {
            uint32_t block = c == 0 ? node : prefix_index_block(bt->index, node, c);
            if (k >= first_seen(bt, c, n * KV_BLOCK_POSITIONS))
                block_allocator_share(bt->pools[c], block);
            else
                block = 0;
            s->blocks[c].block[k] = block;
        }
    }
    for (uint32_t c = 0; c < bt->config.n_classes; c++) {
        struct sequence_blocks *b = &s->blocks[c];
        const uint32_t seen = first_seen(bt, c, n * KV_BLOCK_POSITIONS);
        while (b->first < b->n && b->first < seen)
            block_allocator_give(bt->pools[c], b->block[b->first++]);
        b->first = seen;
        b->n = n;
    }
}

/* copy_partial() - where another's block begins with the next tokens of s, they are copied. That
 * block must be written by an earlier batch: commands come before rows. */
static void copy_partial(struct block_tables *bt, struct sequence *s)
{
    const uint32_t done = s->n_sent, limit = sendable_limit(s);
    if (limit <= done) return;
    /* Never a whole block: the next row would begin another one, before this one is told. */
    const uint32_t most = limit - done < KV_BLOCK_POSITIONS ? limit - done : KV_BLOCK_POSITIONS - 1;
    uint32_t n_like;
    uint32_t node = prefix_index_find_like(bt->index, last_chained(s), s->tokens + done, most,
                                           bt->batch, &n_like);
    if (node == PREFIX_NONE) return;
    for (uint32_t c = 1; c < bt->config.n_classes; c++)
        if (prefix_index_block(bt->index, node, c) == PREFIX_NONE) return;
    for (uint32_t c = 0; c < bt->config.n_classes; c++) {
        s->blocks[c].copy_from = c == 0 ? node : prefix_index_block(bt->index, node, c);
        block_allocator_share(bt->pools[c], s->blocks[c].copy_from);
    }
    s->copies = true;
    if (block_tables_grow(bt, s))
        s->n_sent += n_like;
    else
        end_copying(bt, s);
}

/* give_passed() - blocks of a window that no row from here on sees. */
static void give_passed(struct block_tables *bt, struct sequence *s)
{
    for (uint32_t c = 0; c < bt->config.n_classes; c++) {
        struct sequence_blocks *b = &s->blocks[c];
        const uint32_t seen = first_seen(bt, c, s->n_sent);
        while (b->first < b->n && b->first < seen)
            block_allocator_give(bt->pools[c], b->block[b->first++]);
    }
}

void block_tables_advance(struct block_tables *bt, struct sequence *s)
{
    chain_full(bt, s, true);
    give_passed(bt, s);
    if (!bt->config.share || !block_tables_begins(s)) return;
    const uint32_t from = s->n_sent > s->n_home ? s->n_sent : s->n_home;
    uint32_t node, n = find_shared(bt, s, &node);
    if (n > s->n_chained) {
        take_shared(bt, s, n, node);
        s->n_chained = n;
        s->n_sent = n * KV_BLOCK_POSITIONS;
    }
    copy_partial(bt, s);
    if (s->n_sent <= from) return;
    s->n_begun = s->n_sent;
    const uint32_t to = s->n_sent < s->n_prompt ? s->n_sent : s->n_prompt;
    if (to > from) s->n_cached += to - from;
}

/* ---- telling, giving back ---- */

uint32_t block_tables_untold(const struct block_tables *bt, const struct sequence *s)
{
    uint32_t untold = s->copies ? bt->config.n_classes : 0;
    for (uint32_t c = 0; c < bt->config.n_classes; c++)
        untold += s->blocks[c].n - s->blocks[c].told;
    return untold;
}

uint32_t block_tables_tell(struct block_tables *bt, struct sequence *s, struct kv_command *commands)
{
    uint32_t n = 0;
    for (uint32_t c = 0; s->copies && c < bt->config.n_classes; c++) {
        const struct sequence_blocks *b = &s->blocks[c];
        commands[n++] = (struct kv_command){
            .op = KV_COPY, .kv_class = c, .index = b->copy_from, .block = b->block[b->n - 1]};
    }
    end_copying(bt, s);
    for (uint32_t c = 0; c < bt->config.n_classes; c++)
        for (struct sequence_blocks *b = &s->blocks[c]; b->told < b->n; b->told++)
            commands[n++] = (struct kv_command){.op = KV_MAP,
                                                .kv_class = c,
                                                .seq = s->slot,
                                                .index = b->told,
                                                .block = b->block[b->told]};
    return n;
}

bool block_tables_release(struct block_tables *bt, struct sequence *s)
{
    bool is_known = false;
    end_copying(bt, s);
    chain_full(bt, s, false);
    for (uint32_t c = 0; c < bt->config.n_classes; c++) {
        struct sequence_blocks *b = &s->blocks[c];
        /* The last one first: what continues a prefix lies idle longer, and is forgotten
         * before it. */
        while (b->n > b->first) block_allocator_give(bt->pools[c], b->block[--b->n]);
        is_known |= b->told > 0;
        b->first = b->n = b->told = 0;
    }
    s->n_chained = s->n_sent = s->n_begun = 0;
    return is_known;
}
