/* test_ledger - every nanosecond of a stage is booked once, in the column where it was spent.
 *
 * First the ledger alone; then whole lines of real workers, in threads, with delays at known places
 * (TANDEM_TEST_FAULT). A machine that is busy with other things may spoil a measurement, so each
 * has TRIES tries. */
#include "../test_data.h"
#include "coordinator/line/journal.h"
#include "coordinator/line/line.h"
#include "coordinator/line/line_stats.h"
#include "engine/clock.h"
#include "worker/ledger.h"
#include "worker/worker.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <cmocka.h>

enum { STAGES_MOST = 4, TOKENS = 20, DELAY_MS = 20, TRIES = 10 };

static void sleep_ms(long ms)
{
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
}

/* ---- the ledger alone ---- */

static struct ledger ledger;

static uint64_t booked(const struct ledger *g)
{
    uint64_t sum = 0;
    for (int c = 0; c < LEDGER_COLUMNS; c++) sum += g->total_ns[c];
    return sum;
}

static void sections_in_a_chain_leave_nothing_out(void **state)
{
    (void)state;
    ledger_open(&ledger);
    for (int i = 0; i < 100; i++) ledger_book(&ledger, (enum ledger_column)(i % LEDGER_COLUMNS));
    assert_int_equal(booked(&ledger), ledger.mark_ns - ledger.opened_ns);
}

static void a_section_inside_another_counts_once(void **state)
{
    (void)state;
    ledger_open(&ledger);
    uint64_t begin = clock_now_ns();
    sleep_ms(5);
    ledger_book_inner(&ledger, LEDGER_CONTROL, begin);
    ledger_book(&ledger, LEDGER_COMPUTE);
    assert_true(ledger.total_ns[LEDGER_CONTROL] >= 5000000);
    assert_true(ledger.total_ns[LEDGER_COMPUTE] < 5000000);
    assert_int_equal(booked(&ledger), ledger.mark_ns - ledger.opened_ns);
}

static void a_gap_is_idle_only_as_far_as_it_goes(void **state)
{
    (void)state;
    static const struct {
        uint64_t idle_ns;
        bool all_idle, all_wait;
    } cases[] = {
        {0, false, true}, {1, false, false}, {1000000000, true, false}, {UINT64_MAX, true, false}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ledger_open(&ledger);
        sleep_ms(1);
        ledger_book(&ledger, LEDGER_WAIT);
        uint64_t gap = ledger.total_ns[LEDGER_WAIT];
        ledger_split_wait(&ledger, cases[i].idle_ns);
        ledger_split_wait(&ledger, UINT64_MAX); /* once each */
        assert_int_equal(ledger.total_ns[LEDGER_WAIT] + ledger.total_ns[LEDGER_IDLE], gap);
        assert_int_equal(ledger.total_ns[LEDGER_WAIT] == 0, cases[i].all_idle);
        assert_int_equal(ledger.total_ns[LEDGER_IDLE] == 0, cases[i].all_wait);
    }
}

static void accounts_leave_once_each_and_in_order(void **state)
{
    (void)state;
    ledger_open(&ledger);
    uint64_t next = 1, id = 1;
    while (next <= 3 * LEDGER_ACCOUNTS) {
        for (int i = 0; i < 100; i++)
            ledger_close_batch(&ledger, &(struct msg_account){.batch_id = id++});
        struct msg_heartbeat beat;
        while (ledger_is_due(&ledger)) {
            ledger_load(&ledger, &beat);
            assert_true(beat.n_accounts > 0 && beat.n_accounts <= MESSAGE_ACCOUNTS_MAX);
            for (uint32_t i = 0; i < beat.n_accounts; i++)
                assert_int_equal(beat.accounts[i].batch_id, next++);
            ledger_unload(&ledger, &beat);
        }
    }
    assert_int_equal(ledger.lost, 0);
}

static void accounts_that_cannot_leave_are_lost_and_counted_and_the_totals_stay(void **state)
{
    (void)state;
    ledger_open(&ledger);
    for (uint64_t id = 1; id <= LEDGER_ACCOUNTS + 7; id++) {
        ledger_book(&ledger, LEDGER_COMPUTE);
        ledger_close_batch(&ledger, &(struct msg_account){.batch_id = id, .rows = 2});
    }
    struct msg_heartbeat beat;
    ledger_load(&ledger, &beat);
    assert_int_equal(beat.accounts[0].batch_id, 8);
    assert_int_equal(ledger.lost, 7);
    assert_int_equal(ledger.rows, 2 * (LEDGER_ACCOUNTS + 7));
    assert_int_equal(booked(&ledger), ledger.mark_ns - ledger.opened_ns);
}

static void a_layer_is_marked_once_a_batch(void **state)
{
    (void)state;
    ledger_open(&ledger);
    for (uint64_t id = 1; id <= 3; id++)
        for (uint32_t layer = 0; layer < 4; layer++)
            for (int again = 0; again < 3; again++) ledger_mark_layer(&ledger, id, layer);
    struct msg_heartbeat beat;
    ledger_load(&ledger, &beat);
    assert_int_equal(beat.n_marks, 12);
    for (uint32_t i = 0; i < 12; i++) assert_int_equal(beat.marks[i].layer, i % 4);
}

/* ---- whole lines ---- */

struct stage_thread {
    pthread_t thread;
    struct link *link;
    struct worker_config config;
};

static void *run_worker(void *arg)
{
    struct stage_thread *t = arg;
    struct err err;
    if (worker_run(t->link, &t->config, &err) != ERR_NONE)
        fprintf(stderr, "worker: %s\n", err.text);
    link_close(t->link, false);
    return NULL;
}

struct bench {
    uint32_t n_stages;
    struct model *model;
    struct link *link[STAGES_MOST + 1];
    struct stage_thread threads[STAGES_MOST];
    struct line *line;
    uint64_t before_ns, opened_ns, stopping_ns, stopped_ns; /* around line_open() and line_stop() */
};

static void bench_open(struct bench *b, uint32_t n_stages, const char *fault, bool layers)
{
    SKIP_WITHOUT(path, "families/llama.gguf");
    struct err err;
    if (fault != NULL)
        setenv("TANDEM_TEST_FAULT", fault, 1);
    else
        unsetenv("TANDEM_TEST_FAULT");
    *b = (struct bench){.n_stages = n_stages, .before_ns = clock_now_ns()};
    if (model_open(&b->model, path, &err) != ERR_NONE) fail_msg("%s", err.text);
    assert_int_equal(link_local_open(b->link, (int)n_stages + 1, LINK_IDLE_SLEEP, &err), ERR_NONE);
    for (uint32_t i = 0; i < n_stages; i++) {
        b->threads[i] =
            (struct stage_thread){.link = b->link[i + 1], .config = {.model_path = path}};
        assert_int_equal(pthread_create(&b->threads[i].thread, NULL, run_worker, &b->threads[i]),
                         0);
    }
    struct line_config c = {.model = b->model,
                            .n_ctx = 128,
                            .n_seqs = 1,
                            .threads = 1,
                            .measure = true,
                            .trace_layers = layers};
    if (line_open(&b->line, b->link[0], &c, &err) != ERR_NONE) fail_msg("%s", err.text);
    b->opened_ns = clock_now_ns();
}

static void generate(struct bench *b, uint32_t n_tokens)
{
    static const int32_t prompt[8] = {1, 20, 30, 40, 50, 60, 70, 80};
    struct line_request r = {
        .prompt = prompt, .n_prompt = 8, .sampling = sampling_default(), .max_tokens = n_tokens};
    uint32_t request;
    struct err err;
    if (line_submit(b->line, &r, &request, &err) != ERR_NONE) fail_msg("%s", err.text);
    for (bool none = false; !none;) {
        struct line_event ev;
        if (line_next(b->line, &ev, &none, &err) != ERR_NONE) fail_msg("%s", err.text);
    }
}

static void bench_stop(struct bench *b)
{
    struct err err;
    b->stopping_ns = clock_now_ns();
    if (line_stop(b->line, &err) != ERR_NONE) fail_msg("%s", err.text);
    b->stopped_ns = clock_now_ns();
}

static void bench_close(struct bench *b)
{
    line_close(b->line);
    for (uint32_t i = 0; i < b->n_stages; i++) pthread_join(b->threads[i].thread, NULL);
    link_close(b->link[0], false);
    model_close(b->model);
}

static uint64_t sum_of(const struct msg_report *r)
{
    return r->compute_ns + r->wait_ns + r->send_ns + r->control_ns + r->idle_ns;
}

/* fails() - what a try found wrong; "" where all is well. */
static char wrong[256];

static bool fails(bool bad, const char *what, uint32_t stage, uint64_t is, uint64_t want)
{
    if (bad)
        snprintf(wrong, sizeof wrong, "stage %u: %s is %.3f ms, against %.3f ms", stage, what,
                 (double)is * 1e-6, (double)want * 1e-6);
    return bad;
}

static void must_succeed(bool (*try)(const void *arg), const void *arg, const char *what)
{
    for (int i = 0; i < TRIES; i++)
        if (try(arg)) return;
    fail_msg("%s: %s, in %d tries", what, wrong, TRIES);
}

struct delay {
    uint32_t n_stages, at; /* stage 0 .. */
    int column;
};

enum { COMPUTE, SEND, CONTROL, WAIT, COLUMNS };
static const char *const column_names[COLUMNS] = {"compute", "send", "control", "wait"};

/* What a stage booked for the median batch: one batch that a busy machine delays
 * changes nothing. */
struct medians {
    uint64_t ns[COLUMNS];
};

static int ascending(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static struct medians read_medians(const struct line *ln, uint32_t stage)
{
    uint64_t ns[COLUMNS][TOKENS];
    struct medians m;
    for (uint64_t id = 1; id <= TOKENS; id++) {
        const struct msg_account *a = journal_account(line_journal(ln), stage, id);
        assert_non_null(a);
        const uint64_t columns[COLUMNS] = {a->compute_ns, a->send_ns, a->control_ns, a->wait_ns};
        for (int c = 0; c < COLUMNS; c++) ns[c][id - 1] = columns[c];
    }
    for (int c = 0; c < COLUMNS; c++) {
        qsort(ns[c], TOKENS, sizeof ns[c][0], ascending);
        m.ns[c] = ns[c][TOKENS / 2];
    }
    return m;
}

static void run_once(uint32_t n_stages, const char *fault, struct medians *out)
{
    struct bench b;
    bench_open(&b, n_stages, fault, false);
    generate(&b, TOKENS);
    bench_stop(&b);
    for (uint32_t i = 0; i < n_stages; i++) {
        out[i] = read_medians(b.line, i);
        const struct msg_report *r = &line_stage_at(b.line, i)->report;
        assert_true(r->idle_ns <= line_counts(b.line).idle_ns);
    }
    bench_close(&b);
}

/* Other stages wait meanwhile, which is what a line does: that column is theirs. */
static bool delay_shows(const void *arg)
{
    const struct delay *d = arg;
    const uint64_t want = (uint64_t)DELAY_MS * 1000000, little = want / 10;
    struct medians without[STAGES_MOST], with[STAGES_MOST];
    char fault[64];
    snprintf(fault, sizeof fault, "%u:%s:%d", d->at + 1, column_names[d->column], DELAY_MS);
    run_once(d->n_stages, NULL, without);
    run_once(d->n_stages, fault, with);
    for (uint32_t i = 0; i < d->n_stages; i++)
        for (int c = 0; c < COLUMNS; c++) {
            const uint64_t a = without[i].ns[c], b = with[i].ns[c], more = b > a ? b - a : 0;
            const bool here = i == d->at && c == d->column;
            if (i != d->at && c == WAIT) continue;
            if (here &&
                fails(more < want - little || more > want + little, column_names[c], i, more, want))
                return false;
            if (!here && fails(more > little, column_names[c], i, more, little)) return false;
        }
    return true;
}

static void a_delay_shows_in_its_column_of_its_stage_and_nowhere_else(void **state)
{
    (void)state;
    for (uint32_t n_stages = 1; n_stages <= 2; n_stages++)
        for (uint32_t at = 0; at < n_stages; at++)
            for (int c = COMPUTE; c < WAIT; c++) {
                char what[64];
                snprintf(what, sizeof what, "%d ms of %s in stage %u of %u", DELAY_MS,
                         column_names[c], at, n_stages);
                must_succeed(delay_shows, &(struct delay){n_stages, at, c}, what);
            }
}

struct load {
    uint32_t n_stages;
    long idle_ms;
    uint32_t rounds;
};

/* The stages' wall clocks run from READY to STOP: at least what passed between line_open() and
 * line_stop(). */
static bool wall_adds_up(const void *arg)
{
    const struct load *l = arg;
    struct bench b;
    bench_open(&b, l->n_stages, NULL, false);
    for (uint32_t i = 0; i < l->rounds; i++) {
        sleep_ms(l->idle_ms);
        generate(&b, 100);
    }
    sleep_ms(l->idle_ms);
    bench_stop(&b);
    const uint64_t least = b.stopping_ns - b.opened_ns, most = b.stopped_ns - b.before_ns;
    const uint64_t asleep = (l->rounds + 1) * (uint64_t)l->idle_ms * 1000000;
    bool bad = false;
    for (uint32_t i = 0; i < l->n_stages && !bad; i++) {
        const struct msg_report *r = &line_stage_at(b.line, i)->report;
        uint64_t sum = sum_of(r);
        bad = fails(r->wall_ns < least || r->wall_ns > most, "wall", i, r->wall_ns, least) ||
              fails(sum > r->wall_ns, "the sum", i, sum, r->wall_ns) ||
              fails(r->wall_ns - sum > r->wall_ns / 100, "what is in no column", i,
                    r->wall_ns - sum, r->wall_ns / 100) ||
              fails(r->idle_ns < asleep - asleep / 50, "idle", i, r->idle_ns, asleep) ||
              fails(r->idle_ns > line_counts(b.line).idle_ns, "idle", i, r->idle_ns,
                    line_counts(b.line).idle_ns);
    }
    bench_close(&b);
    return !bad;
}

static void the_columns_add_up_to_wall_time_busy_and_idle(void **state)
{
    (void)state;
    static const uint32_t stages[] = {1, 2, 4};
    for (int i = 0; i < 3; i++) {
        char what[64];
        snprintf(what, sizeof what, "%u stages, busy", stages[i]);
        must_succeed(wall_adds_up, &(struct load){stages[i], 0, 5}, what);
        snprintf(what, sizeof what, "%u stages, mostly idle", stages[i]);
        must_succeed(wall_adds_up, &(struct load){stages[i], 200, 1}, what);
    }
}

static void every_batch_has_an_account_in_every_stage(void **state)
{
    (void)state;
    struct bench b;
    bench_open(&b, 4, NULL, true);
    for (int i = 0; i < 6; i++) generate(&b, 100);
    bench_stop(&b);
    const struct journal *j = line_journal(b.line);
    assert_int_equal(journal_first(j), 1);
    assert_int_equal(journal_last(j), 600);
    for (uint64_t id = 1; id <= 600; id++) {
        uint64_t sent = 0;
        const struct journal_flight *f = journal_find_flight(j, id);
        assert_true(f->begun_ns <= f->sent_ns && f->sent_ns <= f->home_ns &&
                    f->home_ns <= f->landed_ns);
        sent = f->sent_ns;
        for (uint32_t i = 0; i < 4; i++) {
            const struct msg_account *a = journal_account(j, i, id);
            assert_non_null(a);
            assert_int_equal(a->rows, f->rows);
            /* One process has one clock. */
            assert_true(sent <= a->received_ns && a->received_ns <= a->begin_ns &&
                        a->begin_ns <= a->sent_ns && a->sent_ns <= a->done_ns);
            sent = a->sent_ns;
        }
        assert_true(sent <= f->home_ns);
    }
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(line_stage_at(b.line, i)->report.accounts_lost, 0);
        /* One layer each, and the output head. */
        assert_int_equal(journal_mark_count(j, i), i < 3 ? 600 : 1200);
    }
    bench_close(&b);
}

static void the_statistics_of_a_part_are_those_of_its_batches(void **state)
{
    (void)state;
    struct bench b;
    bench_open(&b, 2, NULL, false);
    generate(&b, 50);
    generate(&b, 30);
    bench_stop(&b);
    struct line_stats all, first, second;
    struct err err;
    assert_int_equal(line_stats_read(&all, b.line, 1, UINT64_MAX, &err), ERR_NONE);
    assert_int_equal(line_stats_read(&first, b.line, 1, 50, &err), ERR_NONE);
    assert_int_equal(line_stats_read(&second, b.line, 51, 80, &err), ERR_NONE);
    assert_int_equal(all.missing + first.missing + second.missing, 0);
    assert_int_equal(first.prompt.rows, 8);
    assert_int_equal(first.text.rows, 49);
    assert_int_equal(second.text.rows, 29);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(first.stages[i].batches + second.stages[i].batches, all.stages[i].batches);
        assert_int_equal(first.stages[i].compute_ns + second.stages[i].compute_ns,
                         all.stages[i].compute_ns);
        assert_true(all.stages[i].occupancy > 0 && all.stages[i].occupancy <= 1);
    }
    for (uint32_t hop = 0; hop <= 2; hop++) {
        assert_int_equal(all.hops[hop].messages, 80);
        assert_int_equal(first.hops[hop].bytes + second.hops[hop].bytes, all.hops[hop].bytes);
        assert_true(all.hops[hop].timed > 0 && all.hops[hop].us_median > 0);
        assert_true(all.hops[hop].us_median <= all.hops[hop].us_p99);
    }
    assert_true(all.bubble > 0 && all.bubble < 1);
    line_stats_free(&all);
    line_stats_free(&first);
    line_stats_free(&second);
    bench_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sections_in_a_chain_leave_nothing_out),
        cmocka_unit_test(a_section_inside_another_counts_once),
        cmocka_unit_test(a_gap_is_idle_only_as_far_as_it_goes),
        cmocka_unit_test(accounts_leave_once_each_and_in_order),
        cmocka_unit_test(accounts_that_cannot_leave_are_lost_and_counted_and_the_totals_stay),
        cmocka_unit_test(a_layer_is_marked_once_a_batch),
        cmocka_unit_test(every_batch_has_an_account_in_every_stage),
        cmocka_unit_test(the_statistics_of_a_part_are_those_of_its_batches),
        cmocka_unit_test(the_columns_add_up_to_wall_time_busy_and_idle),
        cmocka_unit_test(a_delay_shows_in_its_column_of_its_stage_and_nowhere_else),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
