/* state_dump - on SIGUSR2 every rank says what it is doing: noted here, obeyed at the next look.
 *
 * Saying it inside the handler would not be safe, and the thread that is asked may be any. mpirun
 * passes the signal on to all ranks.
 * Stations: worker and line/roster look, and say it with log_event(). */
#ifndef TANDEM_ENGINE_STATE_DUMP_H
#define TANDEM_ENGINE_STATE_DUMP_H

#include <stdbool.h>

/* state_dump_catch() - SIGUSR2 is noted from now on. Process-wide. */
void state_dump_catch(void);

/* state_dump_is_due() - true once for all signals that came since *seen, which is the caller's, at
 * first 0. Cheap. */
bool state_dump_is_due(unsigned *seen);

#endif
