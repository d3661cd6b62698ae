/* making_report - what the commands that make a model file say on the way, and at the end.
 *
 * Stations before: synth, quantize. */
#ifndef TANDEM_COORDINATOR_FRONT_MAKING_REPORT_H
#define TANDEM_COORDINATOR_FRONT_MAKING_REPORT_H

#include "coordinator/front/progress_bar.h"
#include "coordinator/settings.h"
#include "engine/recipe.h"

#include <stdbool.h>
#include <stdint.h>

struct making_report {
    struct progress_bar bar;
    uint64_t start_ns;
    bool quiet;
};

/* making_report_begin() - the clock starts; what it returns tells *report, which must stay where it
 * is, how far the work is. */
struct making making_report_begin(struct making_report *report, const struct settings *s);

/* making_report_end() - also after an error (made NULL): then it only erases the bar. */
void making_report_end(struct making_report *report, const char *path,
                       const struct made_file *made);

#endif
