/* test_link_emulate - the emulated wire: its text, its book, and frames that come when they are
 * due.
 *
 * The book is tested with made-up clocks. What is measured is measured on both transports (two
 * threads, or the two ranks of mpirun), from the coordinator to endpoint 1. No frame is ever early;
 * lateness is judged by the lower quartile of several frames, because the machine is shared and
 * others delay any thread. A measurement out of bounds is taken again, up to TRIES times; if a
 * plain sleep is as late then, the case is skipped. */
#include "proto/link_emulate.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>

#include <cmocka.h>

#include "engine/clock.h"
#include "link_ends.h"

enum { DATA_MAX = 131072, SLOTS = 6, TRIES = 12, FRAMES = 20 };

/* Of the cases that run on both transports: 3 ms, and 125 bytes in a microsecond. */
#define EMULATION "3ms,1gbit"
static const double delay_us = 3000, bytes_in_us = 125;

static bool undecided; /* the machine was too busy to tell */

/* ---- the text ---- */

static void texts_say_delay_and_rate(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t delay_ns, rate_bit_s;
    } cases[] = {
        {NULL, 0, 0},
        {"50us,1gbit", 50000, 1000000000},
        {"50us", 50000, 0},
        {",1gbit", 0, 1000000000},
        {"0us,100mbit", 0, 100000000},
        {"1.5ms,2.5gbit", 1500000, 2500000000},
        {"700ns,64kbit", 700, 64000},
        {"10s,1000gbit", 10000000000, 1000000000000},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct link_emulation e;
        struct err err = {0};
        assert_int_equal(link_emulation_parse(cases[i].text, &e, &err), ERR_NONE);
        assert_int_equal(e.delay_ns, cases[i].delay_ns);
        assert_int_equal(e.rate_bit_s, cases[i].rate_bit_s);
        assert_int_equal(link_emulation_is_on(&e), cases[i].text != NULL);
    }
}

static void texts_that_say_neither_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text, *names;
    } cases[] = {
        {"", "nothing"},
        {",", "the rate ''"},
        {"50", "the delay '50'"},
        {"50us,", "the rate ''"},
        {"50us,1", "the rate '1'"},
        {"us", "the delay 'us'"},
        {"-5us", "the delay '-5us'"},
        {"0x5us", "the delay '0x5us'"},
        {"1e3us", "the delay '1e3us'"},
        {"nanus", "the delay"},
        {" 5us", "the delay ' 5us'"},
        {"5 us", "the delay '5 us'"},
        {"5usx", "the delay '5usx'"},
        {"1.2.3us", "the delay '1.2.3us'"},
        {"11s", "the delay '11s'"},
        {"50us,1gbit,2", "the rate '1gbit,2'"},
        {"50us,0kbit", "the rate '0kbit'"},
        {"50us,0.5kbit", "from 1kbit"},
        {"50us,1001gbit", "the rate '1001gbit'"},
        {"50us,1gbps", "the rate '1gbps'"},
        {"99999999999999999999999999999999999999999999999999999999999999999999us", "the delay"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct link_emulation e;
        struct err err = {0};
        assert_int_equal(link_emulation_parse(cases[i].text, &e, &err), ERR_USAGE);
        assert_non_null(strstr(err.text, "--link-emulate"));
        if (strstr(err.text, cases[i].names) == NULL) fail_msg("%s", err.text);
    }
}

/* ---- the book ---- */

static struct link_wire wire_of(const char *text)
{
    struct link_emulation e;
    struct link_wire w;
    assert_int_equal(link_emulation_parse(text, &e, NULL), ERR_NONE);
    link_wire_open(&w, &e);
    return w;
}

static void frames_queue_for_the_wire_and_delays_overlap(void **state)
{
    (void)state;
    struct link_wire w = wire_of("50us,1gbit"); /* 125 bytes take 1 us */
    const struct link_stamp first = {w.clock, 1000000}, later = {w.clock, 2000000};
    assert_int_not_equal(w.clock, 0);
    assert_int_equal(link_wire_due(&w, &first, 12500, 1000500), 1000000 + 100000 + 50000);
    assert_int_equal(link_wire_due(&w, &first, 1250, 1000600), 1000000 + 110000 + 50000);
    assert_int_equal(link_wire_due(&w, &later, 0, 2000010), 2000000 + 50000);
}

static void frames_seen_late_are_due_by_their_stamp(void **state)
{
    (void)state;
    struct link_wire w = wire_of("50us");
    const struct link_stamp stamp = {w.clock, 1000000};
    assert_int_equal(link_wire_due(&w, &stamp, 1000, 9000000), 1050000);
}

static void stamps_of_the_future_count_as_now(void **state)
{
    (void)state;
    struct link_wire w = wire_of("50us");
    const struct link_stamp ours = {w.clock, UINT64_MAX}, foreign = {w.clock + 1, UINT64_MAX};
    assert_int_equal(link_wire_due(&w, &ours, 1000, 1000000), 1050000);
    assert_true(link_wire_due(&w, &foreign, 1000, 2000000) <= 2050000);
}

/* The sender's clock is far behind and runs 50 millionths slow; the real hop takes 7 us, or longer
 * where the receiver looks late. */
static void clocks_of_other_hosts_are_followed(void **state)
{
    (void)state;
    struct link_wire w = wire_of("1ms");
    const uint64_t ahead = 5000000000000u, hop = 7000;
    for (uint64_t i = 0; i < 2000; i++) {
        uint64_t t = i * 10000000, looks_late = i % 5 == 4 ? 400000 : 0;
        const struct link_stamp stamp = {w.clock + 1, t - t / 20000};
        uint64_t due = link_wire_due(&w, &stamp, 1000, ahead + t + hop + looks_late);
        uint64_t want = ahead + t + hop + 1000000;
        assert_in_range(due, want - 5000, want + 5000);
    }
}

/* ---- frames that are measured ---- */

struct timed {
    uint64_t number, sent_ns;
};

static double cpu_us(void)
{
    struct rusage u;
    getrusage(RUSAGE_THREAD, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1e6 +
           (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

static void sleep_us(unsigned us)
{
    nanosleep(&(struct timespec){0, (long)us * 1000}, NULL);
}

static void send_one(struct link *l, enum link_channel channel, int to, uint64_t number, size_t len)
{
    struct err err = {0};
    size_t capacity = 0;
    uint8_t *frame;
    while ((frame = link_send_begin(l, channel, to, &capacity)) == NULL) link_wait(l, 1000);
    EXPECT(capacity >= len, "%zu bytes", capacity);
    if (channel == LINK_DATA) EXPECT(capacity == DATA_MAX, "%zu bytes", capacity);
    struct timed t = {number, clock_now_ns()};
    memcpy(frame, &t, sizeof t);
    EXPECT(link_send(l, channel, to, len, &err) == ERR_NONE, "%s", err.text);
    link_made_progress(l);
}

/* Waits as a worker does, asleep where it can; when the frame was handed out. */
static uint64_t receive_one(struct link *l, enum link_channel channel, uint64_t number, size_t want,
                            struct timed *t)
{
    struct err err = {0};
    const uint8_t *frame;
    size_t len;
    int from;
    const uint64_t begin = clock_now_ns();
    for (;;) {
        EXPECT(link_receive(l, channel, &from, &frame, &len, &err) == ERR_NONE, "%s", err.text);
        if (frame != NULL) break;
        EXPECT(clock_now_ns() - begin < 20000000000u, "no frame in 20 s");
        link_wait(l, 500000);
    }
    uint64_t at = clock_now_ns();
    EXPECT(len == want, "%zu bytes, want %zu", len, want);
    memcpy(t, frame, sizeof *t);
    EXPECT(t->number == number, "frame %llu, want %llu", (unsigned long long)t->number,
           (unsigned long long)number);
    link_made_progress(l);
    link_receive_done(l, channel);
    return at;
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double quartile(double *x, size_t n)
{
    qsort(x, n, sizeof *x, compare);
    return x[n / 4];
}

static bool is_met(double got_us, double want_us)
{
    double off = got_us > want_us ? got_us - want_us : want_us - got_us;
    return off <= 20 || off <= 0.05 * want_us;
}

/* Endpoint 1 judges a try and tells the coordinator, who then knows whether another one follows. */
static bool agree(struct link *l, bool good)
{
    struct timed t;
    struct err err = {0};
    const uint8_t *frame = NULL;
    size_t len;
    int from;
    if (link_rank(l) == 1) {
        send_one(l, LINK_CONTROL, 0, good, sizeof t);
        return good;
    }
    while (frame == NULL) {
        link_wait(l, 1000);
        EXPECT(link_receive(l, LINK_CONTROL, &from, &frame, &len, &err) == ERR_NONE, "%s",
               err.text);
    }
    memcpy(&t, frame, sizeof t);
    link_receive_done(l, LINK_CONTROL);
    link_made_progress(l);
    return t.number != 0;
}

/* As late as a frame must not be, without any link. */
static bool sleeps_are_late(void)
{
    double took[FRAMES];
    prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);
    for (unsigned i = 0; i < FRAMES; i++) {
        uint64_t begin = clock_now_ns();
        sleep_us(1000);
        took[i] = (double)(clock_now_ns() - begin) / 1000;
    }
    return quartile(took, FRAMES) > 1000 + 50; /* 50: what the link leaves for waking up */
}

static void until_good(struct link *l, bool (*try)(struct link *l))
{
    bool good = false;
    for (int i = 0; i < TRIES && !good; i++) {
        if (i > 0) sleep_us(300000); /* others come and go */
        good = agree(l, try(l));
    }
    if (good) return;
    if (link_rank(l) == 1) EXPECT(sleeps_are_late(), "out of bounds %d times", TRIES);
    undecided = true;
}

/* As a worker between two batches: what still leaves moves on. */
static void pause_us(struct link *l, double us)
{
    const uint64_t end = clock_now_ns() + (uint64_t)(us * 1000);
    for (uint64_t now = clock_now_ns(); now < end; now = clock_now_ns())
        link_wait(l, (uint32_t)((end - now) / 1000 + 1));
}

/* Frames one after another, each sent when the one before is long there; the lower quartile of
 * their times. */
static double time_single(struct link *l, size_t len, double want_us)
{
    double took[FRAMES] = {0};
    struct timed t;
    for (unsigned i = 0; i < FRAMES; i++) {
        if (link_rank(l) == 0) {
            pause_us(l, want_us + 2000);
            send_one(l, LINK_DATA, 0, i, len);
            continue;
        }
        uint64_t at = receive_one(l, LINK_DATA, i, len, &t);
        took[i] = (double)(at - t.sent_ns) / 1000;
        EXPECT(took[i] >= want_us - 1, "frame %u came after %.1f us", i, took[i]);
    }
    double got_us = quartile(took, FRAMES);
    if (link_rank(l) == 1)
        printf("    %zu bytes: %.1f us (median %.1f), want %.1f\n", len, got_us, took[FRAMES / 2],
               want_us);
    return got_us;
}

static bool try_delay(struct link *l)
{
    double want_us = delay_us + 64 / bytes_in_us;
    return is_met(time_single(l, 64, want_us), want_us);
}

static bool try_rate(struct link *l)
{
    double want_us = delay_us + 125000 / bytes_in_us;
    return is_met(time_single(l, 125000, want_us), want_us);
}

static bool try_short_delay(struct link *l)
{
    return is_met(time_single(l, 64, 100), 100);
}

/* As many frames at once as there are slots, over and over: each waits for those before. */
static bool try_burst(struct link *l)
{
    enum { BURSTS = 12, LEN = 125000 };
    const double wire_us = LEN / bytes_in_us;
    double took[SLOTS][BURSTS] = {0};
    for (unsigned b = 0; b < BURSTS; b++) {
        uint64_t first_sent = 0;
        if (link_rank(l) == 0) pause_us(l, delay_us + SLOTS * wire_us + 2000);
        for (unsigned i = 0; i < SLOTS; i++) {
            struct timed t;
            if (link_rank(l) == 0) {
                send_one(l, LINK_DATA, 0, i, LEN);
                continue;
            }
            uint64_t at = receive_one(l, LINK_DATA, i, LEN, &t);
            if (i == 0) first_sent = t.sent_ns;
            took[i][b] = (double)(at - first_sent) / 1000;
        }
    }
    bool good = true;
    for (unsigned i = 0; i < SLOTS && link_rank(l) == 1; i++) {
        double want_us = delay_us + (i + 1) * wire_us, got_us = quartile(took[i], BURSTS);
        EXPECT(took[i][0] >= want_us - 1, "frame %u came after %.1f us", i, took[i][0]);
        printf("    frame %u: %.1f us, want %.1f\n", i, got_us, want_us);
        good = good && is_met(got_us, want_us);
    }
    return good;
}

/* One frame, and `away_us` after it was sent the receiver begins to wait: what that takes, as time
 * and as CPU time. */
static void time_late_look(struct link *l, unsigned away_us, double *wall_us, double *used_us)
{
    double wall[FRAMES] = {0}, used[FRAMES] = {0};
    struct timed t;
    for (unsigned i = 0; i < FRAMES; i++) {
        if (link_rank(l) == 0) {
            send_one(l, LINK_DATA, 0, i, 64);
            receive_one(l, LINK_CONTROL, i, sizeof t, &t);
            continue;
        }
        sleep_us(away_us);
        uint64_t begin = clock_now_ns();
        double before = cpu_us();
        wall[i] = (double)(receive_one(l, LINK_DATA, i, 64, &t) - begin) / 1000;
        used[i] = cpu_us() - before;
        send_one(l, LINK_CONTROL, 0, i, sizeof t);
    }
    *wall_us = quartile(wall, FRAMES);
    *used_us = quartile(used, FRAMES);
    if (link_rank(l) == 1)
        printf("    %u us late: %.1f us of waiting, %.1f us of CPU\n", away_us, *wall_us, *used_us);
}

/* As a stage that computes: what was due in the meantime is there at once. */
static bool try_overlap(struct link *l)
{
    double wall_us, used_us;
    time_late_look(l, 8000, &wall_us, &used_us);
    return link_rank(l) == 0 || wall_us < 200;
}

static bool try_asleep(struct link *l)
{
    double wall_us, used_us;
    time_late_look(l, 500, &wall_us, &used_us);
    return link_rank(l) == 0 || used_us < 0.1 * wall_us;
}

static void delay_case(struct link *l)
{
    until_good(l, try_delay);
}

static void rate_case(struct link *l)
{
    until_good(l, try_rate);
}

static void short_case(struct link *l)
{
    until_good(l, try_short_delay);
}

static void queue_case(struct link *l)
{
    until_good(l, try_burst);
}

static void overlap_case(struct link *l)
{
    until_good(l, try_overlap);
}

static void asleep_case(struct link *l)
{
    until_good(l, try_asleep);
}

/* More than the slots hold: the sender is held back, order is kept, and only frames are counted. */
static void pressure_case(struct link *l)
{
    enum { N = 60 };
    const struct link_counts before = link_counts(l, LINK_DATA);
    struct timed t;
    for (unsigned i = 0; i < N; i++) {
        if (link_rank(l) == 0)
            send_one(l, LINK_DATA, 0, i, 100 + i);
        else
            receive_one(l, LINK_DATA, i, 100 + i, &t);
    }
    const struct link_counts after = link_counts(l, LINK_DATA);
    const uint64_t sent = after.sent_bytes - before.sent_bytes;
    const uint64_t received = after.received_bytes - before.received_bytes;
    EXPECT((link_rank(l) == 0 ? sent : received) == N * 100 + N * (N - 1) / 2,
           "%llu sent, %llu received", (unsigned long long)sent, (unsigned long long)received);
    agree(l, true);
}

/* The largest frame fits as agreed, nothing travels behind it, and it is there before any emulated
 * one could be. */
static void off_case(struct link *l)
{
    double took_us = time_single(l, DATA_MAX, 0);
    EXPECT(took_us < 2500, "a frame took %.1f us", took_us);
    agree(l, true);
}

/* ---- the two transports ---- */

struct endpoint {
    struct link *link;
    void (*body)(struct link *l);
    const char *emulation;
};

static void open_data(struct link *l, const char *emulation)
{
    struct link_emulation e;
    struct err err = {0};
    EXPECT(link_emulation_parse(emulation, &e, &err) == ERR_NONE, "%s", err.text);
    link_set_emulation(l, &e);
    EXPECT(link_open_data(l, DATA_MAX, DATA_MAX, SLOTS, SLOTS, &err) == ERR_NONE, "%s", err.text);
}

static void *run_endpoint(void *arg)
{
    const struct endpoint *e = arg;
    open_data(e->link, e->emulation);
    e->body(e->link);
    link_close(e->link, false);
    return NULL;
}

static void run_threads(void (*body)(struct link *l), const char *emulation)
{
    struct link *links[2];
    pthread_t thread;
    struct err err = {0};
    if (link_local_open(links, 2, LINK_IDLE_SLEEP, &err)) fail_msg("%s", err.text);
    struct endpoint endpoints[2] = {{links[0], body, emulation}, {links[1], body, emulation}};
    assert_int_equal(pthread_create(&thread, NULL, run_endpoint, &endpoints[1]), 0);
    run_endpoint(&endpoints[0]);
    pthread_join(thread, NULL);
}

static void skip_undecided(void)
{
    if (!undecided) return;
    undecided = false;
    print_message("skipped: this machine is too busy to tell, plain sleeps are late\n");
    skip();
}

static void run_everywhere(void (*body)(struct link *l))
{
    if (under_mpi)
        body(mpi_line);
    else
        run_threads(body, EMULATION);
    skip_undecided();
}

static void a_frame_arrives_after_the_delay(void **state)
{
    (void)state;
    run_everywhere(delay_case);
}

static void a_large_frame_takes_its_time_on_the_wire(void **state)
{
    (void)state;
    run_everywhere(rate_case);
}

static void a_short_delay_is_met_as_well(void **state)
{
    (void)state;
    skip_under_mpi();
    run_threads(short_case, "100us");
    skip_undecided();
}

static void frames_queue_behind_each_other(void **state)
{
    (void)state;
    run_everywhere(queue_case);
}

static void the_wire_goes_on_while_the_receiver_is_busy(void **state)
{
    (void)state;
    run_everywhere(overlap_case);
}

static void waiting_for_a_frame_under_way_is_sleeping(void **state)
{
    (void)state;
    run_everywhere(asleep_case);
}

static void order_and_counts_hold_when_slots_run_out(void **state)
{
    (void)state;
    run_everywhere(pressure_case);
}

static void without_emulation_there_is_no_delay(void **state)
{
    (void)state;
    skip_under_mpi();
    run_threads(off_case, NULL);
}

/* Who emulates expects a stamp. */
static void a_frame_without_a_stamp_is_refused(void **state)
{
    (void)state;
    struct link *links[2];
    struct err err = {0};
    int from;
    size_t len, capacity;
    const uint8_t *frame;
    skip_under_mpi();
    if (link_local_open(links, 2, LINK_IDLE_SLEEP, &err)) fail_msg("%s", err.text);
    struct link *l = links[1];
    open_data(links[0], NULL);
    open_data(l, EMULATION);
    assert_non_null(link_send_begin(links[0], LINK_DATA, 0, &capacity));
    assert_int_equal(link_send(links[0], LINK_DATA, 0, 15, &err), ERR_NONE);
    assert_int_equal(link_receive(l, LINK_DATA, &from, &frame, &len, &err), ERR_PEER);
    assert_non_null(strstr(err.text, "15 bytes from 0 has no stamp"));
    link_close(links[0], true);
    link_close(links[1], true);
}

static int open_ranks(void)
{
    struct err err = {0};
    if (link_mpi_open(&mpi_line, LINK_IDLE_SLEEP, &err) != ERR_NONE) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    if (mpi_line == NULL || link_size(mpi_line) != 2) {
        fprintf(stderr, "two ranks are wanted\n");
        link_mpi_abort(1);
    }
    open_data(mpi_line, EMULATION);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_say_delay_and_rate),
        cmocka_unit_test(texts_that_say_neither_are_refused),
        cmocka_unit_test(frames_queue_for_the_wire_and_delays_overlap),
        cmocka_unit_test(frames_seen_late_are_due_by_their_stamp),
        cmocka_unit_test(stamps_of_the_future_count_as_now),
        cmocka_unit_test(clocks_of_other_hosts_are_followed),
        cmocka_unit_test(a_frame_arrives_after_the_delay),
        cmocka_unit_test(a_large_frame_takes_its_time_on_the_wire),
        cmocka_unit_test(a_short_delay_is_met_as_well),
        cmocka_unit_test(frames_queue_behind_each_other),
        cmocka_unit_test(the_wire_goes_on_while_the_receiver_is_busy),
        cmocka_unit_test(waiting_for_a_frame_under_way_is_sleeping),
        cmocka_unit_test(order_and_counts_hold_when_slots_run_out),
        cmocka_unit_test(without_emulation_there_is_no_delay),
        cmocka_unit_test(a_frame_without_a_stamp_is_refused),
    };
    under_mpi = link_mpi_launched();
    if (under_mpi && open_ranks() != 0) return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    if (failed > 0 && under_mpi) link_mpi_abort(1);
    link_close(mpi_line, false);
    return failed;
}
