/* probe - measure the hosts of a line, and write down what they are.
 *
 * The line is not opened: its workers say HELLO and are measured, and that is all.
 * Stations: line/roster (who is there), line/measure (how fast), cluster_file (the text). */
#include "coordinator/front/front.h"

#include "coordinator/front/cluster_file.h"
#include "coordinator/front/output.h"
#include "coordinator/line/line.h"
#include "coordinator/line/measure.h"
#include "engine/log.h"
#include "engine/plan.h"
#include "engine/quant_formats.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { BYTES_UNKNOWN = 512 << 20 }; /* of weights, where no model is given */

struct probing {
    const struct settings *settings;
    struct measure_wish wish;
    struct link *link;
    struct journal *journal;
    struct roster *roster;
    struct planner_rank *ranks; /* [workers] */
    uint32_t n;
};

/* read_model() - its number format and its bytes. */
static int read_model(struct probing *p, struct err *err)
{
    struct model *m;
    struct plan_model_work work;
    TRY(model_open(&m, p->settings->model, err));
    int rc = plan_work_read(&work, m, KV_F16, err);
    if (rc == ERR_NONE) {
        p->wish.format = work.main_format;
        p->wish.weight_bytes = plan_stage_bytes(m, (struct layer_range){0, m->hp.n_layer});
        plan_work_free(&work);
    }
    model_close(m);
    return rc;
}

static int write_file(const struct probing *p, struct err *err)
{
    const char *path = p->settings->out;
    FILE *out = path == NULL || strcmp(path, "-") == 0 ? stdout : fopen(path, "w");
    CHECK(out != NULL, err, ERR_FILE, "%s: %s", path, strerror(errno));
    cluster_file_write(out, p->ranks, p->n);
    if (out == stdout) return output_flush(err);
    const bool failed = ferror(out) != 0;
    CHECK((fclose(out) == 0) & !failed, err, ERR_FILE, "%s cannot be written: %s", path,
          strerror(errno));
    return ERR_NONE;
}

static int probe(struct probing *p, const struct line_starter *starter, struct err *err)
{
    const struct settings *s = p->settings;
    p->wish = (struct measure_wish){
        .format = FORMAT_Q8_0, .weight_bytes = BYTES_UNKNOWN, .threads = s->threads};
    if (s->model != NULL) TRY(read_model(p, err));
    line_catch_signals();
    log_set_who("coordinator");
    TRY(starter->start(starter->ctx, s, &p->link, err));
    p->n = (uint32_t)link_size(p->link) - 1;
    p->ranks = calloc(p->n, sizeof *p->ranks);
    CHECK(p->ranks != NULL, err, ERR_MEMORY, "no memory for %u ranks", p->n);
    TRY(journal_open(&p->journal, p->n, JOURNAL_SHORT, err));
    TRY(roster_open(&p->roster, p->link, p->journal, 0, err));
    TRY(roster_await(p->roster, ROSTER_HELLO, NULL, NULL, err));
    TRY(measure_ranks(p->roster, p->link, &p->wish, &planner_usual, p->ranks, err));
    return write_file(p, err);
}

int probe_run(const struct settings *settings, const struct line_starter *starter, struct err *err)
{
    struct probing p = {.settings = settings};
    const int rc = probe(&p, starter, err);
    if (p.roster != NULL) roster_stop(p.roster, 0);
    roster_close(p.roster);
    journal_close(p.journal);
    free(p.ranks);
    return rc;
}
