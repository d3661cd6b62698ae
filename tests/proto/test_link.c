/* test_link - one body, two transports: threads of this process, or the ranks of mpirun.
 *
 * Every case is a small protocol of its own that all endpoints play, each in its thread or rank.
 * Without mpirun each case runs on lines of 2, 3 and 5 threads. A failed expectation ends the whole
 * job with status 1. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include <cmocka.h>

#include "engine/clock.h"
#include "link_ends.h"

enum {
    DATA_MAX = 300001, /* beyond every eager limit, and not a multiple of anything */
    IN_SLOTS = 2,
    OUT_SLOTS = 3,
    HEADER = 16, /* of a test's frame: u32 sender, u32 number, u64 length */
};

static uint64_t now_us(void)
{
    return clock_now_ns() / 1000;
}

static void sleep_ms(unsigned ms)
{
    nanosleep(&(struct timespec){ms / 1000, (long)(ms % 1000) * 1000000}, NULL);
}

/* ---- frames whose contents tell who sent them, as which, and how long they are ---- */

static size_t length_of(uint32_t sender, uint32_t number, size_t most)
{
    uint64_t z = ((uint64_t)sender << 32 | number) * 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 29)) * 0xbf58476d1ce4e5b9u;
    if (number % 16 == 0) return most;
    return HEADER + (size_t)((z >> 20) % (number % 4 == 0 ? most - HEADER : 2000));
}

static uint8_t byte_of(uint32_t sender, uint32_t number, size_t at)
{
    return (uint8_t)(sender * 31 + number * 7 + at * 13 + (at >> 8));
}

static void fill_frame(uint8_t *frame, uint32_t sender, uint32_t number, size_t len)
{
    uint64_t len64 = len;
    memcpy(frame, &sender, 4);
    memcpy(frame + 4, &number, 4);
    memcpy(frame + 8, &len64, 8);
    for (size_t i = HEADER; i < len; i++) frame[i] = byte_of(sender, number, i);
}

static void expect_frame(struct link *l, const uint8_t *frame, size_t len, uint32_t sender,
                         uint32_t number, size_t want)
{
    uint32_t got_sender, got_number;
    EXPECT(len == want, "frame %u from %u has %zu bytes, want %zu", number, sender, len, want);
    EXPECT((uintptr_t)frame % 64 == 0, "a frame at %p", (const void *)frame);
    memcpy(&got_sender, frame, 4);
    memcpy(&got_number, frame + 4, 4);
    EXPECT(got_sender == sender && got_number == number, "frame %u from %u, want %u from %u",
           got_number, got_sender, number, sender);
    for (size_t i = HEADER; i < len; i++)
        EXPECT(frame[i] == byte_of(sender, number, i), "byte %zu of frame %u", i, number);
}

static void send_one(struct link *l, enum link_channel channel, int to, uint32_t number, size_t len)
{
    struct err err = {0};
    size_t capacity = 0;
    uint8_t *frame;
    uint64_t begin = now_us();
    while ((frame = link_send_begin(l, channel, to, &capacity)) == NULL) {
        EXPECT(now_us() - begin < 20000000, "no send slot in 20 s");
        link_wait(l, 1000);
    }
    EXPECT(capacity >= len && (uintptr_t)frame % 64 == 0, "capacity %zu for %zu", capacity, len);
    EXPECT(link_send_begin(l, channel, to, &capacity) == frame, "another buffer before link_send");
    fill_frame(frame, (uint32_t)link_rank(l), number, len);
    EXPECT(link_send(l, channel, to, len, &err) == ERR_NONE, "%s", err.text);
    link_made_progress(l);
}

/* Waits for the next frame of a channel and leaves it to the caller to be done with. */
static const uint8_t *receive_one(struct link *l, enum link_channel channel, int *from, size_t *len)
{
    struct err err = {0};
    const uint8_t *frame;
    uint64_t begin = now_us();
    for (;;) {
        EXPECT(link_receive(l, channel, from, &frame, len, &err) == ERR_NONE, "%s", err.text);
        if (frame != NULL) break;
        EXPECT(now_us() - begin < 20000000, "no frame in 20 s");
        link_wait(l, 50000);
    }
    link_made_progress(l);
    return frame;
}

/* All control frames that have been sent were received: nobody runs ahead into the next case. */
static void meet(struct link *l)
{
    int from;
    size_t len;
    if (link_rank(l) == 0) {
        for (int i = 1; i < link_size(l); i++) {
            receive_one(l, LINK_CONTROL, &from, &len);
            link_receive_done(l, LINK_CONTROL);
        }
        for (int to = 1; to < link_size(l); to++) send_one(l, LINK_CONTROL, to, 0, HEADER);
    } else {
        send_one(l, LINK_CONTROL, 0, 0, HEADER);
        receive_one(l, LINK_CONTROL, &from, &len);
        link_receive_done(l, LINK_CONTROL);
    }
    for (uint64_t begin = now_us(); link_pending_sends(l) > 0;) {
        EXPECT(now_us() - begin < 20000000, "sends pending after 20 s");
        link_wait(l, 1000);
    }
}

/* Once around the ring: who gets the token knows that the coordinator, and all before, are
 * as far. */
static void pass_token(struct link *l)
{
    int from;
    size_t len;
    if (link_rank(l) == 0) send_one(l, LINK_DATA, 0, 0, HEADER);
    receive_one(l, LINK_DATA, &from, &len);
    link_receive_done(l, LINK_DATA);
    if (link_rank(l) != 0) send_one(l, LINK_DATA, 0, 0, HEADER);
}

/* ---- the cases ---- */

/* The coordinator feeds the ring and takes in what comes home; workers pass on, copying. */
static void play_ring(struct link *l, uint32_t n_frames, unsigned worker_pause_ms)
{
    uint32_t sent = 0, received = 0;
    int from;
    struct err err = {0};
    for (uint64_t begin = now_us(); received < n_frames;) {
        const uint8_t *in;
        size_t len, capacity;
        bool worked = false;
        EXPECT(now_us() - begin < 40000000, "%u of %u frames in 40 s", received, n_frames);
        if (link_rank(l) == 0 && sent < n_frames &&
            link_send_begin(l, LINK_DATA, 0, &capacity) != NULL) {
            EXPECT(capacity == DATA_MAX, "capacity %zu", capacity);
            send_one(l, LINK_DATA, 0, sent, length_of(0, sent, DATA_MAX));
            sent++;
            worked = true;
        }
        EXPECT(link_receive(l, LINK_DATA, &from, &in, &len, &err) == ERR_NONE, "%s", err.text);
        if (in != NULL) {
            EXPECT(from == (link_rank(l) + link_size(l) - 1) % link_size(l), "from %d", from);
            expect_frame(l, in, len, (uint32_t)from, received, length_of(0, received, DATA_MAX));
            if (worker_pause_ms > 0 && link_rank(l) == link_size(l) - 1) sleep_ms(worker_pause_ms);
            if (link_rank(l) != 0) send_one(l, LINK_DATA, 0, received, len);
            link_receive_done(l, LINK_DATA);
            received++;
            worked = true;
        }
        if (worked)
            link_made_progress(l);
        else
            link_wait(l, 50000);
    }
}

static void ring_case(struct link *l)
{
    struct link_counts before = link_counts(l, LINK_DATA);
    enum { N = 200 };
    play_ring(l, N, 0);
    meet(l);
    struct link_counts after = link_counts(l, LINK_DATA);
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < N; i++) bytes += length_of(0, i, DATA_MAX);
    EXPECT(after.sent_messages - before.sent_messages == N, "sent messages");
    EXPECT(after.received_messages - before.received_messages == N, "received messages");
    EXPECT(after.sent_bytes - before.sent_bytes == bytes, "sent bytes");
    EXPECT(after.received_bytes - before.received_bytes == bytes, "received bytes");
}

/* The last worker is slow: slots run out all the way back to the coordinator, and nothing
 * is lost. */
static void backpressure_case(struct link *l)
{
    play_ring(l, 40, 3);
    meet(l);
}

/* With nobody receiving, sending stops by itself: large frames need a receiver, and slots are
 * limited. */
static void slots_case(struct link *l)
{
    uint32_t sent = 0;
    size_t capacity;
    if (link_rank(l) == 0)
        while (sent < 100 && link_send_begin(l, LINK_DATA, 0, &capacity) != NULL) {
            send_one(l, LINK_DATA, 0, sent, DATA_MAX);
            sent++;
        }
    if (link_rank(l) == 0) {
        EXPECT(sent >= OUT_SLOTS && sent <= OUT_SLOTS + IN_SLOTS, "%u frames were taken", sent);
        EXPECT(link_pending_sends(l) > 0, "nothing is pending");
        send_one(l, LINK_CONTROL, 1, sent, HEADER);
    }
    if (link_rank(l) == 1) {
        int from;
        size_t len;
        const uint8_t *frame = receive_one(l, LINK_CONTROL, &from, &len);
        uint32_t n;
        memcpy(&n, frame + 4, 4);
        link_receive_done(l, LINK_CONTROL);
        for (uint32_t i = 0; i < n; i++) {
            frame = receive_one(l, LINK_DATA, &from, &len);
            expect_frame(l, frame, len, 0, i, DATA_MAX);
            link_receive_done(l, LINK_DATA);
        }
    }
    meet(l);
}

/* The coordinator sends to all workers, more than there are slots; the last one is slow. */
static void weights_case(struct link *l)
{
    enum { N = 40 };
    struct err err = {0};
    const int size = link_size(l);
    EXPECT(link_open_weights(l, &err) == ERR_NONE, "%s", err.text);
    for (uint32_t i = 0; i < N; i++) {
        const size_t want = length_of(0, i, LINK_WEIGHTS_FRAME_MAX);
        if (link_rank(l) == 0) {
            for (int to = 1; to < size; to++) send_one(l, LINK_WEIGHTS, to, i, want);
        } else {
            int from;
            size_t len;
            const uint8_t *frame = receive_one(l, LINK_WEIGHTS, &from, &len);
            EXPECT(from == 0, "from %d", from);
            if (link_rank(l) == size - 1) sleep_ms(2);
            expect_frame(l, frame, len, 0, i, want);
            link_receive_done(l, LINK_WEIGHTS);
        }
    }
    meet(l);
    link_close_weights(l);
}

/* Everybody talks to the coordinator and it to everybody, at the same time, in order for
 * each pair. */
static void control_case(struct link *l)
{
    enum { N = 300 };
    int size = link_size(l), peers = link_rank(l) == 0 ? size - 1 : 1;
    uint32_t *sent = calloc((size_t)size, sizeof *sent);
    uint32_t *received = calloc((size_t)size, sizeof *received);
    struct err err = {0};
    uint64_t begin = now_us();
    for (uint32_t all = 0; all < 2u * N * (uint32_t)peers;) {
        uint32_t was = all;
        EXPECT(now_us() - begin < 40000000, "%u control frames in 40 s", all);
        for (int i = 0; i < peers; i++) {
            int to = link_rank(l) == 0 ? i + 1 : 0;
            size_t capacity;
            if (sent[to] == N || link_send_begin(l, LINK_CONTROL, to, &capacity) == NULL) continue;
            send_one(l, LINK_CONTROL, to, sent[to],
                     length_of((uint32_t)link_rank(l), sent[to], LINK_CONTROL_FRAME_MAX));
            sent[to]++;
            all++;
        }
        const uint8_t *in;
        size_t len;
        int from;
        EXPECT(link_receive(l, LINK_CONTROL, &from, &in, &len, &err) == ERR_NONE, "%s", err.text);
        if (in != NULL) {
            EXPECT(from >= 0 && from < size && from != link_rank(l), "from %d", from);
            expect_frame(l, in, len, (uint32_t)from, received[from],
                         length_of((uint32_t)from, received[from], LINK_CONTROL_FRAME_MAX));
            received[from]++;
            all++;
            link_receive_done(l, LINK_CONTROL);
        }
        if (all == was) link_wait(l, 10000);
    }
    free(sent);
    free(received);
    pass_token(l);
    meet(l);
}

/* A frame that is held keeps its bytes while others arrive behind it. */
static void held_case(struct link *l)
{
    int from;
    size_t len;
    if (link_rank(l) == 0) {
        for (uint32_t i = 0; i < OUT_SLOTS; i++) send_one(l, LINK_DATA, 0, i, 1000);
        meet(l);
    }
    if (link_rank(l) == 1) {
        const uint8_t *frame = receive_one(l, LINK_DATA, &from, &len);
        sleep_ms(20);
        for (int i = 0; i < 20; i++) link_wait(l, 1000);
        meet(l);
        expect_frame(l, frame, len, 0, 0, 1000);
        link_receive_done(l, LINK_DATA);
        for (uint32_t i = 1; i < OUT_SLOTS; i++) {
            frame = receive_one(l, LINK_DATA, &from, &len);
            expect_frame(l, frame, len, 0, i, 1000);
            link_receive_done(l, LINK_DATA);
        }
    }
    if (link_rank(l) > 1) meet(l);
    meet(l);
}

static double cpu_seconds(void)
{
    struct rusage u;
    getrusage(RUSAGE_THREAD, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1e-6;
}

/* Two seconds of nothing, and then a frame still wakes everybody. The bound is twice the promised 5
 * %: this test shares its machine with others. */
static void idle_case(struct link *l)
{
    int from;
    size_t len;
    const uint8_t *frame;
    struct err err = {0};
    meet(l);
    double cpu = cpu_seconds();
    uint64_t begin = now_us(), took;
    while ((took = now_us() - begin) < 2000000) {
        EXPECT(link_receive(l, LINK_DATA, &from, &frame, &len, &err) == ERR_NONE && frame == NULL,
               "a frame");
        EXPECT(link_receive(l, LINK_CONTROL, &from, &frame, &len, &err) == ERR_NONE, "%s",
               err.text);
        /* Another endpoint may be through its two seconds first. */
        if (frame != NULL) break;
        link_wait(l, 100000);
    }
    double share = (cpu_seconds() - cpu) / ((double)took * 1e-6);
    EXPECT(took > 1500000, "%.3f s", (double)took * 1e-6);
    EXPECT(share < 0.10, "idle took %.1f %% of a core", share * 100);
    if (link_rank(l) == 0) {
        printf("    idle: %.2f %% of a core\n", share * 100);
        for (int to = 1; to < link_size(l); to++) send_one(l, LINK_CONTROL, to, 7, HEADER);
    } else {
        if (frame == NULL) frame = receive_one(l, LINK_CONTROL, &from, &len);
        expect_frame(l, frame, len, 0, 7, HEADER);
        link_receive_done(l, LINK_CONTROL);
    }
    meet(l);
}

/* A sleeper hears of a frame long before its own timeout. */
static void wake_case(struct link *l)
{
    int from;
    size_t len;
    for (uint32_t i = 0; i < 5; i++) {
        meet(l);
        if (link_rank(l) == 0) {
            sleep_ms(60);
            uint64_t sent_us = now_us();
            send_one(l, LINK_DATA, 0, i, HEADER);
            receive_one(l, LINK_DATA, &from, &len);
            link_receive_done(l, LINK_DATA);
            uint64_t took = now_us() - sent_us;
            EXPECT(took < 400000, "once around the ring took %.3f s", (double)took * 1e-6);
        } else {
            struct err err = {0};
            const uint8_t *frame;
            link_made_progress(l);
            for (;;) {
                EXPECT(link_receive(l, LINK_DATA, &from, &frame, &len, &err) == ERR_NONE, "%s",
                       err.text);
                if (frame != NULL) break;
                link_wait(l, 5000000);
            }
            send_one(l, LINK_DATA, 0, i, len);
            link_receive_done(l, LINK_DATA);
        }
    }
    meet(l);
}

/* Frames before and after raw messages: neither meets the other. */
static void raw_case(struct link *l)
{
    enum { N_SIZES = 3 };
    static const size_t bytes[N_SIZES] = {1, 5000, DATA_MAX};
    static const size_t none[1] = {0};
    const size_t n = (size_t)link_size(l) * N_SIZES;
    struct err err = {0};
    double *us = calloc(n, sizeof *us);
    EXPECT(us != NULL, "no memory");
    play_ring(l, 20, 0);
    meet(l);
    EXPECT(link_raw_pingpong(l, bytes, N_SIZES, 20, us, &err) == ERR_NONE, "%s", err.text);
    for (size_t i = 0; i < n && link_rank(l) == 0; i++)
        EXPECT(us[i] > 0 && us[i] < 1e6, "hop %zu, %zu bytes: %g us", i / N_SIZES,
               bytes[i % N_SIZES], us[i]);
    EXPECT(link_raw_pingpong(l, none, 1, 20, us, &err) == ERR_CAPACITY, "no bytes");
    EXPECT(link_raw_pingpong(l, bytes, 0, 20, us, &err) == ERR_CAPACITY, "no sizes");
    EXPECT(link_raw_pingpong(l, bytes, N_SIZES, 0, us, &err) == ERR_CAPACITY, "no rounds");
    free(us);
    play_ring(l, 20, 0);
    meet(l);
}

/* ---- the two transports ---- */

struct endpoint {
    struct link *link;
    void (*body)(struct link *l);
};

static void open_data(struct link *l)
{
    struct err err = {0};
    EXPECT(link_open_data(l, DATA_MAX, DATA_MAX, IN_SLOTS, OUT_SLOTS, &err) == ERR_NONE, "%s",
           err.text);
}

static void *run_endpoint(void *arg)
{
    struct endpoint *e = arg;
    open_data(e->link);
    e->body(e->link);
    link_close(e->link, false);
    return NULL;
}

static void run_threads(void (*body)(struct link *l), int size)
{
    struct link *links[8];
    struct endpoint endpoints[8];
    pthread_t threads[8];
    struct err err = {0};
    if (link_local_open(links, size, LINK_IDLE_SLEEP, &err)) fail_msg("%s", err.text);
    for (int i = 0; i < size; i++) {
        endpoints[i] = (struct endpoint){links[i], body};
        assert_int_equal(pthread_create(&threads[i], NULL, run_endpoint, &endpoints[i]), 0);
    }
    for (int i = 0; i < size; i++) pthread_join(threads[i], NULL);
}

static void run_everywhere(void (*body)(struct link *l))
{
    if (!under_mpi) {
        static const int sizes[] = {2, 3, 5};
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) run_threads(body, sizes[i]);
        return;
    }
    if (mpi_line == NULL) {
        print_message("skipped: a world of one rank has no line\n");
        skip();
    }
    body(mpi_line);
}

static void frames_of_every_size_go_round_whole_and_in_order(void **state)
{
    (void)state;
    run_everywhere(ring_case);
}

static void a_slow_receiver_holds_its_senders_back(void **state)
{
    (void)state;
    run_everywhere(backpressure_case);
}

static void sending_stops_when_the_slots_are_taken(void **state)
{
    (void)state;
    run_everywhere(slots_case);
}

static void weights_go_to_every_worker_in_order(void **state)
{
    (void)state;
    run_everywhere(weights_case);
}

static void control_is_in_order_for_each_pair(void **state)
{
    (void)state;
    run_everywhere(control_case);
}

static void a_held_frame_keeps_its_bytes(void **state)
{
    (void)state;
    run_everywhere(held_case);
}

static void an_idle_endpoint_takes_hardly_any_time(void **state)
{
    (void)state;
    run_everywhere(idle_case);
}

static void a_sleeper_is_woken_by_a_frame(void **state)
{
    (void)state;
    run_everywhere(wake_case);
}

static void raw_messages_measure_every_hop(void **state)
{
    (void)state;
    run_everywhere(raw_case);
}

static void a_frame_beyond_int_max_is_refused(void **state)
{
    (void)state;
    struct link *links[2];
    struct err err = {0};
    if (link_local_open(links, 2, LINK_IDLE_SLEEP, &err)) fail_msg("%s", err.text);
    assert_int_equal(link_open_data(links[0], 0x80000000u, 64, 1, 1, &err), ERR_CAPACITY);
    assert_non_null(strstr(err.text, "2147483648"));
    assert_int_equal(link_local_open(links, 1, LINK_IDLE_SLEEP, &err), ERR_CAPACITY);
    link_close(links[0], true);
    link_close(links[1], true);
}

/* In one process a peer may state a smaller frame than its neighbour sends. */
static void a_frame_larger_than_agreed_is_refused(void **state)
{
    (void)state;
    struct link *links[2];
    struct err err = {0};
    int from;
    size_t len, capacity;
    const uint8_t *frame;
    skip_under_mpi();
    if (link_local_open(links, 2, LINK_IDLE_SLEEP, &err)) fail_msg("%s", err.text);
    assert_int_equal(link_open_data(links[0], 64, 128, 1, 1, &err), ERR_NONE);
    assert_int_equal(link_receive(links[1], LINK_DATA, &from, &frame, &len, &err), ERR_NONE);
    assert_null(frame);
    memset(link_send_begin(links[0], LINK_DATA, 0, &capacity), 0, 128);
    assert_int_equal(link_send(links[0], LINK_DATA, 0, 100, &err), ERR_NONE);
    assert_int_equal(link_open_data(links[1], 99, 64, 1, 1, &err), ERR_NONE);
    assert_int_equal(link_receive(links[1], LINK_DATA, &from, &frame, &len, &err), ERR_PEER);
    assert_non_null(strstr(err.text, "100 bytes from 0, at most 99"));
    assert_int_equal(link_pending_sends(links[0]), 1);
    link_close(links[1], false);
    assert_int_equal(link_pending_sends(links[0]), 0);
    link_close(links[0], false);
}

/* The way between ranks is shown by the end-to-end test of plans. */
static void an_endpoint_that_is_passed_over_has_no_part(void **state)
{
    (void)state;
    struct link *links[3];
    struct err err = {0};
    int from;
    size_t len, capacity;
    const uint8_t *frame;
    skip_under_mpi();
    if (link_local_open(links, 3, LINK_IDLE_SLEEP, &err)) fail_msg("%s", err.text);
    link_set_neighbours(links[0], 2, 2);
    link_set_neighbours(links[2], 0, 0);
    for (int i = 0; i < 3; i += 2)
        assert_int_equal(link_open_data(links[i], 64, 64, 1, 1, &err), ERR_NONE);
    for (int i = 0; i < 3; i += 2) {
        memset(link_send_begin(links[i], LINK_DATA, 0, &capacity), i, 64);
        assert_int_equal(link_send(links[i], LINK_DATA, 0, 10 + (size_t)i, &err), ERR_NONE);
        assert_int_equal(link_receive(links[2 - i], LINK_DATA, &from, &frame, &len, &err),
                         ERR_NONE);
        assert_non_null(frame);
        assert_int_equal(from, i);
        assert_int_equal(len, 10 + i);
        assert_int_equal(frame[0], i);
        link_receive_done(links[2 - i], LINK_DATA);
    }
    for (int i = 0; i < 3; i++) link_close(links[i], false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frames_of_every_size_go_round_whole_and_in_order),
        cmocka_unit_test(a_slow_receiver_holds_its_senders_back),
        cmocka_unit_test(sending_stops_when_the_slots_are_taken),
        cmocka_unit_test(weights_go_to_every_worker_in_order),
        cmocka_unit_test(control_is_in_order_for_each_pair),
        cmocka_unit_test(a_held_frame_keeps_its_bytes),
        cmocka_unit_test(an_idle_endpoint_takes_hardly_any_time),
        cmocka_unit_test(a_sleeper_is_woken_by_a_frame),
        cmocka_unit_test(raw_messages_measure_every_hop),
        cmocka_unit_test(a_frame_beyond_int_max_is_refused),
        cmocka_unit_test(a_frame_larger_than_agreed_is_refused),
        cmocka_unit_test(an_endpoint_that_is_passed_over_has_no_part),
    };
    under_mpi = link_mpi_launched();
    if (under_mpi) {
        struct err err = {0};
        if (link_mpi_open(&mpi_line, LINK_IDLE_SLEEP, &err) != ERR_NONE) {
            fprintf(stderr, "%s\n", err.text);
            return 1;
        }
        if (mpi_line != NULL) open_data(mpi_line);
    }
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    if (failed > 0 && under_mpi) link_mpi_abort(1);
    link_close(mpi_line, false);
    return failed;
}
