/* progress_bar - see progress_bar.h. */
#include "coordinator/front/progress_bar.h"
#include "engine/clock.h"

#include <stdio.h>
#include <unistd.h>

void progress_bar_open(struct progress_bar *bar, bool wanted)
{
    *bar = (struct progress_bar){.enabled = wanted && isatty(STDERR_FILENO)};
}

bool progress_bar_is_due(const struct progress_bar *bar)
{
    static const uint64_t interval_ns = 100000000U;
    return bar->enabled && (!bar->drawn || clock_now_ns() - bar->drawn_ns >= interval_ns);
}

void progress_bar_show(struct progress_bar *bar, const char *what, uint64_t done, uint64_t total)
{
    enum { WIDTH = 40 };
    if (total == 0 || !progress_bar_is_due(bar)) return;
    bar->drawn = true;
    bar->drawn_ns = clock_now_ns();
    double share = done >= total ? 1.0 : (double)done / (double)total;
    int full = (int)(share * WIDTH);
    char cells[WIDTH + 1];
    for (int i = 0; i < WIDTH; i++) cells[i] = i < full ? '#' : '.';
    cells[WIDTH] = '\0';
    fprintf(stderr, "\r%-8s [%s] %3d%% %s\033[K", what, cells, (int)(share * 100), bar->note);
    fflush(stderr);
}

void progress_bar_erase(struct progress_bar *bar)
{
    if (!bar->drawn) return;
    fputs("\r\033[K", stderr);
    fflush(stderr);
    bar->drawn = false;
}
