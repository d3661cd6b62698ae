/* link_latency - what a hop of the link costs beside plain MPI: median one-way latency by size.
 *
 *   mpirun -n 2 link_latency                    over shared memory
 *   mpirun -n 2 --mca btl tcp,self link_latency over TCP
 *   link_latency                                between two threads of this process
 *   link_latency spin                           any of these, without backing off: as plain MPI is
 *
 * Half a round trip between two busy endpoints, which wait as workers do: look at data, look at
 * control, link_wait(). Runs of both kinds alternate, so that a loaded machine disturbs both; each
 * figure is the median round trip of the quietest run.
 *
 * The second table is the price of backing off: one-way latency of a small frame behind a pause,
 * between ends of one host, and what share of a core the receiver used while it waited. */
#include "proto/link.h"
#include "times.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

enum { RUNS = 15, ROUNDS = 200, WARM_UP = 20, SIZES = 8, SLOTS = 3, WAIT_US = 50000 };

static const size_t sizes[SIZES] = {64, 512, 4096, 16384, 65536, 262144, 524288, 1048576};

static struct err err;

static void must(int rc)
{
    if (rc == ERR_NONE) return;
    fprintf(stderr, "%s\n", err.text);
    link_mpi_abort(1);
}

static double median(double *x, size_t n)
{
    times_sort(x, n);
    return x[n / 2];
}

/* fill: memory that was never written to is one page of zeros, which travels too well. */
static void send_frame(struct link *l, size_t bytes, bool fill)
{
    size_t capacity;
    uint8_t *frame;
    while ((frame = link_send_begin(l, LINK_DATA, 0, &capacity)) == NULL) link_wait(l, WAIT_US);
    if (fill) memset(frame, 1, bytes);
    must(link_send(l, LINK_DATA, 0, bytes, &err));
}

/* The next frame; its first n bytes to *head. */
static void await_frame(struct link *l, void *head, size_t n)
{
    int from;
    const uint8_t *frame;
    size_t len;
    for (;;) {
        must(link_receive(l, LINK_DATA, &from, &frame, &len, &err));
        if (frame != NULL) break;
        must(link_receive(l, LINK_CONTROL, &from, &frame, &len, &err));
        if (frame != NULL) link_receive_done(l, LINK_CONTROL);
        link_wait(l, WAIT_US);
    }
    if (n > 0) memcpy(head, frame, n);
    link_made_progress(l);
    link_receive_done(l, LINK_DATA);
}

static double time_link(struct link *l, size_t bytes)
{
    double trips[ROUNDS];
    for (int i = 0; i < WARM_UP + ROUNDS; i++) {
        double begin = now_us();
        if (link_rank(l) == 0) send_frame(l, bytes, i < WARM_UP);
        await_frame(l, NULL, 0);
        if (link_rank(l) == 1) send_frame(l, bytes, i < WARM_UP);
        if (i >= WARM_UP) trips[i - WARM_UP] = (now_us() - begin) / 2;
    }
    while (link_pending_sends(l) > 0) link_wait(l, WAIT_US);
    return median(trips, ROUNDS);
}

static double cpu_us(void)
{
    struct rusage u;
    getrusage(RUSAGE_THREAD, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1e6 +
           (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

/* The coordinator sleeps, then sends the time; endpoint 1 waits for it. */
static void time_pauses(struct link *l)
{
    static const unsigned pauses_ms[] = {1, 2, 4, 8, 16, 32, 64};
    enum { FRAMES = 40 };
    if (link_rank(l) == 1) printf("%9s %12s %12s %8s\n", "pause ms", "median us", "p90 us", "core");
    for (size_t p = 0; p < sizeof pauses_ms / sizeof pauses_ms[0]; p++) {
        double took[FRAMES], begin = now_us(), cpu = cpu_us();
        for (int i = 0; i < FRAMES; i++) {
            double sent;
            if (link_rank(l) == 0) {
                nanosleep(&(struct timespec){0, (long)pauses_ms[p] * 1000000}, NULL);
                size_t capacity;
                uint8_t *frame = link_send_begin(l, LINK_DATA, 0, &capacity);
                sent = now_us();
                memcpy(frame, &sent, sizeof sent);
                must(link_send(l, LINK_DATA, 0, sizeof sent, &err));
                continue;
            }
            await_frame(l, &sent, sizeof sent);
            took[i] = now_us() - sent;
        }
        if (link_rank(l) == 0) continue;
        double share = (cpu_us() - cpu) / (now_us() - begin);
        double middle = median(took, FRAMES);
        printf("%9u %12.1f %12.1f %7.1f%%\n", pauses_ms[p], middle, took[FRAMES * 9 / 10],
               share * 100);
    }
}

static void run(struct link *l)
{
    must(link_open_data(l, sizes[SIZES - 1], sizes[SIZES - 1], SLOTS, SLOTS, &err));
    if (link_rank(l) == 0) printf("%9s %12s %12s %8s\n", "bytes", "link us", "raw us", "ratio");
    for (size_t i = 0; i < SIZES; i++) {
        double ours = INFINITY, raw = INFINITY, hops[2];
        for (int r = 0; r < RUNS; r++) {
            must(link_raw_pingpong(l, &sizes[i], 1, ROUNDS, hops, &err));
            raw = fmin(raw, hops[0]);
            ours = fmin(ours, time_link(l, sizes[i]));
        }
        if (link_rank(l) == 0)
            printf("%9zu %12.2f %12.2f %8.2f\n", sizes[i], ours, raw, ours / raw);
    }
    time_pauses(l);
    link_close(l, false);
}

static void *run_thread(void *arg)
{
    run(arg);
    return NULL;
}

int main(int argc, char **argv)
{
    const bool spin = argc == 2 && strcmp(argv[1], "spin") == 0;
    const enum link_idle idle = spin ? LINK_IDLE_SPIN : LINK_IDLE_SLEEP;
    struct link *links[2];
    pthread_t other;
    if (link_mpi_launched()) {
        must(link_mpi_open(&links[0], idle, &err));
        if (links[0] == NULL || link_size(links[0]) != 2) {
            fprintf(stderr, "two ranks are wanted: mpirun -n 2\n");
            link_mpi_abort(1);
        }
        run(links[0]);
        return 0;
    }
    must(link_local_open(links, 2, idle, &err));
    if (pthread_create(&other, NULL, run_thread, links[1]) != 0) return 1;
    run(links[0]);
    pthread_join(other, NULL);
    return 0;
}
