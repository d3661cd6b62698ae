/* line_state - see line_state.h. */
#include "coordinator/line/line_state.h"

#include "engine/log.h"

static void log_sequence(const struct sequence *s)
{
    log_event(LOG_ASKED, "state",
              "request %u: prompt %u of %u tokens sent, %u chosen, in %u batches under way",
              s->request, s->n_sent < s->n_prompt ? s->n_sent : s->n_prompt, s->n_prompt,
              s->n_tokens - s->n_prompt, s->in_flight);
}

void line_state_log(struct scheduler *sc, const struct pipeline *p,
                    const struct line_counts *counts)
{
    uint32_t n[SEQUENCE_DONE + 1] = {0};
    for (uint32_t i = 0; i < scheduler_count(sc); i++) {
        const struct sequence *s = scheduler_find(sc, i);
        if (s == NULL) continue;
        n[s->state]++;
        if (s->state == SEQUENCE_PROMPT || s->state == SEQUENCE_DECODE) log_sequence(s);
    }
    log_event(LOG_ASKED, "state",
              "queue: %u requests wait, %u are in their prompt, %u in their text; %u batches of "
              "%llu are under way, %u of "
              "them with text; %u KV blocks in use",
              n[SEQUENCE_QUEUED], n[SEQUENCE_PROMPT], n[SEQUENCE_DECODE], pipeline_in_air(p),
              (unsigned long long)counts->batches, pipeline_decode_in_air(p), counts->blocks_used);
}
