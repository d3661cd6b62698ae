/* settings - all that the command line can say, as one struct, and the option rows that fill it.
 *
 * Station before: options (the parser). Stations after: commands (who uses which group), front/. */
#ifndef TANDEM_COORDINATOR_SETTINGS_H
#define TANDEM_COORDINATOR_SETTINGS_H

#include "coordinator/options.h"
#include "coordinator/sample/sampler.h"
#include "engine/recipe.h"
#include "proto/link_emulate.h"

enum { LOGIT_TOP_MAX = 1024, STAGES_MAX = 1023, SEQUENCES_MAX = 32 };

/* Texts point into argv. */
struct settings {
    const char *model; /* first, so that no other member has offset 0: see option.given_offset */
    bool help, version, verbose, quiet, log_json;

    /* the line */
    uint32_t ctx;                                      /* 0: as much as the work needs */
    uint32_t slots, chunk, threads, stages, kv_tokens; /* 0: not given */
    const char *split;
    int kv;     /* enum kv_format */
    int matmul; /* enum matmul_choice */
    int wire;   /* enum wire_format */
    int idle;   /* enum link_idle */
    float stall_timeout_s;
    const char *link_emulate;
    struct link_emulation emulation; /* what link_emulate says */
    bool stats, trace_layers;
    const char *trace;
    int weights;        /* enum weights_from */
    const char *cache;  /* NULL: none */
    uint32_t cache_mib; /* of it at most */

    /* prompts */
    struct option_list prompts, ids;
    const char *file;
    bool no_bos, parse_special;

    /* choosing tokens; bias is filled by the front, from biases */
    struct sampling sampling;
    bool seed_given;
    struct option_list biases, stops;
    int32_t n_tokens; /* -1: until the context is full */
    bool ignore_eos;

    /* single commands */
    const char *ids_file, *out;
    uint32_t top, beside, ranks; /* 0: not given */
    bool hash, pieces, special, tensors, families, json;

    /* generate --batch; its results go to out */
    const char *batch;
    bool with_ids;
    float grace_s;

    /* measuring; lists of numbers, NULL: the usual ones */
    const char *pp, *tg, *seqs, *json_file, *csv_file;
    uint32_t repeat;
    bool kernels;

    /* planning */
    const char *cluster;

    /* making model files */
    const char *preset, *tokenizer;
    struct model_shape shape;
    int type; /* which word of --type */
    bool type_given;

    struct option_list operands;

    /* from the environment, for tests */
    bool shuffle_blocks;
    uint64_t shuffle_seed;
};

extern const struct option_group group_general, group_model, group_line, group_prompts,
    group_sampling, group_generate, group_batch, group_logits, group_tokenize, group_detokenize,
    group_inspect, group_perplexity, group_bench, group_plan, group_probe, group_synth,
    group_quantize;

/* settings_default() - what holds where nothing is given. settings_free() frees the lists. */
struct settings settings_default(void);
void settings_free(struct settings *s);

/* settings_read_environment() - the variables that tests use; the one place that reads them,
 * besides TANDEM_ISA, which engine/isa reads. ERR_USAGE for a value that is no number. */
int settings_read_environment(struct settings *s, struct err *err);
extern const char settings_environment_help[];

#endif
