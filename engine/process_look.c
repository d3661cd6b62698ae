/* process_look - see process_look.h. */
#include "engine/process_look.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum process_state process_look(uint32_t pid)
{
    if (kill((pid_t)pid, 0) != 0) return errno == ESRCH ? PROCESS_GONE : PROCESS_RUNS;
    char path[64], line[512];
    snprintf(path, sizeof path, "/proc/%u/stat", pid);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return errno == ENOENT ? PROCESS_GONE : PROCESS_RUNS;
    const ssize_t n = read(fd, line, sizeof line - 1);
    close(fd);
    line[n > 0 ? n : 0] = '\0';
    /* The name, which may hold anything, stands in parentheses before the letter. */
    const char *state = strrchr(line, ')');
    if (state == NULL) return PROCESS_RUNS;
    if (state[2] == 'Z' || state[2] == 'X') return PROCESS_GONE;
    return state[2] == 'T' ? PROCESS_STOPPED : PROCESS_RUNS;
}
