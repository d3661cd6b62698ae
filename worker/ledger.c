/* ledger - see ledger.h. */
#include "worker/ledger.h"
#include "engine/clock.h"

#include <string.h>

void ledger_open(struct ledger *g)
{
    memset(g, 0, sizeof *g);
    g->opened_ns = g->mark_ns = clock_now_ns();
}

uint64_t ledger_book(struct ledger *g, enum ledger_column column)
{
    uint64_t now = clock_now_ns(), length = now - g->mark_ns - g->inner_ns;
    g->total_ns[column] += length;
    if (column == LEDGER_WAIT) g->gap_ns = length;
    g->mark_ns = now;
    g->inner_ns = 0;
    return now;
}

void ledger_split_wait(struct ledger *g, uint64_t idle_ns)
{
    uint64_t idle = idle_ns < g->gap_ns ? idle_ns : g->gap_ns;
    g->total_ns[LEDGER_WAIT] -= idle;
    g->total_ns[LEDGER_IDLE] += idle;
    g->gap_ns = 0;
}

void ledger_book_inner(struct ledger *g, enum ledger_column column, uint64_t begin_ns)
{
    uint64_t length = clock_now_ns() - begin_ns;
    g->total_ns[column] += length;
    g->inner_ns += length;
}

static uint64_t take_unclosed(struct ledger *g, enum ledger_column column)
{
    uint64_t ns = g->total_ns[column] - g->closed_ns[column];
    g->closed_ns[column] = g->total_ns[column];
    return ns;
}

void ledger_close_batch(struct ledger *g, const struct msg_account *a)
{
    if (g->next_account - g->first_account == LEDGER_ACCOUNTS) {
        g->first_account++;
        g->lost++;
    }
    struct msg_account *to = &g->accounts[g->next_account++ % LEDGER_ACCOUNTS];
    *to = *a;
    to->compute_ns = take_unclosed(g, LEDGER_COMPUTE);
    to->wait_ns = take_unclosed(g, LEDGER_WAIT);
    to->send_ns = take_unclosed(g, LEDGER_SEND);
    to->control_ns = take_unclosed(g, LEDGER_CONTROL);
    to->idle_ns = take_unclosed(g, LEDGER_IDLE);
    g->batches++;
    g->rows += a->rows;
}

void ledger_mark_layer(struct ledger *g, uint64_t batch_id, uint32_t layer)
{
    const struct msg_layer_mark *last = &g->marks[(g->next_mark + LEDGER_MARKS - 1) % LEDGER_MARKS];
    bool again = last->batch_id == batch_id && last->layer == layer;
    if (again || g->next_mark - g->first_mark == LEDGER_MARKS) return;
    g->marks[g->next_mark++ % LEDGER_MARKS] =
        (struct msg_layer_mark){.batch_id = batch_id, .layer = layer, .begin_ns = clock_now_ns()};
}

/* run_length() - entries from first on that lie side by side in a ring, at most so many. */
static uint32_t run_length(uint64_t first, uint64_t next, uint32_t ring, uint32_t most)
{
    uint64_t n = next - first, to_end = ring - first % ring;
    if (n > to_end) n = to_end;
    return n < most ? (uint32_t)n : most;
}

void ledger_load(const struct ledger *g, struct msg_heartbeat *beat)
{
    beat->accounts = &g->accounts[g->first_account % LEDGER_ACCOUNTS];
    beat->n_accounts =
        run_length(g->first_account, g->next_account, LEDGER_ACCOUNTS, MESSAGE_ACCOUNTS_MAX);
    beat->marks = &g->marks[g->first_mark % LEDGER_MARKS];
    beat->n_marks = run_length(g->first_mark, g->next_mark, LEDGER_MARKS, MESSAGE_MARKS_MAX);
}

void ledger_unload(struct ledger *g, const struct msg_heartbeat *beat)
{
    g->first_account += beat->n_accounts;
    g->first_mark += beat->n_marks;
}

bool ledger_is_due(const struct ledger *g)
{
    return g->next_account - g->first_account >= MESSAGE_ACCOUNTS_MAX ||
           g->next_mark - g->first_mark >= MESSAGE_MARKS_MAX;
}

bool ledger_is_empty(const struct ledger *g)
{
    return g->next_account == g->first_account && g->next_mark == g->first_mark;
}
