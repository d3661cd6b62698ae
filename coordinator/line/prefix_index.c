/* prefix_index - see prefix_index.h. */
#include "coordinator/line/prefix_index.h"

#include <stdlib.h>
#include <string.h>

struct node {
    uint64_t key;
    uint32_t parent, n_children;
    uint32_t next;                  /* in its bucket */
    uint32_t block[KV_CLASSES_MAX]; /* of the classes above 0 */
    int32_t tokens[KV_BLOCK_POSITIONS];
};

struct prefix_index {
    uint32_t n_classes;
    struct node *nodes; /* [n_blocks[0]] */
    uint32_t *buckets;  /* [mask + 1] */
    uint64_t mask;
    uint32_t *owner[KV_CLASSES_MAX]; /* [n_blocks[c]] of the classes above 0 */
};

int prefix_index_open(struct prefix_index **out, const uint32_t *n_blocks, uint32_t n_classes,
                      struct err *err)
{
    struct prefix_index *px = calloc(1, sizeof *px);
    CHECK(px != NULL, err, ERR_MEMORY, "no memory for the prefix index");
    px->n_classes = n_classes;
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

void prefix_index_add(struct prefix_index *px, uint32_t parent, const int32_t *tokens,
                      uint32_t block)
{
    struct node *n = &px->nodes[block];
    *n = (struct node){.key = key_of(px, parent, tokens), .parent = parent};
    memcpy(n->tokens, tokens, sizeof n->tokens);
    memset(n->block, 0xff, sizeof n->block);
    uint32_t *bucket = &px->buckets[n->key & px->mask];
    n->next = *bucket;
    *bucket = block;
    if (parent != PREFIX_NONE) px->nodes[parent].n_children++;
}

void prefix_index_remove(struct prefix_index *px, uint32_t node)
{
    struct node *n = &px->nodes[node];
    BUG_IF(n->n_children > 0, "a prefix is forgotten before what continues it");
    uint32_t *at = &px->buckets[n->key & px->mask];
    while (*at != node) at = &px->nodes[*at].next;
    *at = n->next;
    if (n->parent != PREFIX_NONE) px->nodes[n->parent].n_children--;
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
