/* plan_report - see plan_report.h. */
#include "coordinator/front/plan_report.h"

#include "coordinator/front/output.h"
#include "engine/memory.h"

#include <string.h>

enum { PROMPT_TOKENS = 512 }; /* of the prompt that is predicted, or half of the context */

/* ---- what is predicted ---- */

struct outlook {
    uint32_t n_seqs, n_prompt, n_stages;
    double context;              /* positions that a row sees, where decoding is judged */
    struct planner_decode alone; /* one sequence */
    struct planner_decode all;   /* all of them */
    double prompt_s;
    struct plan_batch row; /* of one sequence */
};

static struct outlook look_out(const struct plan_report *r)
{
    const struct line_limits *l = planner_limits(r->planner);
    struct outlook o = {.n_seqs = l->n_seqs,
                        .n_prompt = l->n_ctx / 2 < PROMPT_TOKENS ? l->n_ctx / 2 : PROMPT_TOKENS,
                        .n_stages = planner_count_stages(r->planner, r->ranges),
                        .context = l->n_ctx / 2.0};
    o.alone = planner_predict_decode(r->planner, r->ranges, 1, o.context);
    o.all = planner_predict_decode(r->planner, r->ranges, o.n_seqs, o.context);
    o.prompt_s = planner_predict_prompt(r->planner, r->ranges, o.n_prompt);
    o.row = (struct plan_batch){.rows = 1, .n_seqs = 1, .wanted = 1, .context = o.context};
    return o;
}

static bool is_left_out(const struct plan_report *r, uint32_t i)
{
    return r->ranges[i].end == r->ranges[i].first;
}

/* ---- text ---- */

static int host_width(const struct plan_report *r)
{
    size_t width = strlen("host");
    for (uint32_t i = 0; i < r->n_ranks; i++)
        if (strlen(r->ranks[i].host) > width) width = strlen(r->ranks[i].host);
    return (int)width;
}

static void print_rank(FILE *out, const struct plan_report *r, const struct outlook *o, uint32_t i,
                       int width)
{
    const struct planner_rank *rank = &r->ranks[i];
    char layers[32], b[5][OUTPUT_BYTES_TEXT], may[OUTPUT_BYTES_TEXT] = "no limit";
    if (rank->may != MEMORY_UNLIMITED) output_bytes(rank->may, may);
    const struct footprint f = planner_need(r->planner, r->ranges[i]);
    snprintf(layers, sizeof layers, "%u..%u", r->ranges[i].first, r->ranges[i].end - 1);
    fprintf(out, "%4u  %-*s  ", r->first_rank + i, width, rank->host);
    fprintf(out, "%-9s  %10s  %10s  %10s  %10s  %10s  %9.3f\n", layers,
            output_bytes(f.weights, b[0]), output_bytes(f.kv, b[1]), output_bytes(f.buffers, b[2]),
            output_bytes(capacity_total(&f) + CAPACITY_PROGRAM_BYTES, b[3]), may,
            1e3 * planner_stage_seconds(r->planner, i, r->ranges[i], &o->row));
}

/* Why a rank has no layers. */
enum reason { REASON_MEMORY, REASON_LAYERS, REASON_SLOW, REASONS };
static const char *const reasons[REASONS] = {
    [REASON_MEMORY] = "no layer fits into what one may use",
    [REASON_LAYERS] = "every layer has a rank of its own already",
    [REASON_SLOW] = "one more would only slow the line",
};

static enum reason reason_of(const struct plan_report *r, uint32_t i, uint32_t n_stages)
{
    if (!planner_holds_any(r->planner, i)) return REASON_MEMORY;
    return n_stages == r->model->hp.n_layer ? REASON_LAYERS : REASON_SLOW;
}

/* end_of_run() - behind the ranks from i on that are left out for the same reason. */
static uint32_t end_of_run(const struct plan_report *r, uint32_t i, uint32_t n_stages)
{
    const enum reason reason = reason_of(r, i, n_stages);
    while (i < r->n_ranks && is_left_out(r, i) && reason_of(r, i, n_stages) == reason) i++;
    return i;
}

/* print_left_out() - those of one reason, on one line. */
static void print_left_out(FILE *out, const struct plan_report *r, uint32_t n_stages,
                           enum reason reason)
{
    uint32_t count = 0;
    for (uint32_t i = 0, end; i < r->n_ranks; i = end) {
        end = i + 1;
        if (!is_left_out(r, i) || reason_of(r, i, n_stages) != reason) continue;
        end = end_of_run(r, i, n_stages);
        const char *host = r->ranks[i].host, *last = r->ranks[end - 1].host;
        fprintf(out, "%s%u", count == 0 ? "left out: " : ", ", r->first_rank + i);
        if (end > i + 1) fprintf(out, "..%u", r->first_rank + end - 1);
        fprintf(out, " @%s", host);
        if (strcmp(host, last) != 0) fprintf(out, "..%s", last);
        count += end - i;
    }
    if (count > 1) fprintf(out, " (%u ranks)", count);
    if (count > 0) fprintf(out, ": %s\n", reasons[reason]);
}

static void print_ranks(FILE *out, const struct plan_report *r, const struct outlook *o)
{
    const int width = host_width(r);
    char program[OUTPUT_BYTES_TEXT];
    fprintf(out, "%4s  %-*s  %-9s  %10s  %10s  %10s  %10s  %10s  %9s\n", "rank", width, "host",
            "layers", "weights", "kv", "buffers", "together", "may use", "ms/token");
    if (r->first_rank > 0)
        fprintf(out, "%4d  %-*s  the coordinator: little\n", 0, width, r->ranks[0].host);
    for (uint32_t i = 0; i < r->n_ranks; i++)
        if (!is_left_out(r, i)) print_rank(out, r, o, i, width);
    for (int reason = 0; reason < REASONS; reason++)
        print_left_out(out, r, o->n_stages, (enum reason)reason);
    fprintf(out, "(together: with %s for the program itself)\n",
            output_bytes(CAPACITY_PROGRAM_BYTES, program));
}

static void print_speed(FILE *out, const struct plan_report *r, const struct outlook *o)
{
    const uint32_t slowest = o->all.slowest;
    fprintf(out, "\ndecode   %.1f tokens/s of one sequence", o->alone.tok_s);
    if (o->n_seqs > 1) fprintf(out, ", %.1f of %u together", o->all.tok_s, o->n_seqs);
    fprintf(out, ", each seeing %.0f positions; bubble %.0f%%\n", o->context, 100 * o->all.bubble);
    fprintf(out, "prompt   %u tokens: the first new one after %.0f ms, %.1f tokens/s\n",
            o->n_prompt, 1e3 * o->prompt_s, o->n_prompt / o->prompt_s);
    fprintf(out, "slowest  rank %u @%s\n", r->first_rank + slowest, r->ranks[slowest].host);
}

static void print_context(FILE *out, const struct plan_report *r)
{
    const uint32_t trained = r->model->hp.n_ctx_train;
    fprintf(out, "context  %u tokens fit", r->largest_ctx);
    fprintf(out,
            r->largest_ctx == trained ? ", all that the model was trained for\n" : " at most\n");
}

void plan_report_print(FILE *out, const struct plan_report *r)
{
    const struct outlook o = look_out(r);
    fprintf(out, "%s: %u layers on %u of %u worker%s, %u sequence%s of %u tokens\n\n", r->name,
            r->model->hp.n_layer, o.n_stages, r->n_ranks, r->n_ranks == 1 ? "" : "s", o.n_seqs,
            o.n_seqs == 1 ? "" : "s", planner_limits(r->planner)->n_ctx);
    print_ranks(out, r, &o);
    print_speed(out, r, &o);
    print_context(out, r);
}

/* ---- JSON ---- */

static json_t *bytes_json(uint64_t bytes)
{
    return bytes == MEMORY_UNLIMITED ? json_null() : json_integer((json_int_t)bytes);
}

static json_t *rank_json(const struct plan_report *r, const struct outlook *o, uint32_t i)
{
    const struct planner_rank *rank = &r->ranks[i];
    const struct layer_range range = r->ranges[i];
    const bool left_out = is_left_out(r, i);
    struct footprint f = {0};
    if (!left_out) f = planner_need(r->planner, range);
    return json_pack(
        "{s:I, s:o, s:b, s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:f, s:f, s:f}", "rank",
        (json_int_t)(r->first_rank + i), "host", output_json_text(rank->host, strlen(rank->host)),
        "left_out", left_out, "first_layer", (json_int_t)range.first, "end_layer",
        (json_int_t)range.end, "weight_bytes", (json_int_t)f.weights, "kv_bytes", (json_int_t)f.kv,
        "buffer_bytes", (json_int_t)f.buffers, "need_bytes",
        (json_int_t)(left_out ? 0 : capacity_total(&f) + CAPACITY_PROGRAM_BYTES), "may_bytes",
        bytes_json(rank->may), "token_ms",
        left_out ? 0.0 : 1e3 * planner_stage_seconds(r->planner, i, range, &o->row), "read_gb_s",
        rank->speed.read_bytes_s * 1e-9, "gop_s", rank->speed.ops_s * 1e-9);
}

json_t *plan_report_json(const struct plan_report *r)
{
    const struct outlook o = look_out(r);
    json_t *ranks = json_array();
    for (uint32_t i = 0; i < r->n_ranks; i++) json_array_append_new(ranks, rank_json(r, &o, i));
    return json_pack(
        "{s:o, s:I, s:I, s:I, s:o, s:f, s:f, s:f, s:I, s:f, s:f, s:I, s:I}", "model",
        output_json_text(r->name, strlen(r->name)), "layers", (json_int_t)r->model->hp.n_layer,
        "ctx", (json_int_t)planner_limits(r->planner)->n_ctx, "slots", (json_int_t)o.n_seqs,
        "ranks", ranks, "decode_tok_s", o.alone.tok_s, "decode_all_tok_s", o.all.tok_s, "bubble",
        o.all.bubble, "prompt_tokens", (json_int_t)o.n_prompt, "prompt_tok_s",
        o.n_prompt / o.prompt_s, "ttft_ms", 1e3 * o.prompt_s, "slowest_rank",
        (json_int_t)(r->first_rank + o.all.slowest), "largest_ctx", (json_int_t)r->largest_ctx);
}
