/* main - which rank is this, and what does it do: the coordinator runs a command, a worker serves
 * its stage.
 *
 * The only file that knows both coordinator and worker. Under mpirun the workers are the other
 * ranks; otherwise they are threads of this process. How everything ends is decided here too: a
 * line that can still be stopped in good order is; one with a dead rank in it is ended by force;
 * and a watchdog makes sure that neither hangs.
 * Stations after: commands and front/ (coordinator), worker/worker. */
#include "coordinator/commands.h"
#include "engine/log.h"
#include "engine/state_dump.h"
#include "proto/link.h"
#include "worker/kernel_bench.h"
#include "worker/requantize.h"
#include "worker/speed_probe.h"
#include "worker/synth.h"
#include "worker/worker.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

enum {
    END_WAIT_MS = 3000, /* for all ranks to leave an orderly end */
    /* For MPI_Abort to reach its server. Behind a dead rank mpirun sleeps, and neither answers nor
     * passes our error line on, until a child's end wakes it: so this end comes soon. */
    FORCE_WAIT_MS = 100,
    /* A worker ends a moment after SIGTERM, for the same reason: mpirun sends it to all and then
       sleeps. */
    TERM_WAIT_MS = 50,
    /* A rank that ends first makes mpirun end the others: let rank 0 say its line. */
    USAGE_WAIT_MS = 300,
};

/* ---- the watchdog ---- */

static volatile sig_atomic_t watchdog_status;

static void on_alarm(int number)
{
    (void)number;
    _exit(watchdog_status);
}

static void start_alarm(int after_ms)
{
    const struct itimerval timer = {
        .it_value = {.tv_sec = after_ms / 1000, .tv_usec = after_ms % 1000 * 1000}};
    setitimer(ITIMER_REAL, &timer, NULL);
}

/* watch_end() - this process ends with status after so many milliseconds at the latest, whatever
 * happens. */
static void watch_end(int status, int after_ms)
{
    watchdog_status = status;
    struct sigaction action = {.sa_handler = on_alarm};
    sigemptyset(&action.sa_mask);
    sigaction(SIGALRM, &action, NULL);
    start_alarm(after_ms);
}

static void on_worker_term(int number)
{
    (void)number;
    watch_end(128 + SIGTERM, TERM_WAIT_MS);
}

/* ---- the line, as main starts and ends it ---- */

/* A stage inside this process. */
struct stage_thread {
    pthread_t thread;
    struct link *link;
    struct worker_config config;
};

struct launch {
    bool mpi;           /* the workers are other ranks */
    bool started;       /* a front has begun to use the line, and tells the workers to stop */
    bool broken;        /* some stage could not be started */
    struct link *link;  /* the coordinator's endpoint; NULL before the start */
    uint32_t n_threads; /* in-process stages that run */
    struct stage_thread *threads;
};

static struct worker_config worker_of(const struct settings *s)
{
    return (struct worker_config){.model_path = s->model,
                                  .weights = (enum weights_from)s->weights,
                                  .cache = s->cache,
                                  .cache_bytes = (uint64_t)s->cache_mib << 20,
                                  .stall_ms = (uint32_t)(s->stall_timeout_s * 1000)};
}

static void *run_stage_thread(void *arg)
{
    struct stage_thread *t = arg;
    struct err err;
    worker_run(t->link, &t->config, &err); /* has told the coordinator of its error */
    link_close(t->link, false);
    return NULL;
}

/* count_stages() - from --stages, or from the numbers of --split; 0: they contradict each other. */
static uint32_t count_stages(const struct settings *s)
{
    if (s->split == NULL || strcmp(s->split, "auto") == 0) return s->stages == 0 ? 1 : s->stages;
    uint32_t n = 1;
    for (const char *c = s->split; *c != '\0'; c++) n += *c == ',';
    return s->stages == 0 || s->stages == n ? n : 0;
}

/* start_threads() - signals stay with the main thread, which knows what to do about them. */
static int start_threads(struct launch *l, const struct settings *s, struct link **endpoints,
                         uint32_t n, struct err *err)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    for (uint32_t i = 0; i < n && !l->broken; i++) {
        struct stage_thread *t = &l->threads[i];
        *t = (struct stage_thread){.link = endpoints[i + 1], .config = worker_of(s)};
        l->broken = pthread_create(&t->thread, NULL, run_stage_thread, t) != 0;
        l->n_threads += !l->broken;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    CHECK(!l->broken, err, ERR_MEMORY, "no thread for stage %u of %u", l->n_threads + 1, n);
    return ERR_NONE;
}

static int start_in_process(struct launch *l, const struct settings *s, struct err *err)
{
    const uint32_t n = count_stages(s);
    CHECK(n > 0, err, ERR_USAGE, "--stages %u and --split %s contradict each other", s->stages,
          s->split);
    CHECK(n <= STAGES_MAX, err, ERR_CAPACITY, "--split names %u stages, the limit is %d", n,
          STAGES_MAX);
    struct link **endpoints = calloc((size_t)n + 1, sizeof *endpoints);
    l->threads = calloc(n, sizeof *l->threads);
    int rc = endpoints != NULL && l->threads != NULL
                 ? link_local_open(endpoints, (int)n + 1, (enum link_idle)s->idle, err)
                 : err_set(err, ERR_MEMORY, "no memory for %u stages", n);
    if (rc == ERR_NONE) {
        l->link = endpoints[0];
        for (uint32_t i = 0; i <= n; i++) link_set_emulation(endpoints[i], &s->emulation);
        rc = start_threads(l, s, endpoints, n, err);
    }
    free(endpoints);
    return rc;
}

/* start_line() - see line_starter. The other ranks run since main began. */
static int start_line(void *ctx, const struct settings *s, struct link **link, struct err *err)
{
    struct launch *l = ctx;
    l->started = true;
    if (!l->mpi) TRY(start_in_process(l, s, err));
    *link = l->link;
    return ERR_NONE;
}

/* must_force() - after these there may be a rank that will never answer, or one that nobody has
 * told to stop. */
static bool must_force(const struct launch *l, int code)
{
    return code == ERR_RANK || code == ERR_PEER || code == ERR_STALL || code == ERR_INTERRUPTED ||
           l->broken || !l->started;
}

/* end_line() - after line_close(), which has told the workers to stop. */
static void end_line(struct launch *l, int code)
{
    if (l->link == NULL) {
        free(l->threads);
        return;
    }
    const int status = err_exit_status((enum err_code)code);
    watch_end(status, must_force(l, code) ? FORCE_WAIT_MS : END_WAIT_MS);
    if (must_force(l, code)) {
        if (l->mpi) link_mpi_abort(status);
        _exit(status);
    }
    link_close(l->link, false);
    for (uint32_t i = 0; i < l->n_threads; i++) pthread_join(l->threads[i].thread, NULL);
    free(l->threads);
    start_alarm(0);
}

/* ---- what this rank is ---- */

/* rank_of_environment() - for what is said before MPI is initialised; 0 where no launcher says
 * otherwise. */
static int rank_of_environment(void)
{
    static const char *const names[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"};
    if (!link_mpi_launched()) return 0;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const char *rank = getenv(names[i]);
        if (rank != NULL) return atoi(rank);
    }
    return 0;
}

static void on_bug(void)
{
    link_mpi_abort(err_exit_status(ERR_RANK));
}

/* run_worker() - prints nothing: the coordinator speaks for the line. */
static int run_worker(struct link *link, const struct settings *s)
{
    struct err err;
    const struct worker_config config = worker_of(s);
    signal(SIGTERM, on_worker_term);
    int rc = worker_run(link, &config, &err);
    watch_end(err_exit_status((enum err_code)rc), END_WAIT_MS);
    link_close(link, false);
    /* In good order to here: the coordinator's status is the job's, and it knows of the error. */
    return 0;
}

/* note_status() - for a launcher's script, because mpirun may replace the status that we end with.
 * The file is there already, or nobody waits for it; before the line ends, since mpirun may kill us
 * then. */
static void note_status(int status)
{
    const char *path = getenv("TANDEM_STATUS_FILE");
    const int fd =
        path != NULL && path[0] != '\0' ? open(path, O_WRONLY | O_TRUNC | O_CLOEXEC) : -1;
    if (fd < 0) return;
    dprintf(fd, "%d\n", status);
    close(fd);
}

static int run_coordinator(struct launch *l, const struct command *command,
                           const struct settings *s)
{
    struct err err = {.code = ERR_NONE};
    const struct line_starter starter = {.start = start_line,
                                         .ctx = l,
                                         .synth = synth_write,
                                         .quantize = requantize_file,
                                         .bench_kernels = kernel_bench_run,
                                         .measure = speed_probe_products};
    int rc = command->run(s, &starter, &err);
    if (rc != ERR_NONE) log_error(&err);
    note_status(err_exit_status((enum err_code)rc));
    end_line(l, rc);
    return err_exit_status((enum err_code)rc);
}

/* refuse_stages() - every rank comes here, so all leave in good order. */
static int refuse_stages(struct link *link, const struct settings *s)
{
    struct err err;
    int rc = err_set(
        &err, ERR_USAGE,
        "--stages %u is for one process: this line has %d workers, one for each rank but the first",
        s->stages, link_size(link) - 1);
    if (link_rank(link) == 0) log_error(&err);
    watch_end(err_exit_status((enum err_code)rc), END_WAIT_MS);
    link_close(link, false);
    return err_exit_status((enum err_code)rc);
}

/* run_rank() - a command that needs a line: coordinator or worker, as MPI says. */
static int run_rank(const struct command *command, const struct settings *s)
{
    struct launch launch = {0};
    if (link_mpi_launched()) {
        struct err err;
        int rc = link_mpi_open(&launch.link, (enum link_idle)s->idle, &err);
        if (rc != ERR_NONE) {
            log_error(&err);
            return err_exit_status((enum err_code)rc);
        }
        launch.mpi = launch.link != NULL;
        if (launch.mpi) link_set_emulation(launch.link, &s->emulation);
    }
    if (launch.mpi && s->stages != 0) return refuse_stages(launch.link, s);
    if (launch.mpi && link_rank(launch.link) != 0) return run_worker(launch.link, s);
    return run_coordinator(&launch, command, s);
}

/* print_information() - --help and --version. */
static int print_information(const struct command *command, const struct settings *s)
{
    if (s->help)
        commands_print_help(stdout, command);
    else
        printf("tandem %s\n", TANDEM_VERSION);
    return fflush(stdout) == 0 ? 0 : err_exit_status(ERR_FILE);
}

static int run(int rank, const struct command *command, const struct settings *s)
{
    state_dump_catch();
    if (s->verbose || s->log_json) log_set_level(LOG_INFO);
    if (s->quiet) log_set_level(LOG_ERROR);
    if (command == NULL || s->help || s->version)
        return rank == 0 ? print_information(command, s) : 0;
    if (command_needs_line(command, s)) return run_rank(command, s);
    struct launch none = {0};
    return rank == 0 ? run_coordinator(&none, command, s) : 0;
}

int main(int argc, char **argv)
{
    signal(SIGPIPE, SIG_IGN); /* a closed pipe is an error of the write that meets it */
    /* mpirun passes these on to all ranks; who they are for catches them. */
    signal(SIGUSR1, SIG_IGN);
    signal(SIGUSR2, SIG_IGN);
    err_set_bug_hook(on_bug);
    const int rank = rank_of_environment();
    const struct command *command;
    struct settings settings;
    struct err err;
    int rc = commands_parse(argc, argv, &command, &settings, &err);
    int status = err_exit_status((enum err_code)rc);
    if (settings.log_json) log_set_json(rank);
    if (rc == ERR_NONE)
        status = run(rank, command, &settings);
    else if (rank == 0)
        log_error(&err);
    else
        usleep(USAGE_WAIT_MS * 1000);
    if (rank == 0) note_status(status);
    settings_free(&settings);
    return status;
}
