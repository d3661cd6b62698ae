/* families_report - see families_report.h. */
#include "coordinator/front/families_report.h"

#include "coordinator/front/output.h"
#include "engine/families.h"
#include "engine/quant_formats.h"

#include <stdio.h>

static const struct tensor_row *row_of(const struct family *f, enum tensor_id id)
{
    for (size_t i = 0; i < f->n_tensors; i++)
        if (f->tensors[i].id == id) return &f->tensors[i];
    return NULL;
}

static bool has(const struct family *f, enum tensor_id id)
{
    return row_of(f, id) != NULL;
}

static const char *position_of(const struct family *f)
{
    switch (f->rope) {
    case ROPE_INTERLEAVED:
        return f->rope_is_partial ? "RoPE, neighbours, partial" : "RoPE, neighbours";
    case ROPE_HALF:
        return f->rope_is_partial ? "RoPE, halves, partial" : "RoPE, halves";
    case ROPE_NONE:
        break;
    }
    return f->ctx_is_hard ? "learned" : "ALiBi";
}

static const char *ffn_of(const struct family *f)
{
    const struct tensor_row *up = row_of(f, TENSOR_FFN_UP);
    bool is_gated = has(f, TENSOR_FFN_GATE) || has(f, TENSOR_EXPERT_GATE) ||
                    (up != NULL && up->role == ROLE_HALVES);
    switch (f->activation) {
    case ACT_SILU:
        return "SwiGLU";
    case ACT_GELU:
        return is_gated ? "GeGLU" : "GELU";
    case ACT_RELU_SQUARED:
        return "ReLU squared";
    case ACT_SWIGLU_CLAMPED:
        return "SwiGLU, clamped";
    }
    return "?";
}

static const char *residual_of(const struct family *f)
{
    switch (f->residual) {
    case RESIDUAL_SEQUENTIAL:
        if (!has(f, TENSOR_ATTN_POST_NORM)) return "in turn";
        return has(f, TENSOR_ATTN_NORM) ? "in turn, normed before and after"
                                        : "in turn, normed after";
    case RESIDUAL_PARALLEL:
        return "parallel";
    case RESIDUAL_BY_KEY:
    case RESIDUAL_BY_FFN_NORM:
        return "either";
    }
    return "?";
}

/* What else a family has, separated by commas. */
struct notes {
    char text[160];
    size_t len;
};

static void note(struct notes *n, bool applies, const char *what)
{
    if (!applies) return;
    int more =
        snprintf(n->text + n->len, sizeof n->text - n->len, "%s%s", n->len > 0 ? ", " : "", what);
    n->len += (size_t)more;
}

static void take_notes(const struct family *f, struct notes *n)
{
    *n = (struct notes){0};
    note(n, f->experts.use == EXPERTS_ALWAYS, "experts");
    note(n, f->experts.use == EXPERTS_BY_KEY, "with or without experts");
    note(n, f->experts.shared != SHARED_NONE, "a shared expert");
    note(n, f->is_latent, "latent attention");
    note(n, f->has_convs, "short convolutions");
    note(n, f->window.period > 0, "sliding windows");
    note(n, has(f, TENSOR_ATTN_Q_NORM), "query and key norms");
    note(n, has(f, TENSOR_ATTN_SINKS), "sinks");
    note(n, f->attn_softcap > 0 || f->caps_scores, "soft caps");
    note(n, f->multipliers != MULTIPLIERS_NONE || f->logits != LOGITS_PLAIN, "multipliers");
    note(n, f->rope_off_period > 0 || f->rope_off_unwindowed, "layers without rotation");
}

static int print_families(struct err *err)
{
    TRY(output_printf(err, "| family | norm | positions | feed-forward | residual | and |\n"
                           "|---|---|---|---|---|---|\n"));
    for (size_t i = 0; i < family_count(); i++) {
        const struct family *f = family_at(i);
        struct notes n;
        take_notes(f, &n);
        TRY(output_printf(err, "| %s | %s | %s | %s | %s | %s |\n", f->name,
                          f->norm == NORM_RMS ? "RMS" : "layer", position_of(f), ffn_of(f),
                          residual_of(f), n.text));
    }
    return ERR_NONE;
}

static int print_formats(struct err *err)
{
    enum { IDS = 256 };
    TRY(output_printf(err, "\n| number format | bits a value | runs |\n|---|---|---|\n"));
    for (uint32_t id = 0; id < IDS; id++) {
        const struct format *f = format_find(id);
        if (f == NULL || f->decode == NULL) continue;
        TRY(output_printf(err, "| %s | %.3g | %s |\n", f->name,
                          8.0 * f->block_bytes / f->block_values,
                          f->runs             ? "yes"
                          : f->decode != NULL ? "after conversion"
                                              : "no"));
    }
    return ERR_NONE;
}

int families_report_print(struct err *err)
{
    TRY(print_families(err));
    return print_formats(err);
}
