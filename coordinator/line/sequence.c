/* sequence - see sequence.h. */
#include "coordinator/line/sequence.h"

#include <stdlib.h>
#include <string.h>

static int check_request(const struct line_request *r, uint32_t n_ctx, int32_t n_vocab,
                         struct err *err)
{
    CHECK(r->n_prompt >= 1, err, ERR_USAGE, "the prompt is empty: nothing to continue");
    CHECK(r->n_prompt <= n_ctx, err, ERR_CAPACITY,
          "the prompt has %u tokens, the context holds %u: shorten it or raise --ctx", r->n_prompt,
          n_ctx);
    CHECK(r->scores == LINE_SCORES_NONE || r->max_tokens == 0, err, ERR_USAGE,
          "scores of the prompt and new tokens cannot be asked for in one request");
    for (uint32_t i = 0; i < r->n_prompt; i++)
        CHECK(r->prompt[i] >= 0 && r->prompt[i] < n_vocab, err, ERR_USAGE,
              "token %u of the prompt is %d, the vocabulary has 0..%d", i, r->prompt[i],
              n_vocab - 1);
    return ERR_NONE;
}

static int fill(struct sequence *s, const struct line_request *r, uint32_t n_ctx, int32_t n_vocab,
                struct err *err)
{
    uint32_t room = n_ctx - r->n_prompt;
    s->capacity = r->n_prompt + (r->max_tokens < room ? r->max_tokens : room);
    s->tokens = malloc(s->capacity * sizeof *s->tokens);
    bool taken = s->tokens != NULL;
    for (uint32_t c = 0; c < KV_CLASSES_MAX; c++) {
        s->blocks[c].block = malloc((s->capacity / KV_BLOCK_POSITIONS + 1) * sizeof(uint32_t));
        taken &= s->blocks[c].block != NULL;
    }
    CHECK(taken, err, ERR_MEMORY, "no memory for a sequence of %u tokens", s->capacity);
    memcpy(s->tokens, r->prompt, r->n_prompt * sizeof *s->tokens);
    s->n_prompt = s->n_tokens = r->n_prompt;
    if (r->max_tokens == 0) return ERR_NONE;
    TRY(sampler_open(&s->sampler, &r->sampling, n_vocab, err));
    for (uint32_t i = 0; i < r->n_prompt; i++) sampler_accept(s->sampler, r->prompt[i]);
    return ERR_NONE;
}

int sequence_open(struct sequence **out, const struct line_request *r, uint32_t request,
                  uint32_t n_ctx, int32_t n_vocab, struct err *err)
{
    TRY(check_request(r, n_ctx, n_vocab, err));
    struct sequence *s = calloc(1, sizeof *s);
    CHECK(s != NULL, err, ERR_MEMORY, "no memory for a sequence");
    s->request = request;
    s->slot = SEQUENCE_NO_SLOT;
    s->end_token = -1;
    s->temperature = sampling_temperature(&r->sampling);
    s->scores = r->scores;
    s->is_end = r->is_end;
    s->is_end_ctx = r->is_end_ctx;
    int rc = fill(s, r, n_ctx, n_vocab, err);
    if (rc != ERR_NONE) {
        sequence_close(s);
        return rc;
    }
    *out = s;
    return ERR_NONE;
}

void sequence_close(struct sequence *s)
{
    if (s == NULL) return;
    sampler_close(s->sampler);
    free(s->tokens);
    for (uint32_t c = 0; c < KV_CLASSES_MAX; c++) free(s->blocks[c].block);
    free(s);
}

enum sequence_step sequence_add_token(struct sequence *s, int32_t token)
{
    if (s->is_end != NULL && s->is_end(s->is_end_ctx, token)) {
        s->end_token = token;
        return SEQUENCE_ENDS;
    }
    BUG_IF(s->n_tokens >= s->capacity, "a token beyond a sequence's capacity");
    s->tokens[s->n_tokens++] = token;
    sampler_accept(s->sampler, token);
    return s->n_tokens == s->capacity ? SEQUENCE_FULL : SEQUENCE_GOES_ON;
}
