/* agreement - do the ranks of a line run the same program on the same model?
 *
 * Two questions, because answers come at two times: with HELLO what takes no reading of weights,
 * and with READY the digests of tensors that several stages have read.
 * Stations: line asks; roster has what the workers said. */
#ifndef TANDEM_COORDINATOR_LINE_AGREEMENT_H
#define TANDEM_COORDINATOR_LINE_AGREEMENT_H

#include "coordinator/line/roster.h"

/* agreement_check_hellos() - after all have said HELLO: ERR_DISAGREE (another version of the
 * program, or a model whose metadata, tensor directory or file length is another). The error's who
 * names the worker. */
int agreement_check_hellos(struct roster *r, const struct model *model, struct err *err);

/* agreement_check_tensors() - after all are READY: ERR_DISAGREE (two workers have read different
 * bytes of one tensor: its name and both workers), ERR_PEER (a digest of no tensor). */
int agreement_check_tensors(struct roster *r, const struct model *model, struct err *err);

#endif
