/* beat_text - what a worker's heartbeat says, in words.
 *
 * Stations: worker (its own errors and dumps), coordinator/line/roster (what it last heard). */
#ifndef TANDEM_PROTO_BEAT_TEXT_H
#define TANDEM_PROTO_BEAT_TEXT_H

#include "proto/message.h"

/* beat_describe() - "in batch 12 at layer 3", "while waiting for a batch", "while loading (3 of 8
 * MB)" or "while measuring its speed"; for state 0 "before it was asked to load". Returns text. */
enum { BEAT_TEXT_MAX = 96 };
const char *beat_describe(const struct msg_heartbeat *beat, char text[BEAT_TEXT_MAX]);

#endif
