/* batch_request - one line of a batch file as a request: which fields there are, and what they may
 * hold.
 *
 * A line is a JSON object with a prompt (a text) or ids (token ids, taken as they are), and what
 * its request wants to be different from the command line. Pure: no file, no model. The line is
 * hostile. Station before: batch_plan (a line). Station after: batch_run (submits it). */
#ifndef TANDEM_COORDINATOR_FRONT_BATCH_REQUEST_H
#define TANDEM_COORDINATOR_FRONT_BATCH_REQUEST_H

#include "coordinator/settings.h"
#include "coordinator/text/tokenizer.h"

#include <jansson.h>

enum { BATCH_STOPS_MAX = 64, BATCH_ID_BYTES_MAX = 512 };

/* Texts point into root. Zero before batch_request_read(). */
struct batch_request {
    json_t *root; /* the line; owned */
    const json_t
        *id; /* a string or a whole number; NULL: none is given, or none that can be used */
    const char *text; /* the prompt; NULL: ids are given */
    size_t text_len;
    struct token_list ids;    /* the prompt's; empty while it is a text */
    struct sampling sampling; /* bias is [sampling.n_bias], this request's own */
    struct logit_bias *bias;
    bool seed_given, ignore_eos;
    int32_t n_tokens; /* -1: until the context is full */
    const char *stops[BATCH_STOPS_MAX];
    uint32_t n_stops;
};

/* batch_request_read() - line[0 .. len) into *r; what it does not say is as in settings (sampling,
 * seed, stops, -n, --ignore-eos). base [n_base]: the logit biases of settings, which those of the
 * line follow. Ranges of sampling parameters are sampling_check()'s to judge. batch_request_free()
 * afterwards, also after an error, when r->id is still set if the line has one. Returns ERR_USAGE
 * (no JSON object, a field unknown or wrong: named), ERR_MEMORY. */
int batch_request_read(struct batch_request *r, const char *line, size_t len,
                       const struct settings *settings, const struct logit_bias *base,
                       uint32_t n_base, struct err *err);
void batch_request_free(struct batch_request *r);

/* batch_request_digest() - of what a request asks for: prompt (r->ids, so a text must be encoded),
 * sampling, stops; its seed only where one is given and drawn with. tokens_max: what n_tokens comes
 * to; n_ctx: the context where it ends the text before that, else 0. Not its id. ERR_MEMORY. */
int batch_request_digest(const struct batch_request *r, uint32_t tokens_max, uint32_t n_ctx,
                         uint64_t *digest, struct err *err);

#endif
