/* progress_bar - one line on a terminal while something long goes on, erased afterwards.
 *
 * Does nothing where standard error is no terminal.
 * Stations before: line_session (loading), the fronts (prompts). */
#ifndef TANDEM_COORDINATOR_FRONT_PROGRESS_BAR_H
#define TANDEM_COORDINATOR_FRONT_PROGRESS_BAR_H

#include <stdbool.h>
#include <stdint.h>

struct progress_bar {
    bool enabled, drawn;
    uint64_t drawn_ns;
    char note[64];
};

/* progress_bar_open() - wanted: false switches it off (-q). */
void progress_bar_open(struct progress_bar *bar, bool wanted);
/* progress_bar_show() - cheap: draws ten times a second at most, with bar->note, the caller's to
 * set, behind it. progress_bar_is_due() - showing it now would draw: whether a note is worth
 * making. */
void progress_bar_show(struct progress_bar *bar, const char *what, uint64_t done, uint64_t total);
bool progress_bar_is_due(const struct progress_bar *bar);
void progress_bar_erase(struct progress_bar *bar);

#endif
