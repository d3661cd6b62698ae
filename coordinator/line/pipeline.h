/* pipeline - the batches in flight: sent down the line, brought home, at most `credits` at once.
 *
 * Station before: scheduler (a filled flight). Station after: proto/link; and back, with a RESULT,
 * to line. */
#ifndef TANDEM_COORDINATOR_LINE_PIPELINE_H
#define TANDEM_COORDINATOR_LINE_PIPELINE_H

#include "coordinator/line/flight.h"
#include "coordinator/line/journal.h"

struct pipeline;

/* pipeline_open() - l's data channel must be open. credits: flights at most. journal, which gets a
 * record of each flight, must outlive the pipeline. */
int pipeline_open(struct pipeline **out, struct link *l, const struct flight_limits *limits,
                  struct journal *journal, struct err *err);
void pipeline_close(struct pipeline *p); /* NULL is allowed */

/* pipeline_free_flight() - an empty flight to fill, numbered; NULL while all credits are in the
 * air. It is not in the air before pipeline_send(). */
struct flight *pipeline_free_flight(struct pipeline *p);

/* pipeline_send() - send f. oldest_held: score rows from this batch on must stay, besides those in
 * the air. */
int pipeline_send(struct pipeline *p, struct flight *f, uint64_t oldest_held, struct err *err);

/* pipeline_receive() - the RESULT that came home, checked against its flight; *f NULL where none
 * has arrived. The flight is valid until pipeline_land(), which gives its credit back; *result and
 * all it points to until pipeline_release(), which must come before the next pipeline_receive(). */
int pipeline_receive(struct pipeline *p, struct flight **f, const struct msg_result **result,
                     struct err *err);
void pipeline_land(struct pipeline *p);
void pipeline_release(struct pipeline *p);

uint32_t pipeline_in_air(const struct pipeline *p);
uint32_t pipeline_decode_in_air(const struct pipeline *p);

#endif
