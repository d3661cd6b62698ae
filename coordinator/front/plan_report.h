/* plan_report - a plan as a table for people and as JSON for programs.
 *
 * Stations before: plan (the command). */
#ifndef TANDEM_COORDINATOR_FRONT_PLAN_REPORT_H
#define TANDEM_COORDINATOR_FRONT_PLAN_REPORT_H

#include "coordinator/line/planner.h"

#include <jansson.h>
#include <stdio.h>

/* What is asked, and what was found. */
struct plan_report {
    const struct model *model;
    const char *name; /* of the model */
    struct planner *planner;
    const struct planner_rank *ranks;
    const struct layer_range *ranges; /* [n_ranks] */
    uint32_t n_ranks;
    uint32_t first_rank;  /* the number of ranks[0]: 1, or 0 where it is the only one */
    uint32_t largest_ctx; /* that fits */
};

/* plan_report_print() - the table. plan_report_json() - the same; NULL: no memory. */
void plan_report_print(FILE *out, const struct plan_report *r);
json_t *plan_report_json(const struct plan_report *r);

#endif
