/* prefix_index - see prefix_index.h. */
#include "coordinator/line/prefix_index.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

struct node {
    uint64_t key;
    uint64_t batch; /* that writes its last row */
    uint32_t parent;
    uint32_t first_child;           /* the latest */
    uint32_t older, newer;          /* among the children of its parent */
    uint32_t next;                  /* in its bucket */
    uint32_t block[KV_CLASSES_MAX]; /* of the classes above 0 */
    int32_t tokens[KV_BLOCK_POSITIONS];
};

struct prefix_index {
    uint32_t n_classes;
    struct node *nodes; /* [n_blocks[0]] */
    uint32_t *buckets;  /* [mask + 1] */
    uint64_t mask;
    uint32_t first_root;             /* as first_child, of no node */
    uint32_t *owner[KV_CLASSES_MAX]; /* [n_blocks[c]] of the classes above 0 */
};

int prefix_index_open(struct prefix_index **out, const uint32_t *n_blocks, uint32_t n_classes,
                      struct err *err)
{
    struct prefix_index *px = calloc(1, sizeof *px);
    CHECK(px != NULL, err, ERR_MEMORY, "no memory for the prefix index");
    px->n_classes = n_classes;
    px->first_root = PREFIX_NONE;
    while (px->mask < n_blocks[0]) px->mask = 2 * px->mask + 1;
    px->nodes = calloc(n_blocks[0], sizeof *px->nodes);
    px->buckets = malloc((px->mask + 1) * sizeof *px->buckets);
    bool taken = px->nodes != NULL && px->buckets != NULL;
    for (uint32_t c = 1; c < n_classes; c++) {
        px->owner[c] = calloc(n_blocks[c], sizeof(uint32_t));
        taken &= px->owner[c] != NULL;
    }
    if (!taken) {
        prefix_index_close(px);
        return err_set(err, ERR_MEMORY, "no memory for the prefix index of %u KV blocks",
                       n_blocks[0]);
    }
    memset(px->buckets, 0xff, (px->mask + 1) * sizeof *px->buckets);
    *out = px;
    return ERR_NONE;
}

void prefix_index_close(struct prefix_index *px)
{
    if (px == NULL) return;
    for (uint32_t c = 1; c < px->n_classes; c++) free(px->owner[c]);
    free(px->nodes);
    free(px->buckets);
    free(px);
}

/* key_of() - a multiply and a fold for each token, after the key of all tokens before. */
static uint64_t key_of(const struct prefix_index *px, uint32_t parent, const int32_t *tokens)
{
    uint64_t key = parent == PREFIX_NONE ? 1 : px->nodes[parent].key;
    for (uint32_t i = 0; i < KV_BLOCK_POSITIONS; i++) {
        key = (key ^ (uint32_t)tokens[i]) * 0x9e3779b97f4a7c15u;
        key ^= key >> 32;
    }
    return key;
}

uint32_t prefix_index_find(const struct prefix_index *px, uint32_t parent, const int32_t *tokens)
{
    const uint64_t key = key_of(px, parent, tokens);
    uint32_t at = px->buckets[key & px->mask];
    for (; at != PREFIX_NONE; at = px->nodes[at].next) {
        const struct node *n = &px->nodes[at];
        if (n->key == key && n->parent == parent &&
            memcmp(n->tokens, tokens, sizeof n->tokens) == 0)
            break;
    }
    return at;
}

static uint32_t *children_of(struct prefix_index *px, uint32_t node)
{
    return node == PREFIX_NONE ? &px->first_root : &px->nodes[node].first_child;
}

uint32_t prefix_index_find_like(const struct prefix_index *px, uint32_t parent,
                                const int32_t *tokens, uint32_t n, uint64_t before,
                                uint32_t *n_like)
{
    enum { LOOK_MAX = 64 };
    uint32_t best = PREFIX_NONE;
    uint32_t at = parent == PREFIX_NONE ? px->first_root : px->nodes[parent].first_child;
    *n_like = 0;
    for (uint32_t i = 0; i < LOOK_MAX && at != PREFIX_NONE; i++, at = px->nodes[at].older) {
        const struct node *node = &px->nodes[at];
        uint32_t like = 0;
        while (like < n && like < KV_BLOCK_POSITIONS && node->tokens[like] == tokens[like]) like++;
        if (like <= *n_like || node->batch >= before) continue;
        *n_like = like;
        best = at;
    }
    return best;
}

void prefix_index_add(struct prefix_index *px, uint32_t parent, const int32_t *tokens,
                      uint32_t block, uint64_t batch)
{
    struct node *n = &px->nodes[block];
    uint32_t *children = children_of(px, parent);
    *n = (struct node){.key = key_of(px, parent, tokens),
                       .batch = batch,
                       .parent = parent,
                       .first_child = PREFIX_NONE,
                       .older = *children,
                       .newer = PREFIX_NONE};
    if (*children != PREFIX_NONE) px->nodes[*children].newer = block;
    *children = block;
    memcpy(n->tokens, tokens, sizeof n->tokens);
    memset(n->block, 0xff, sizeof n->block);
    uint32_t *bucket = &px->buckets[n->key & px->mask];
    n->next = *bucket;
    *bucket = block;
}

void prefix_index_remove(struct prefix_index *px, uint32_t node)
{
    struct node *n = &px->nodes[node];
    BUG_IF(n->first_child != PREFIX_NONE, "a prefix is forgotten before what continues it");
    uint32_t *at = &px->buckets[n->key & px->mask];
    while (*at != node) at = &px->nodes[*at].next;
    *at = n->next;
    if (n->older != PREFIX_NONE) px->nodes[n->older].newer = n->newer;
    if (n->newer != PREFIX_NONE)
        px->nodes[n->newer].older = n->older;
    else
        *children_of(px, n->parent) = n->older;
}

uint32_t prefix_index_parent(const struct prefix_index *px, uint32_t node)
{
    return px->nodes[node].parent;
}

uint32_t prefix_index_block(const struct prefix_index *px, uint32_t node, uint32_t kv_class)
{
    return px->nodes[node].block[kv_class];
}

void prefix_index_set_block(struct prefix_index *px, uint32_t node, uint32_t kv_class,
                            uint32_t block)
{
    px->nodes[node].block[kv_class] = block;
    if (block != PREFIX_NONE) px->owner[kv_class][block] = node;
}

uint32_t prefix_index_owner(const struct prefix_index *px, uint32_t kv_class, uint32_t block)
{
    return px->owner[kv_class][block];
}
