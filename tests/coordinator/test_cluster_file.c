/* test_cluster_file - descriptions of clusters are read, hostile ones refused with file and line;
 * and the stored ones give the plans that are kept beside them.
 *
 *   test_cluster_file [write]     write: renew the plans in tests/data/clusters, to be looked at */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "coordinator/front/cluster_file.h"
#include "coordinator/front/plan_report.h"
#include "tests/engine/make_gguf.h"
#include "tests/test_data.h"

#include <math.h>

enum { RANKS_MAX = 100 };

static int parse(struct cluster *c, const char *text, struct err *err)
{
    return cluster_file_parse(c, strdup(text), "F", RANKS_MAX, err);
}

/* ---- reading ---- */

static void what_a_line_says_holds_for_each_rank_of_the_host(void **state)
{
    (void)state;
    struct cluster c;
    struct err err;
    const char *text = "# a comment\n\n"
                       "a ranks=2 threads=3 memory=2GiB read=1.5 gops=20 link=30,0.5 local=1,4 "
                       "cpus=5 few=10 busy=0.5,0.75 # more\r\n"
                       "b\tread=2 gops=30 memory=1000";
    assert_int_equal(parse(&c, text, &err), ERR_NONE);
    assert_int_equal(c.n, 3);
    for (int i = 0; i < 2; i++) {
        const struct planner_rank *r = &c.ranks[i];
        assert_string_equal(r->host, "a");
        assert_int_equal(r->threads, 3);
        assert_int_equal(r->cpus, 5);
        assert_true(r->busy.read == 0.5 && r->busy.ops == 0.75);
        assert_int_equal(r->may, 1 << 30);
        assert_true(r->speed.read_bytes_s == 1.5e9 && r->speed.ops_s == 20e9);
        assert_true(r->speed.few_ops_s == 10e9);
        assert_true(r->away.us == 30 && r->away.bytes_s == 0.5e9);
        assert_true(r->local.us == 1 && r->local.bytes_s == 4e9);
    }
    assert_string_equal(c.ranks[2].host, "b");
    assert_int_equal(c.ranks[2].may, 1000);
    assert_int_equal(c.ranks[2].threads, 1);
    assert_int_equal(c.ranks[2].cpus, 0);
    assert_true(c.ranks[2].busy.read == 1 && c.ranks[2].busy.ops == 1);
    cluster_free(&c);
}

static void a_star_sets_what_holds_from_there_on(void **state)
{
    (void)state;
    struct cluster c;
    struct err err;
    assert_int_equal(parse(&c, "* read=1 gops=1 threads=4\na\n* threads=8\nb threads=2\nc\n", &err),
                     ERR_NONE);
    assert_int_equal(c.n, 3);
    assert_int_equal(c.ranks[0].threads, 4);
    assert_int_equal(c.ranks[1].threads, 2);
    assert_int_equal(c.ranks[2].threads, 8);
    assert_true(c.ranks[0].may == UINT64_MAX);
    cluster_free(&c);
}

static void bytes_may_have_any_usual_unit(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t want;
    } cases[] = {{"12", 12},
                 {"12B", 12},
                 {"4K", 4096},
                 {"4KiB", 4096},
                 {"1.5M", 1536 << 10},
                 {"3GiB", UINT64_C(3) << 30},
                 {"1T", UINT64_C(1) << 40}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[80];
        struct cluster c;
        struct err err;
        snprintf(text, sizeof text, "a read=1 gops=1 memory=%s", cases[i].text);
        assert_int_equal(parse(&c, text, &err), ERR_NONE);
        assert_int_equal(c.ranks[0].may, cases[i].want);
        cluster_free(&c);
    }
}

static void hostile_files_are_refused_with_file_and_line(void **state)
{
    (void)state;
    static const struct {
        const char *text, *error;
    } cases[] = {
        {"", "F names no host"},
        {"# nothing\n\n", "F names no host"},
        {"* read=1 gops=1", "F names no host"},
        {"a", "F:1: a needs read= and gops="},
        {"\na read=1", "F:2: a needs read= and gops="},
        {"a read=1 gops=1 speed=3", "F:1: 'speed=3' is none of"},
        {"a read=1 gops=1 read", "F:1: 'read' is none of"},
        {"a read=-1 gops=1", "'read=-1' is no value"},
        {"a read=0 gops=1", "'read=0' is no value"},
        {"a read=nan gops=1", "'read=nan' is no value"},
        {"a read=inf gops=1", "'read=inf' is no value"},
        {"a read=1e999 gops=1", "'read=1e999' is no value"},
        {"a read=0x10 gops=1", "'read=0x10' is no value"},
        {"a read=1x gops=1", "'read=1x' is no value"},
        {"a read= gops=1", "'read=' is no value"},
        {"a read=1 gops=1 ranks=0", "'ranks=0' is no value"},
        {"a read=1 gops=1 ranks=1.5", "'ranks=1.5' is no value"},
        {"a read=1 gops=1 ranks=4294967297", "'ranks=4294967297' is no value"},
        {"a read=1 gops=1 ranks=101", "F:1: more than 100 ranks"},
        {"* read=1 gops=1\na ranks=99\nb ranks=2", "F:3: more than 100 ranks"},
        {"a read=1 gops=1 memory=0", "'memory=0' is no value"},
        {"a read=1 gops=1 memory=3XiB", "'memory=3XiB' is no value"},
        {"a read=1 gops=1 memory=3GiBs", "'memory=3GiBs' is no value"},
        {"a read=1 gops=1 memory=9999999999T", "'memory=9999999999T' is no value"},
        {"a read=1 gops=1 cpus=0", "'cpus=0' is no value"},
        {"a read=1 gops=1 busy=1", "'busy=1' is no value"},
        {"a read=1 gops=1 busy=0,1", "'busy=0,1' is no value"},
        {"a read=1 gops=1 busy=1,1.1", "'busy=1,1.1' is no value"},
        {"a read=1 gops=1 busy=1,nan", "'busy=1,nan' is no value"},
        {"a read=1 gops=1 link=3", "'link=3' is no value"},
        {"a read=1 gops=1 link=3,", "'link=3,' is no value"},
        {"a read=1 gops=1 link=,3", "'link=,3' is no value"},
        {"a read=1 gops=1 link=3,0", "'link=3,0' is no value"},
        {"a read=1 gops=1 link=3,4,5", "'link=3,4,5' is no value"},
        {"a read=1 gops=1 link=99999999,1", "is no value"},
        {"a\x01 read=1 gops=1", "F:1: a line begins with a host's name"},
        {"\xff\xfe read=1 gops=1", "F:1: a line begins with a host's name"},
        {"read=1 gops=1", "F:1: a line begins with a host's name"},
        {"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa read=1 gops=1",
         "F:1: a line begins with a host's name of up to 64 characters"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct cluster c;
        struct err err = {0};
        if (parse(&c, cases[i].text, &err) != ERR_FILE) fail_msg("taken: %s", cases[i].text);
        if (strstr(err.text, cases[i].error) == NULL) fail_msg("%s: %s", cases[i].text, err.text);
        assert_null(c.ranks);
    }
}

static void what_is_written_is_read_again(void **state)
{
    (void)state;
    struct cluster c, again;
    struct err err;
    assert_int_equal(parse(&c,
                           "* read=2.5 gops=300 link=40,0.11 local=1,6 threads=4 memory=8GiB\n"
                           "a ranks=2 cpus=7 few=125 busy=0.5,0.625\nb\na threads=2\n",
                           &err),
                     ERR_NONE);
    char *text = NULL;
    size_t len;
    FILE *f = open_memstream(&text, &len);
    cluster_file_write(f, c.ranks, c.n);
    fclose(f);
    assert_int_equal(cluster_file_parse(&again, text, "F", RANKS_MAX, &err), ERR_NONE);
    assert_int_equal(again.n, c.n);
    for (uint32_t i = 0; i < c.n; i++) {
        const struct planner_rank *x = &c.ranks[i], *y = &again.ranks[i];
        assert_string_equal(x->host, y->host);
        assert_int_equal(x->threads, y->threads);
        assert_int_equal(x->may, y->may);
        assert_true(fabs(x->speed.read_bytes_s / y->speed.read_bytes_s - 1) < 1e-3);
        assert_true(fabs(x->away.bytes_s / y->away.bytes_s - 1) < 1e-3);
        assert_true(x->local.us == y->local.us);
        assert_true(x->speed.few_ops_s == y->speed.few_ops_s);
        assert_int_equal(x->cpus, y->cpus);
        assert_true(x->busy.read == y->busy.read && x->busy.ops == y->busy.ops);
    }
    cluster_free(&c);
    cluster_free(&again);
}

/* ---- stored clusters ---- */

static const struct make_llama llama_7b = {
    .n_layer = 32, .n_embd = 4096, .n_ff = 11008, .n_head = 32, .n_vocab = 32000, .n_ctx = 4096};
static const struct make_llama llama_8b = {.n_layer = 32,
                                           .n_embd = 4096,
                                           .n_ff = 14336,
                                           .n_head = 32,
                                           .n_head_kv = 8,
                                           .n_vocab = 128256,
                                           .n_ctx = 131072};
static const struct make_llama llama_70b = {.n_layer = 80,
                                            .n_embd = 8192,
                                            .n_ff = 28672,
                                            .n_head = 64,
                                            .n_head_kv = 8,
                                            .n_vocab = 128256,
                                            .n_ctx = 131072};
static const struct make_llama llama_405b = {.n_layer = 126,
                                             .n_embd = 16384,
                                             .n_ff = 53248,
                                             .n_head = 128,
                                             .n_head_kv = 8,
                                             .n_vocab = 128256,
                                             .n_ctx = 131072};

static const struct stored {
    const char *cluster, *plan, *name;
    const struct make_llama *shape;
    uint32_t format, n_ctx, n_seqs;
} stored[] = {
    {"laptop", "laptop", "8B, Q8_0", &llama_8b, FORMAT_Q8_0, 8192, 1},
    {"two-desktops", "two-desktops", "8B, Q8_0", &llama_8b, FORMAT_Q8_0, 8192, 4},
    {"small-vm", "small-vm", "7B, Q4_0", &llama_7b, FORMAT_Q4_0, 1024, 8},
    {"boards", "boards", "7B, Q4_0", &llama_7b, FORMAT_Q4_0, 2048, 1},
    {"boards", "boards-70b", "70B, Q4_0", &llama_70b, FORMAT_Q4_0, 2048, 1},
    {"mixed", "mixed", "70B, Q4_0", &llama_70b, FORMAT_Q4_0, 8192, 8},
    {"rack", "rack", "70B, F16", &llama_70b, FORMAT_F16, 32768, 32},
    {"rack", "rack-405b", "405B, Q8_0", &llama_405b, FORMAT_Q8_0, 16384, 32},
    {"slurm64", "slurm64", "405B, F16", &llama_405b, FORMAT_F16, 131072, 32},
};

static bool renews;

/* plan_text() - as the command prints it, or its error. malloc'ed. */
static char *plan_text(const struct stored *s, const struct cluster *c)
{
    struct make_llama shape = *s->shape;
    struct make_gguf file;
    struct model *m;
    struct planner *p = NULL;
    struct err err = {0};
    struct layer_range ranges[RANKS_MAX];
    char *text;
    size_t len;
    FILE *f = open_memstream(&text, &len);
    shape.format = s->format;
    make_llama_begin(&file, &shape);
    if (model_open(&m, make_gguf_write(&file), &err) != ERR_NONE) fail_msg("%s", err.text);
    const struct capacity_wish wish = {
        .model = m, .n_ctx = s->n_ctx, .n_seqs = s->n_seqs, .tokens_only = true};
    assert_int_equal(planner_open(&p, &wish, c->ranks, c->n, &err), ERR_NONE);
    if (planner_split(p, ranges, &err) == ERR_NONE) {
        struct plan_report r = {.model = m,
                                .name = s->name,
                                .planner = p,
                                .ranks = c->ranks,
                                .ranges = ranges,
                                .n_ranks = c->n,
                                .first_rank = 1};
        assert_int_equal(planner_largest_context(p, &r.largest_ctx, &err), ERR_NONE);
        plan_report_print(f, &r);
    } else {
        fprintf(f, "%s\n", err.text);
    }
    fclose(f);
    planner_close(p);
    model_close(m);
    make_gguf_end(&file);
    return text;
}

static void check_or_renew(const struct stored *s, const char *text)
{
    char path[256], kept[32768];
    snprintf(path, sizeof path, TEST_DATA_COMMITTED "/clusters/%s.plan", s->plan);
    FILE *f = fopen(path, renews ? "w" : "r");
    if (f == NULL) fail_msg("%s cannot be opened", path);
    if (renews) {
        fputs(text, f);
    } else {
        kept[fread(kept, 1, sizeof kept - 1, f)] = '\0';
        if (strcmp(kept, text) != 0) fail_msg("%s keeps another plan than\n%s", path, text);
    }
    fclose(f);
}

static void stored_clusters_give_the_plans_beside_them(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof stored / sizeof stored[0]; i++) {
        char path[256];
        struct cluster c;
        struct err err;
        snprintf(path, sizeof path, TEST_DATA_COMMITTED "/clusters/%s.cluster", stored[i].cluster);
        if (cluster_file_read(&c, path, RANKS_MAX, &err) != ERR_NONE) fail_msg("%s", err.text);
        char *text = plan_text(&stored[i], &c);
        check_or_renew(&stored[i], text);
        free(text);
        cluster_free(&c);
    }
}

int main(int argc, char **argv)
{
    renews = argc > 1 && strcmp(argv[1], "write") == 0;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_a_line_says_holds_for_each_rank_of_the_host),
        cmocka_unit_test(a_star_sets_what_holds_from_there_on),
        cmocka_unit_test(bytes_may_have_any_usual_unit),
        cmocka_unit_test(hostile_files_are_refused_with_file_and_line),
        cmocka_unit_test(what_is_written_is_read_again),
        cmocka_unit_test(stored_clusters_give_the_plans_beside_them),
    };
    return cmocka_run_group_tests_name("cluster_file", tests, NULL, NULL);
}
