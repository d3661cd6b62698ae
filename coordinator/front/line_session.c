/* line_session - see line_session.h. */
#include "coordinator/front/line_session.h"

#include "coordinator/front/input.h"
#include "coordinator/front/stats_report.h"
#include "coordinator/front/trace_file.h"
#include "engine/clock.h"
#include "engine/log.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int session_open(struct session *s, const struct settings *settings,
                 const struct line_starter *starter, struct err *err)
{
    *s = (struct session){.settings = settings, .starter = starter};
    progress_bar_open(&s->bar, !settings->quiet && !settings->log_json);
    TRY(model_open(&s->model, settings->model, err));
    return tokenizer_open(&s->tokenizer, s->model->file, NULL, err);
}

void session_close(struct session *s)
{
    progress_bar_erase(&s->bar);
    line_close(s->line);
    if (s->trace != NULL) fclose(s->trace);
    for (uint32_t i = 0; i < s->n_prompts; i++) token_list_free(&s->prompts[i]);
    free(s->prompts);
    tokenizer_close(s->tokenizer);
    model_close(s->model);
}

/* ---- prompts ---- */

static int add_prompt(struct session *s, const char *text, size_t len, struct err *err)
{
    struct token_list *ids = &s->prompts[s->n_prompts++];
    TRY(tokenizer_encode(s->tokenizer, text, len, !s->settings->no_bos, s->settings->parse_special,
                         ids, err));
    CHECK(ids->n > 0, err, ERR_USAGE,
          "prompt %u is empty, and nothing is put before it (BOS) to begin with: give it a text",
          s->n_prompts);
    return ERR_NONE;
}

static int add_ids_prompt(struct session *s, const char *text, struct err *err)
{
    struct token_list *ids = &s->prompts[s->n_prompts++];
    TRY(input_parse_ids(text, strlen(text), "--ids", ids, err));
    CHECK(ids->n > 0, err, ERR_USAGE, "--ids is empty: give one token id at least");
    for (size_t i = 0; i < ids->n; i++)
        CHECK((uint32_t)ids->ids[i] < s->model->hp.n_vocab, err, ERR_USAGE,
              "--ids: token %d is beyond the vocabulary of %u", ids->ids[i], s->model->hp.n_vocab);
    return ERR_NONE;
}

/* add_file_prompt() - the one newline that an editor or echo leaves at the end is no part of a
 * prompt. */
static int add_file_prompt(struct session *s, const char *path, struct err *err)
{
    char *text;
    size_t len;
    if (strcmp(path, "-") == 0 && isatty(STDIN_FILENO))
        log_line(LOG_WARN, "reading the prompt from standard input, up to Ctrl-D");
    TRY(input_read(path, &text, &len, err));
    if (len > 0 && text[len - 1] == '\n') len--;
    int rc = add_prompt(s, text, len, err);
    free(text);
    return rc;
}

int session_read_prompts(struct session *s, struct err *err)
{
    const struct settings *set = s->settings;
    const char *path = set->file;
    if (path == NULL && set->prompts.n + set->ids.n == 0) path = "-";
    s->prompts = calloc((size_t)set->prompts.n + set->ids.n + 1, sizeof *s->prompts);
    CHECK(s->prompts != NULL, err, ERR_MEMORY, "no memory for the prompts");
    for (uint32_t i = 0; i < set->prompts.n; i++) {
        const char *text = set->prompts.items[i];
        TRY(add_prompt(s, text, strlen(text), err));
    }
    for (uint32_t i = 0; i < set->ids.n; i++) TRY(add_ids_prompt(s, set->ids.items[i], err));
    if (path != NULL) TRY(add_file_prompt(s, path, err));
    return ERR_NONE;
}

uint32_t session_context(const struct session *s, uint64_t needed)
{
    const uint32_t trained = s->model->hp.n_ctx_train;
    if (s->settings->ctx != 0) return s->settings->ctx;
    return needed < trained ? (uint32_t)needed : trained;
}

uint32_t session_tokens_max(const struct session *s, int32_t n)
{
    if (n >= 0) return (uint32_t)n;
    return s->settings->ctx != 0 ? UINT32_MAX : SESSION_UNTIL_FULL_MAX;
}

int session_check_prompts(const struct session *s, uint32_t n_ctx, struct err *err)
{
    for (uint32_t i = 0; i < s->n_prompts; i++)
        CHECK(s->prompts[i].n <= n_ctx, err, ERR_CAPACITY,
              "prompt %u has %zu tokens and the context holds %u: shorten it, or raise --ctx (the "
              "model was trained for %u)",
              i + 1, s->prompts[i].n, n_ctx, s->model->hp.n_ctx_train);
    return ERR_NONE;
}

/* ---- the line ---- */

static void show_load(void *ctx, uint64_t done, uint64_t total)
{
    struct session *s = ctx;
    progress_bar_show(&s->bar, "loading", done, total);
}

/* least_context() - the longest prompt and a token. */
static uint32_t least_context(const struct session *s)
{
    size_t longest = 0;
    for (uint32_t i = 0; i < s->n_prompts; i++)
        if (s->prompts[i].n > longest) longest = s->prompts[i].n;
    return longest < UINT32_MAX ? (uint32_t)longest + 1 : UINT32_MAX;
}

/* rows_of_batch() - under OpenBLAS a result depends on where a prompt is cut, so the cut must not
 * depend on the line. */
static uint32_t rows_of_batch(const struct settings *set)
{
    enum { BLAS_CHUNK = 256 };
    return set->chunk == 0 && set->matmul != MATMUL_PACKED ? BLAS_CHUNK : set->chunk;
}

int session_start(struct session *s, uint32_t n_ctx, uint32_t n_seqs, struct err *err)
{
    const struct settings *set = s->settings;
    const uint32_t slots = set->slots != 0 ? set->slots : SEQUENCES_MAX;
    const uint64_t began_ns = clock_now_ns();
    line_catch_signals();
    log_set_who("coordinator");
    if (set->trace != NULL) TRY(trace_file_open(&s->trace, set->trace, err));
    TRY(s->starter->start(s->starter->ctx, set, &s->link, err));
    const struct line_config config = {
        .model = s->model,
        .split = set->split,
        .n_ctx = n_ctx,
        .n_ctx_min = least_context(s),
        .n_seqs = n_seqs < slots ? n_seqs : slots,
        .kv_tokens = set->kv_tokens,
        /* What is not computed cannot be measured; and results through OpenBLAS would depend on
         * who computed what. */
        .share_prefixes = !s->measures && set->matmul == MATMUL_PACKED,
        .tokens_only = s->tokens_only,
        .chunk = rows_of_batch(set),
        .threads = set->threads,
        .kv = (enum kv_format)set->kv,
        .matmul = (enum matmul_choice)set->matmul,
        .stall_ms = (uint32_t)(set->stall_timeout_s * 1000),
        .wire = (enum wire_format)set->wire,
        .measure = s->measures || set->stats || set->trace != NULL,
        .measure_speed = s->predicts,
        .trace_layers = set->trace != NULL && set->trace_layers,
        .shuffle_blocks = set->shuffle_blocks,
        .shuffle_seed = set->shuffle_seed,
        .on_load = show_load,
        .ctx = s,
    };
    TRY(line_open(&s->line, s->link, &config, err));
    progress_bar_erase(&s->bar);
    s->times.ready_ns = clock_now_ns();
    s->times.load_ns = s->times.ready_ns - began_ns;
    log_event(LOG_INFO, "ready", "%u stages of %u layers, context %u, loaded in %.3f s",
              line_stage_count(s->line), s->model->hp.n_layer, line_n_ctx(s->line),
              (double)s->times.load_ns * 1e-9);
    return ERR_NONE;
}

int session_dismiss(struct session *s, struct err *err)
{
    line_catch_signals();
    log_set_who("coordinator");
    TRY(s->starter->start(s->starter->ctx, s->settings, &s->link, err));
    return line_dismiss(s->link, err);
}

static int write_trace(struct session *s, struct err *err)
{
    if (s->trace == NULL) return ERR_NONE;
    FILE *file = s->trace;
    s->trace = NULL;
    return trace_file_write(file, s->settings->trace, s->line, s->model->hp.n_layer, err);
}

static void log_done(const struct session *s)
{
    const struct line_counts counts = line_counts(s->line);
    log_event(LOG_INFO, "done", "%llu prompt tokens, %llu tokens of text in %.3f s; %llu batches",
              (unsigned long long)counts.prompt_tokens, (unsigned long long)counts.tokens,
              (double)(s->times.done_ns - s->times.ready_ns) * 1e-9,
              (unsigned long long)counts.batches);
}

int session_finish(struct session *s, struct err *err)
{
    progress_bar_erase(&s->bar);
    s->times.done_ns = clock_now_ns();
    TRY(line_stop(s->line, err));
    log_done(s);
    if (!s->settings->quiet && !s->settings->log_json && !s->measures)
        line_report_print(s->line, &s->times, s->settings->verbose);
    if (s->settings->stats) TRY(stats_report_print(s->line, err));
    return write_trace(s, err);
}
