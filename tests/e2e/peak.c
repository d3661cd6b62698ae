/* peak - run a command and say what it took, for the shell tests.
 *
 *   peak FILE COMMAND...     writes "MILLISECONDS KIBIBYTES" (of processors, not of the clock on
 * the wall, which a busy machine slows down; peak resident memory)
 *
 * Ends with the command's status, or 128 + signal. Station after: test_hostile.sh. */
#include <stdio.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static double ms(struct timeval t)
{
    return (double)t.tv_sec * 1e3 + (double)t.tv_usec / 1e3;
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        fprintf(stderr, "usage: peak FILE COMMAND...\n");
        return 125;
    }
    pid_t child = fork();
    if (child == 0) {
        execvp(argv[2], argv + 2);
        perror(argv[2]);
        _exit(127);
    }
    int status;
    struct rusage used;
    if (child < 0 || wait4(child, &status, 0, &used) != child) {
        perror("peak");
        return 125;
    }
    FILE *f = fopen(argv[1], "w");
    if (f == NULL ||
        fprintf(f, "%.0f %ld\n", ms(used.ru_utime) + ms(used.ru_stime), used.ru_maxrss) < 0 ||
        fclose(f) != 0) {
        perror(argv[1]);
        return 125;
    }
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}
