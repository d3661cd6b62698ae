/* inspect - what a model file holds, and what each rank of a line would hold of it.
 *
 * Reads metadata only.
 * Stations: engine/model (numbers, tensors), engine/plan (ranges), output. The text and the JSON
 * object are two printings of one struct. */
#include "coordinator/front/front.h"

#include "coordinator/front/families_report.h"
#include "coordinator/front/output.h"
#include "coordinator/line/capacity.h"
#include "coordinator/text/tokenizer.h"
#include "engine/memory.h"
#include "engine/model.h"
#include "engine/plan.h"
#include "engine/quant_formats.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { FORMATS_MAX = 16 };

/* Tensors of one place in the model, by number format. */
struct tally {
    uint64_t bytes;
    uint32_t n_formats;
    struct {
        uint32_t format, tensors;
        uint64_t bytes;
    } formats[FORMATS_MAX];
};

struct rank_share {
    uint32_t rank;
    struct layer_range range;
    struct footprint needs;
};

struct inspection {
    const struct settings *settings;
    struct model *model;
    struct tokenizer *tokenizer; /* NULL: the file has none that this program reads */
    struct tally total, input, output, every;
    struct tally *layers;      /* [n_layer] */
    struct rank_share *shares; /* [n_shares]: the ranks that hold anything */
    uint32_t n_shares;
    uint32_t n_ctx;
    struct memory_limits memory; /* of this process */
};

/* ---- counting ---- */

static void add_to_tally(struct tally *t, const struct gguf_tensor *tensor)
{
    t->bytes += tensor->bytes;
    uint32_t i = 0;
    while (i < t->n_formats && t->formats[i].format != tensor->format) i++;
    if (i == FORMATS_MAX) return;
    if (i == t->n_formats) t->formats[t->n_formats++].format = tensor->format;
    t->formats[i].tensors++;
    t->formats[i].bytes += tensor->bytes;
}

static int count_tensor(void *ctx, const struct tensor_row *row, uint32_t layer,
                        const struct gguf_tensor *tensor, struct err *err)
{
    (void)err;
    struct inspection *in = ctx;
    struct tally *place[] = {[SCOPE_INPUT] = &in->input,
                             [SCOPE_LAYER] = &in->layers[layer < in->model->hp.n_layer ? layer : 0],
                             [SCOPE_OUTPUT] = &in->output,
                             [SCOPE_EVERY] = &in->every};
    add_to_tally(place[row->scope], tensor);
    add_to_tally(&in->total, tensor);
    return ERR_NONE;
}

/* share_out() - the ranges of the ranks, and what each needs for sequences of n_ctx. */
static int share_out(struct inspection *in, struct err *err)
{
    const struct settings *set = in->settings;
    const struct model *m = in->model;
    uint32_t n = set->ranks > 1 ? set->ranks - 1 : 1;
    struct layer_range *ranges = calloc(STAGES_MAX, sizeof *ranges);
    in->shares = calloc(STAGES_MAX, sizeof *in->shares);
    int rc = ERR_NONE;
    if (ranges == NULL || in->shares == NULL)
        rc = err_set(err, ERR_MEMORY, "no memory for %u ranks", n);
    else if (set->split == NULL)
        rc = plan_by_bytes(m, n, ranges, err);
    else {
        n = STAGES_MAX;
        rc = plan_by_hand(m, set->split, &n, ranges, err);
    }
    const bool alone = set->ranks <= 1 && n == 1;
    const struct capacity_wish wish = {.model = m,
                                       .n_stages = n,
                                       .n_ctx = in->n_ctx,
                                       .n_seqs = set->slots,
                                       .kv = (enum kv_format)set->kv,
                                       .tokens_only = true};
    struct line_limits limits;
    if (rc == ERR_NONE) rc = capacity_settle(&wish, &limits, err);
    in->n_shares = rc == ERR_NONE ? n : 0;
    for (uint32_t i = 0; i < in->n_shares; i++)
        in->shares[i] =
            (struct rank_share){alone ? 0 : i + 1, ranges[i], capacity_need(m, ranges[i], &limits)};
    free(ranges);
    return rc;
}

static int inspect(struct inspection *in, struct err *err)
{
    TRY(model_open(&in->model, in->settings->operands.items[0], err));
    const struct hparams *hp = &in->model->hp;
    in->layers = calloc(hp->n_layer, sizeof *in->layers);
    CHECK(in->layers != NULL, err, ERR_MEMORY, "no memory for %u layers", hp->n_layer);
    const struct layer_range all = {0, hp->n_layer};
    TRY(model_visit_range(in->model, all, count_tensor, in, err));
    memory_read_limits(&in->memory, 1, "");
    in->n_ctx = in->settings->ctx != 0 ? in->settings->ctx : hp->n_ctx_train;
    TRY(share_out(in, err));
    /* A file without a vocabulary is still a model. */
    struct err ignored;
    if (tokenizer_open(&in->tokenizer, in->model->file, NULL, &ignored) != ERR_NONE)
        in->tokenizer = NULL;
    return ERR_NONE;
}

/* ---- names ---- */

static const char *format_name(uint32_t id)
{
    const struct format *f = format_find(id);
    return f == NULL ? "?" : f->name;
}

static const char *scaling_name(enum rope_scaling scaling)
{
    switch (scaling) {
    case ROPE_SCALING_NONE:
        return "none";
    case ROPE_SCALING_LINEAR:
        return "linear";
    case ROPE_SCALING_YARN:
        return "yarn";
    }
    return "?";
}

/* model_name() - general.name, empty where the file has none. */
static struct gguf_str model_name(const struct model *m)
{
    struct gguf_str name = {"", 0};
    struct err ignored;
    if (gguf_get_str(m->file, "general.name", &name, &ignored) != ERR_NONE)
        name = (struct gguf_str){"", 0};
    return name;
}

/* The first layer that attends; layer 0 where none does. */
static const struct layer_hparams *first_attention(const struct hparams *hp)
{
    for (uint32_t i = 0; i < hp->n_layer; i++)
        if (!hp->layer[i].is_conv) return &hp->layer[i];
    return &hp->layer[0];
}

/* ---- text ---- */

static int print_head(const struct inspection *in, struct err *err)
{
    const struct model *m = in->model;
    const struct hparams *hp = &m->hp;
    const struct layer_hparams *first = first_attention(hp);
    char bytes[OUTPUT_BYTES_TEXT], name[200];
    struct gguf_str general = model_name(m);
    TRY(output_printf(err, "file       %s, %s, %" PRIu64 " tensors\n", gguf_path(m->file),
                      output_bytes(gguf_file_bytes(m->file), bytes), gguf_tensor_count(m->file)));
    TRY(output_printf(err, "name       %s\n",
                      output_quote(general.data, general.len, name, sizeof name)));
    TRY(output_printf(err, "family     %s\n", m->family->name));
    TRY(output_printf(
        err, "size       %u layers, width %u, feed-forward %u, vocabulary %u, context %u\n",
        hp->n_layer, hp->n_embd, first->n_ff, hp->n_vocab, hp->n_ctx_train));
    TRY(output_printf(err, "attention  %u heads, %u key/value heads, keys of %u, values of %u\n",
                      first->n_head, first->n_head_kv, hp->head_dim_k, hp->head_dim_v));
    if (hp->experts.n > 0)
        TRY(output_printf(err, "experts    %u, of which each row takes %u, feed-forward %u\n",
                          hp->experts.n, hp->experts.n_used, hp->experts.n_ff));
    if (hp->n_rope_tables == 0) return ERR_NONE;
    TRY(output_printf(err, "RoPE       %u dimensions, base %g", hp->n_rot, (double)hp->rope_base));
    if (hp->rope_scaling != ROPE_SCALING_NONE)
        TRY(output_printf(err, ", %s scaling by %g", scaling_name(hp->rope_scaling),
                          (double)hp->rope_factor));
    return output_printf(err, "\n");
}

static int print_tokenizer(const struct inspection *in, struct err *err)
{
    const struct tokenizer *t = in->tokenizer;
    if (t == NULL) return output_printf(err, "tokenizer  none that this program reads\n");
    const char *pre = tokenizer_pre_name(t);
    return output_printf(err, "tokenizer  %s%s%s, %d tokens, BOS %d%s, EOS %d\n",
                         tokenizer_model_name(t), pre[0] == '\0' ? "" : " ", pre,
                         tokenizer_vocab_size(t), tokenizer_bos(t),
                         tokenizer_adds_bos(t) ? " (put before a prompt)" : "", tokenizer_eos(t));
}

static int print_tally(const char *place, const struct tally *t, struct err *err)
{
    char bytes[OUTPUT_BYTES_TEXT];
    if (t->bytes == 0) return ERR_NONE;
    TRY(output_printf(err, "%-9s  %10s ", place, output_bytes(t->bytes, bytes)));
    for (uint32_t i = 0; i < t->n_formats; i++)
        TRY(output_printf(err, "  %s %s in %u", format_name(t->formats[i].format),
                          output_bytes(t->formats[i].bytes, bytes), t->formats[i].tensors));
    return output_printf(err, "\n");
}

static int print_places(const struct inspection *in, struct err *err)
{
    TRY(output_printf(err, "\n%-9s  %10s   number formats, bytes and tensors in the file\n",
                      "layer", "bytes"));
    TRY(print_tally("input", &in->input, err));
    TRY(print_tally("every", &in->every, err));
    for (uint32_t i = 0; i < in->model->hp.n_layer; i++) {
        char place[16];
        snprintf(place, sizeof place, "%u", i);
        TRY(print_tally(place, &in->layers[i], err));
    }
    TRY(print_tally("output", &in->output, err));
    return print_tally("total", &in->total, err);
}

static uint64_t share_bytes(const struct rank_share *s)
{
    return capacity_total(&s->needs) + CAPACITY_PROGRAM_BYTES;
}

static int print_share(const struct rank_share *s, uint64_t may, struct err *err)
{
    char layers[32], b[5][OUTPUT_BYTES_TEXT];
    snprintf(layers, sizeof layers, "%u..%u", s->range.first, s->range.end - 1);
    return output_printf(
        err, "%4u  %-9s  %10s  %10s  %10s  %10s  %10s%s\n", s->rank, layers,
        output_bytes(s->needs.weights, b[0]), output_bytes(s->needs.kv, b[1]),
        output_bytes(s->needs.buffers, b[2]), output_bytes(CAPACITY_PROGRAM_BYTES, b[3]),
        output_bytes(share_bytes(s), b[4]), share_bytes(s) > may ? "  more than here" : "");
}

/* What a rank needs stands beside what this very process may have, since the ranks' hosts are not
 * known here; each start checks it with the ranks themselves. */
static int print_shares(const struct inspection *in, struct err *err)
{
    const uint32_t slots = in->settings->slots > 0 ? in->settings->slots : 1;
    const char *limit;
    const uint64_t may = memory_smallest(&in->memory, &limit);
    char bytes[OUTPUT_BYTES_TEXT];
    TRY(output_printf(err, "\nmemory of each rank, for %u sequence%s of %u tokens\n", slots,
                      slots == 1 ? "" : "s", in->n_ctx));
    TRY(output_printf(err, "%4s  %-9s  %10s  %10s  %10s  %10s  %10s\n", "rank", "layers", "weights",
                      "kv", "buffers", "program", "together"));
    if (in->n_shares > 0 && in->shares[0].rank != 0)
        TRY(output_printf(err, "%4d  the coordinator: little\n", 0));
    for (uint32_t i = 0; i < in->n_shares; i++) TRY(print_share(&in->shares[i], may, err));
    if (may == MEMORY_UNLIMITED) return ERR_NONE;
    return output_printf(err, "a process may have %s here (%s)\n", output_bytes(may, bytes), limit);
}

static int print_tensors(const struct inspection *in, struct err *err)
{
    TRY(output_printf(err, "\ntensors\n"));
    for (uint64_t i = 0; i < gguf_tensor_count(in->model->file); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(in->model->file, i);
        char name[200];
        TRY(output_printf(err, "%-44s %-6s [",
                          output_quote(t->name.data, t->name.len, name, sizeof name),
                          format_name(t->format)));
        for (uint32_t k = 0; k < t->n_dims; k++)
            TRY(output_printf(err, "%s%" PRIu64, k == 0 ? "" : ", ", t->shape[k]));
        TRY(output_printf(err, "] %" PRIu64 " bytes\n", t->bytes));
    }
    return ERR_NONE;
}

static int print_text(const struct inspection *in, struct err *err)
{
    TRY(print_head(in, err));
    TRY(print_tokenizer(in, err));
    TRY(print_places(in, err));
    TRY(print_shares(in, err));
    if (in->settings->tensors) TRY(print_tensors(in, err));
    return output_flush(err);
}

/* ---- JSON. A NULL anywhere makes the whole NULL, which is ERR_MEMORY where it is printed. ---- */

static json_t *tally_json(const struct tally *t)
{
    json_t *formats = json_object();
    for (uint32_t i = 0; i < t->n_formats; i++)
        json_object_set_new(formats, format_name(t->formats[i].format),
                            json_pack("{s:I, s:I}", "tensors", (json_int_t)t->formats[i].tensors,
                                      "bytes", (json_int_t)t->formats[i].bytes));
    return json_pack("{s:I, s:o}", "bytes", (json_int_t)t->bytes, "formats", formats);
}

static json_t *layers_json(const struct inspection *in)
{
    json_t *array = json_array();
    for (uint32_t i = 0; i < in->model->hp.n_layer; i++)
        json_array_append_new(array, tally_json(&in->layers[i]));
    return array;
}

static json_t *shares_json(const struct inspection *in)
{
    json_t *array = json_array();
    for (uint32_t i = 0; i < in->n_shares; i++) {
        const struct rank_share *s = &in->shares[i];
        json_array_append_new(
            array,
            json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "rank", (json_int_t)s->rank,
                      "first_layer", (json_int_t)s->range.first, "end_layer",
                      (json_int_t)s->range.end, "weight_bytes", (json_int_t)s->needs.weights,
                      "kv_bytes", (json_int_t)s->needs.kv, "buffer_bytes",
                      (json_int_t)s->needs.buffers, "need_bytes", (json_int_t)share_bytes(s)));
    }
    return array;
}

static json_t *tensors_json(const struct inspection *in)
{
    json_t *array = json_array();
    for (uint64_t i = 0; i < gguf_tensor_count(in->model->file); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(in->model->file, i);
        json_t *shape = json_array();
        for (uint32_t k = 0; k < t->n_dims; k++)
            json_array_append_new(shape, json_integer((json_int_t)t->shape[k]));
        json_array_append_new(array, json_pack("{s:o, s:s, s:o, s:I}", "name",
                                               output_json_text(t->name.data, t->name.len),
                                               "format", format_name(t->format), "shape", shape,
                                               "bytes", (json_int_t)t->bytes));
    }
    return array;
}

static json_t *tokenizer_json(const struct tokenizer *t)
{
    if (t == NULL) return json_null();
    const char *pre = tokenizer_pre_name(t);
    return json_pack("{s:s, s:o, s:i, s:i, s:i, s:b}", "model", tokenizer_model_name(t), "pre",
                     output_json_text(pre, strlen(pre)), "tokens", tokenizer_vocab_size(t), "bos",
                     tokenizer_bos(t), "eos", tokenizer_eos(t), "adds_bos", tokenizer_adds_bos(t));
}

static json_t *hparams_json(const struct hparams *hp)
{
    const struct layer_hparams *first = first_attention(hp);
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:s, s:f}", "layers",
                     (json_int_t)hp->n_layer, "width", (json_int_t)hp->n_embd, "feed_forward",
                     (json_int_t)first->n_ff, "vocabulary", (json_int_t)hp->n_vocab, "context",
                     (json_int_t)hp->n_ctx_train, "heads", (json_int_t)first->n_head, "kv_heads",
                     (json_int_t)first->n_head_kv, "key_length", (json_int_t)hp->head_dim_k,
                     "value_length", (json_int_t)hp->head_dim_v, "rope_dimensions",
                     (json_int_t)hp->n_rot, "rope_base", (double)hp->rope_base, "rope_scaling",
                     scaling_name(hp->rope_scaling), "rope_factor", (double)hp->rope_factor);
}

static json_t *memory_json(const struct memory_limits *memory)
{
    const char *limit;
    const uint64_t may = memory_smallest(memory, &limit);
    if (may == MEMORY_UNLIMITED) return json_null();
    return json_pack("{s:I, s:o}", "bytes", (json_int_t)may, "limit",
                     output_json_text(limit, strlen(limit)));
}

static json_t *inspection_json(const struct inspection *in)
{
    const struct model *m = in->model;
    const char *path = gguf_path(m->file);
    struct gguf_str name = model_name(m);
    json_t *root = json_pack(
        "{s:o, s:I, s:o, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:I, s:o, s:o}", "file",
        output_json_text(path, strlen(path)), "file_bytes", (json_int_t)gguf_file_bytes(m->file),
        "name", output_json_text(name.data, name.len), "family", m->family->name, "dimensions",
        hparams_json(&m->hp), "tokenizer", tokenizer_json(in->tokenizer), "total",
        tally_json(&in->total), "input", tally_json(&in->input), "every_rank",
        tally_json(&in->every), "layers", layers_json(in), "output", tally_json(&in->output), "ctx",
        (json_int_t)in->n_ctx, "ranks", shares_json(in), "memory", memory_json(&in->memory));
    if (in->settings->tensors) json_object_set_new(root, "tensors", tensors_json(in));
    return root;
}

int inspect_run(const struct settings *settings, const struct line_starter *starter,
                struct err *err)
{
    (void)starter;
    if (settings->families) return families_report_print(err);
    struct inspection in = {.settings = settings};
    int rc = inspect(&in, err);
    if (rc == ERR_NONE)
        rc = settings->json ? output_json(inspection_json(&in), true, err) : print_text(&in, err);
    free(in.layers);
    free(in.shares);
    tokenizer_close(in.tokenizer);
    model_close(in.model);
    return rc;
}
