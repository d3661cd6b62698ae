/* process_look - see process_look.h. */
#include "engine/process_look.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum process_state process_look(uint32_t pid)
{
    if (kill((pid_t)pid, 0) != 0) return errno == ESRCH ? PROCESS_GONE : PROCESS_RUNS;
    char path[64], line[512];
    snprintf(path, sizeof path, "/proc/%u/stat", pid);
    FILE *f = fopen(path, "r");
    if (f == NULL) return PROCESS_GONE;
    const bool read = fgets(line, sizeof line, f) != NULL;
    fclose(f);
    /* The name, which may hold anything, stands in parentheses before the letter. */
    const char *state = read ? strrchr(line, ')') : NULL;
    if (state == NULL) return PROCESS_RUNS;
    if (state[2] == 'Z' || state[2] == 'X') return PROCESS_GONE;
    return state[2] == 'T' ? PROCESS_STOPPED : PROCESS_RUNS;
}
