/* families_report - `tandem inspect --families`: what this program runs, as two Markdown tables.
 * The README has them as they are printed.
 *
 * Stations before: inspect. Stations inside: engine's tables of families and number formats. */
#ifndef TANDEM_COORDINATOR_FRONT_FAMILIES_REPORT_H
#define TANDEM_COORDINATOR_FRONT_FAMILIES_REPORT_H

#include "engine/err.h"

/* families_report_print() - to standard output. */
int families_report_print(struct err *err);

#endif
