/* kernel_report - see kernel_report.c. */
#ifndef TANDEM_COORDINATOR_FRONT_KERNEL_REPORT_H
#define TANDEM_COORDINATOR_FRONT_KERNEL_REPORT_H

#include "coordinator/front/front.h"

/* kernel_report_run() - a part of the bench command. ERR_USAGE, ERR_MEMORY, ERR_FILE
 * (the output). */
front_run_fn kernel_report_run;

#endif
