/* model - one opened model file: its family, its numbers, and where each tensor lies.
 *
 * Everything here is metadata: nothing is read of a tensor's data. Used by the coordinator (plans,
 * checks, inspect) and by each stage (which tensors a layer range needs).
 * Stations before: gguf_parts, families. Stations after: plan, weights. */
#ifndef TANDEM_ENGINE_MODEL_H
#define TANDEM_ENGINE_MODEL_H

#include "engine/err.h"
#include "engine/families.h"
#include "engine/gguf.h"
#include "engine/hparams.h"

struct model {
    struct gguf *file;
    const struct family *family;
    struct hparams hp;
    /* [TENSOR_COUNT] for tensors outside layers, then [n_layer][TENSOR_COUNT]; NULL where
     * absent. */
    const struct gguf_tensor **tensors;
    /* Ranks compare both. */
    uint64_t digest; /* of metadata, tensor directory and file length */
    uint64_t sample; /* of some of the weights; 0 where the files are not here */
};

/* model_open() - open path (of a split model its first part), find its family, read and check its
 * numbers and every tensor's presence, shape and number format. On success *out is owned by the
 * caller. Returns ERR_ABSENT (it cannot be opened), ERR_FILE, ERR_SHAPE (tensor, found and wanted
 * shape), ERR_UNSUPPORTED (family, number format or tensor named), ERR_MEMORY. */
int model_open(struct model **out, const char *path, struct err *err);
/* model_open_headers() - the same of files that another host has: headers [n] of all parts. */
int model_open_headers(struct model **out, const char *path, const struct gguf_header *headers,
                       uint32_t n, struct err *err);
void model_close(struct model *m); /* NULL is allowed */

/* model_tensor() - the tensor of a kind; layer is ignored outside SCOPE_LAYER; NULL
 * where absent. */
const struct gguf_tensor *model_tensor(const struct model *m, enum tensor_id id, uint32_t layer);

/* model_dim() - the number behind a symbolic dimension, in a layer (any layer
 * outside SCOPE_LAYER). */
uint64_t model_dim(const struct model *m, enum dim dim, uint32_t layer);

/* model_has_part() - does a layer have the part of a model that a tensor row belongs to? */
bool model_has_part(const struct model *m, enum tensor_part part, uint32_t layer);

/* A stage's share: layers [first, end), with the input if first == 0 and the output if end ==
 * n_layer. */
struct layer_range {
    uint32_t first, end;
};

/* model_visit_range() - call visit for each tensor that a stage of this range holds, in the table's
 * order, layer by layer; a tied output is visited as TENSOR_OUTPUT with the embedding's tensor,
 * once only where the same stage holds both (as TENSOR_TOKEN_EMBD). Stops at the first code that is
 * not 0 and returns it. */
typedef int model_visit_fn(void *ctx, const struct tensor_row *row, uint32_t layer,
                           const struct gguf_tensor *tensor, struct err *err);
int model_visit_range(const struct model *m, struct layer_range range, model_visit_fn *visit,
                      void *ctx, struct err *err);

/* What one stage needs, in bytes. weights: packed as the stage will hold them. buffers: of
 * engine/stage; the worker around it takes more (proto/stage_bytes.h). */
struct footprint {
    uint64_t weights, kv, buffers;
};

/* Number formats of the cache. Q8_0: for each 32 values of a head's key or value, the last of them
 * may be fewer, one f16 scale, and a signed byte each. */
enum kv_format { KV_F16, KV_F32, KV_Q8_0, KV_FORMAT_COUNT };

/* kv_part_bytes() - K or V of one head in a block of KV_BLOCK_POSITIONS = 32 positions. */
static inline uint64_t kv_part_bytes(enum kv_format format, uint64_t dim)
{
    if (format == KV_Q8_0) return 32 * (dim + (dim + 31) / 32 * 2);
    return 32 * dim * (format == KV_F16 ? 2 : 4);
}

/* kv_block_bytes() - a block of one layer, all heads. */
static inline uint64_t kv_block_bytes(enum kv_format format, struct cache_row row)
{
    return row.n_head * (kv_part_bytes(format, row.dim_k) + kv_part_bytes(format, row.dim_v));
}

/* Sizes of one line, settled before anything is loaded; the same on every stage. */
struct line_limits {
    uint32_t n_ctx;                    /* positions of one sequence at most */
    uint32_t n_seqs;                   /* sequences at most, numbered 0 .. n_seqs-1 */
    uint32_t n_blocks[KV_CLASSES_MAX]; /* KV blocks of each class's pool */
    uint32_t rows_max;                 /* rows of a batch */
    uint32_t wanted_max;               /* rows of a batch that want scores */
    uint32_t credits;                  /* batches in flight */
    enum kv_format kv;
    uint32_t wire; /* how rows travel between stages (proto/wire_rows.h); no stage looks at it */
};

/* model_footprint() - what a stage of this range needs. Pure. model_working_bytes() - the same
 * without its weights, which takes much less time to say. */
struct footprint model_footprint(const struct model *m, struct layer_range range,
                                 const struct line_limits *limits);
struct footprint model_working_bytes(const struct model *m, struct layer_range range,
                                     const struct line_limits *limits);

/* As what a stage keeps a tensor: n matrices of n_out rows of n_in values, packed in a number
 * format or as f32. */
struct held {
    enum tensor_id id;
    bool is_packed;
    uint32_t format;
    uint64_t n_in, n_out, n;
};

/* model_held() - fill out and return how many: ROLE_LATENT becomes two, all others one. */
uint32_t model_held(const struct model *m, const struct tensor_row *row,
                    const struct gguf_tensor *tensor, struct held out[2]);
uint64_t held_bytes(const struct held *h);
/* model_held_bytes() - of all that becomes of one tensor. */
uint64_t model_held_bytes(const struct model *m, const struct tensor_row *row,
                          const struct gguf_tensor *tensor);

/* What each row of a batch needs of a stage's buffers (pass.h): floats of the regions, values and
 * blocks of 32 of the widest quantised input, angles of all rotary tables, and experts. */
struct row_sizes {
    uint64_t wide, input, blocks, kept, angles, chosen;
};
struct row_sizes model_row_sizes(const struct model *m, struct layer_range range);

/* model_attention_parts() - floats in which threads leave results of single tiles, where they share
 * the past of few rows: at most so many tiles of queries that one row of 32 heads has room
 * for 63. */
enum { ATTENTION_PARTS = 2048 };
uint64_t model_attention_parts(const struct model *m, struct layer_range range,
                               const struct line_limits *limits);

/* model_matrix_bytes() - packed bytes of a [n_out, n_in] matrix: n_out rounded up to PANEL_ROWS. */
uint64_t model_matrix_bytes(uint32_t format, uint64_t n_in, uint64_t n_out);

#endif
