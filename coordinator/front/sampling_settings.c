/* sampling_settings - see sampling_settings.h. */
#include "coordinator/front/sampling_settings.h"

#include "engine/log.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

/* parse_bias() - "ID=V". */
static int parse_bias(const char *text, struct logit_bias *b, struct err *err)
{
    char *end;
    errno = 0;
    long id = strtol(text, &end, 10);
    bool good = end != text && *end == '=' && errno == 0 && id >= 0 && id <= INT32_MAX;
    const char *value = end + 1;
    if (good) {
        b->id = (int32_t)id;
        b->bias = strtof(value, &end);
        good = end != value && *end == '\0' && !isnan(b->bias) && b->bias < INFINITY;
    }
    CHECK(good, err, ERR_USAGE, "--logit-bias wants ID=V, with V a number or -inf, got '%s'", text);
    return ERR_NONE;
}

/* set_bias() - the last word on an id holds. */
static void set_bias(struct logit_bias *list, uint32_t *n, struct logit_bias b)
{
    for (uint32_t i = 0; i < *n; i++)
        if (list[i].id == b.id) {
            list[i] = b;
            return;
        }
    list[(*n)++] = b;
}

static uint32_t count_end_tokens(const struct tokenizer *t, int32_t n_vocab)
{
    uint32_t n = 0;
    for (int32_t id = 0; id < n_vocab; id++) n += tokenizer_is_end(t, id);
    return n;
}

static int read_biases(const struct settings *s, const struct tokenizer *t, int32_t n_vocab,
                       struct logit_bias **bias, uint32_t *n, struct err *err)
{
    *n = 0;
    uint32_t capacity = s->biases.n + (s->ignore_eos ? count_end_tokens(t, n_vocab) : 0);
    *bias = calloc((size_t)capacity + 1, sizeof **bias);
    CHECK(*bias != NULL, err, ERR_MEMORY, "no memory for %u logit biases", capacity);
    for (uint32_t i = 0; i < s->biases.n; i++) {
        struct logit_bias b = {0};
        TRY(parse_bias(s->biases.items[i], &b, err));
        set_bias(*bias, n, b);
    }
    if (!s->ignore_eos) return ERR_NONE;
    for (int32_t id = 0; id < n_vocab; id++)
        if (tokenizer_is_end(t, id)) set_bias(*bias, n, (struct logit_bias){id, -INFINITY});
    return ERR_NONE;
}

int sampling_settings_draw_seed(uint64_t *seed, struct err *err)
{
    CHECK(getrandom(seed, sizeof *seed, 0) == (ssize_t)sizeof *seed, err, ERR_UNSUPPORTED,
          "the system gives no random seed (%s): give --seed", strerror(errno));
    *seed >>= 11;
    return ERR_NONE;
}

static void warn_of_greedy(const struct settings *s)
{
    const struct sampling *p = &s->sampling;
    if (p->top_k > 0 || p->top_p < 1 || p->min_p > 0 || p->typical_p < 1 || s->seed_given)
        log_line(LOG_WARN,
                 "without --temp the best token is taken: --top-k, --top-p, --min-p, --typical and "
                 "--seed change nothing");
}

int sampling_settings_read(const struct settings *s, const struct tokenizer *t, int32_t n_vocab,
                           struct sampling *out, struct logit_bias **bias, struct err *err)
{
    *out = s->sampling;
    TRY(read_biases(s, t, n_vocab, bias, &out->n_bias, err));
    out->bias = *bias;
    TRY(sampling_check(out, n_vocab, err));
    if (out->temperature <= 0)
        warn_of_greedy(s);
    else if (!s->seed_given)
        TRY(sampling_settings_draw_seed(&out->seed, err));
    return ERR_NONE;
}
