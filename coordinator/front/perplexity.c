/* perplexity - how well a model predicts a text: the negative log-likelihood of its tokens, over
 * windows.
 *
 * The method is stated in commands.c, where --help shows it.
 * Stations: line_session, input (a text or ids), line/line (scores), output. */
#include "coordinator/front/front.h"

#include "coordinator/front/input.h"
#include "coordinator/front/line_session.h"
#include "coordinator/front/output.h"
#include "engine/fmath.h"

#include <stdlib.h>

enum {
    WINDOW_DEFAULT = 512,  /* positions of a window at most where --ctx says nothing */
    WINDOWS_IN_FLIGHT = 4, /* one's chunks fill the line; more keep it full at the seams */
};

struct window {
    size_t first; /* in ids */
    uint32_t n;   /* with BOS; >= 2 */
    uint32_t scored;
    double nll;
};

struct perplexity {
    struct session session;
    struct token_list text; /* as read */
    struct token_list ids;  /* all windows, one behind another, each with its BOS */
    struct window *windows;
    uint32_t n_windows, capacity;
    uint32_t submitted;
    uint64_t scored;
};

static int read_ids(struct perplexity *p, struct err *err)
{
    const struct settings *set = p->session.settings;
    CHECK((set->file != NULL) != (set->ids_file != NULL), err, ERR_USAGE,
          "perplexity wants either -f FILE or --ids-file FILE");
    const char *path = set->file != NULL ? set->file : set->ids_file;
    char *text;
    size_t len;
    TRY(input_read(path, &text, &len, err));
    int rc = set->file != NULL
                 ? tokenizer_encode(p->session.tokenizer, text, len, false, false, &p->text, err)
                 : input_parse_ids(text, len, path, &p->text, err);
    free(text);
    TRY(rc);
    for (size_t i = 0; i < p->text.n; i++)
        CHECK((uint32_t)p->text.ids[i] < p->session.model->hp.n_vocab, err, ERR_USAGE,
              "%s: token %d is beyond the vocabulary of %u", path, p->text.ids[i],
              p->session.model->hp.n_vocab);
    return ERR_NONE;
}

static int add_window(struct perplexity *p, size_t first, struct err *err)
{
    if (p->n_windows == p->capacity) {
        uint32_t capacity = p->capacity * 2 + 16;
        struct window *more = realloc(p->windows, capacity * sizeof *more);
        CHECK(more != NULL, err, ERR_MEMORY, "no memory for %u windows", capacity);
        p->windows = more;
        p->capacity = capacity;
    }
    p->windows[p->n_windows++] = (struct window){.first = first, .n = (uint32_t)(p->ids.n - first)};
    return ERR_NONE;
}

/* cut_windows() - bos < 0: windows without one. n_ctx >= 2. */
static int cut_windows(struct perplexity *p, uint32_t n_ctx, int32_t bos, struct err *err)
{
    const struct token_list *text = &p->text;
    for (size_t i = 0; i < text->n;) {
        const size_t first = p->ids.n;
        if (bos >= 0) {
            TRY(token_list_push(&p->ids, bos, err));
            if (text->ids[i] == bos) i++;
        }
        while (i < text->n && p->ids.n - first < n_ctx && (bos < 0 || text->ids[i] != bos))
            TRY(token_list_push(&p->ids, text->ids[i++], err));
        if (p->ids.n - first >= 2)
            TRY(add_window(p, first, err));
        else
            p->ids.n = first; /* nothing stands before its only token */
    }
    CHECK(p->n_windows > 0, err, ERR_USAGE, "nothing to score: the text has %zu tokens", text->n);
    return ERR_NONE;
}

static int submit_next(struct perplexity *p, struct err *err)
{
    if (p->submitted == p->n_windows) return ERR_NONE;
    const struct window *w = &p->windows[p->submitted];
    const struct line_request r = {
        .prompt = p->ids.ids + w->first,
        .n_prompt = w->n,
        .sampling = sampling_default(),
        .scores = LINE_SCORES_NEXT,
    };
    uint32_t request;
    TRY(line_submit(p->session.line, &r, &request, err));
    BUG_IF(request != p->submitted, "perplexity: requests are not numbered as they were submitted");
    p->submitted++;
    return ERR_NONE;
}

static int take_event(struct perplexity *p, const struct line_event *ev, struct err *err)
{
    struct window *w = &p->windows[ev->request];
    if (ev->kind == LINE_EVENT_SCORES) {
        w->nll += ev->head->lse - (double)ev->head->id_scores[0];
        w->scored++;
        p->scored++;
        progress_bar_show(&p->session.bar, "scoring", p->scored, p->ids.n - p->n_windows);
    }
    if (ev->kind != LINE_EVENT_FINISHED) return ERR_NONE;
    BUG_IF(w->scored != w->n - 1, "perplexity: a token was not scored");
    return submit_next(p, err);
}

static json_t *windows_json(const struct perplexity *p)
{
    json_t *array = json_array();
    for (uint32_t i = 0; i < p->n_windows; i++)
        if (json_array_append_new(array, json_real(p->windows[i].nll)) != 0) {
            json_decref(array);
            return NULL;
        }
    return array;
}

static int print_result(const struct perplexity *p, uint32_t n_ctx, struct err *err)
{
    double sum = 0;
    for (uint32_t i = 0; i < p->n_windows; i++) sum += p->windows[i].nll;
    const double mean = sum / (double)p->scored;
    const double perplexity = fmath_exp(mean);
    if (p->session.settings->json)
        return output_json(json_pack("{s:f, s:I, s:f, s:f, s:I, s:o}", "nll_sum", sum, "tokens",
                                     (json_int_t)p->scored, "nll_mean", mean, "perplexity",
                                     perplexity, "ctx", (json_int_t)n_ctx, "windows",
                                     windows_json(p)),
                           false, err);
    TRY(output_printf(err,
                      "nll_sum     %.9g\ntokens      %llu\nnll_mean    %.9g\nperplexity  %.9g\n",
                      sum, (unsigned long long)p->scored, mean, perplexity));
    return output_flush(err);
}

static int run(struct perplexity *p, const struct settings *settings,
               const struct line_starter *starter, struct err *err)
{
    struct session *s = &p->session;
    TRY(session_open(s, settings, starter, err));
    TRY(read_ids(p, err));
    const bool has_bos = tokenizer_adds_bos(s->tokenizer);
    uint64_t needed = p->text.n + 1;
    if (needed > WINDOW_DEFAULT) needed = WINDOW_DEFAULT;
    const uint32_t n_ctx = session_context(s, needed);
    CHECK(n_ctx >= 2, err, ERR_USAGE, "a window wants 2 positions at least, --ctx gives %u", n_ctx);
    TRY(cut_windows(p, n_ctx, has_bos ? tokenizer_bos(s->tokenizer) : -1, err));
    TRY(session_start(s, n_ctx, p->n_windows < WINDOWS_IN_FLIGHT ? p->n_windows : WINDOWS_IN_FLIGHT,
                      err));
    for (uint32_t i = 0; i < 2 * WINDOWS_IN_FLIGHT; i++) TRY(submit_next(p, err));
    for (;;) {
        struct line_event ev;
        bool none = false;
        TRY(line_next(s->line, &ev, &none, err));
        if (none) break;
        TRY(take_event(p, &ev, err));
    }
    progress_bar_erase(&s->bar);
    TRY(print_result(p, n_ctx, err));
    return session_finish(s, err);
}

int perplexity_run(const struct settings *settings, const struct line_starter *starter,
                   struct err *err)
{
    struct perplexity p = {0};
    int rc = run(&p, settings, starter, err);
    free(p.windows);
    token_list_free(&p.text);
    token_list_free(&p.ids);
    session_close(&p.session);
    return rc;
}
