/* latent_attention - attention over one compressed row for all heads (MLA, DeepSeek-AI 2024).
 *
 * A position keeps its latent c and one rotated key r. Head h would have the key (K_h c, r) and the
 * value V_h c; instead its query goes to the latent's side, so that nothing is ever expanded:
 *
 *   score = (K_h^T q_plain) . c + q_rotated . r;   result = V_h (sum of weights * c)
 *
 * Station before: layer. Stations inside: attention, pass. */
#ifndef TANDEM_ENGINE_LATENT_ATTENTION_H
#define TANDEM_ENGINE_LATENT_ATTENTION_H

#include "engine/attention.h"

/* latent_attention_forward() - as attention_forward(). */
void latent_attention_forward(const struct pass *p, struct team *t, uint32_t layer,
                              const struct input *in);

#endif
