/* test_weights_pull - what is pulled is what the file has, little is under way, and a piece that is
 * not right is refused. The coordinator is played by weights_server over a link, or by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "coordinator/line/weights_server.h"
#include "engine/digest.h"
#include "tests/test_data.h"
#include "worker/weights_pull.h"

#include <stdlib.h>
#include <string.h>

enum { FILE_BYTES = 12 << 20, WINDOW_MAX = 5 << 20 };

static uint8_t *file;

/* ---- a coordinator by hand: answers from memory ---- */

struct hand {
    struct weights_pull *pull;
    struct msg_pull pulls[MESSAGE_PULLS_MAX];
    uint32_t n_pulls, sent;
    uint64_t under_way, under_way_max;
    uint32_t piece_bytes;
    void (*spoil)(struct msg_piece *piece); /* NULL: nothing */
    int fails;
};

static int ask(void *ctx, const struct msg_pull *pull, struct err *err)
{
    struct hand *h = ctx;
    (void)err;
    assert_true(h->n_pulls < MESSAGE_PULLS_MAX);
    assert_true(pull->bytes >= 1 && pull->bytes <= MESSAGE_PULL_BYTES_MAX);
    assert_true(pull->offset + pull->bytes <= FILE_BYTES);
    h->pulls[h->n_pulls++] = *pull;
    h->under_way += pull->bytes;
    if (h->under_way > h->under_way_max) h->under_way_max = h->under_way;
    return ERR_NONE;
}

static int answer(void *ctx, struct err *err)
{
    struct hand *h = ctx;
    if (h->fails != ERR_NONE) return err_set(err, (enum err_code)h->fails, "the port is closed");
    assert_true(h->n_pulls > 0);
    const struct msg_pull p = h->pulls[0];
    const uint32_t left = p.bytes - h->sent, n = left < h->piece_bytes ? left : h->piece_bytes;
    const uint8_t *bytes = file + p.offset + h->sent;
    struct msg_piece piece = {p.part, p.offset + h->sent, digest_bytes(bytes, n), bytes, n};
    h->sent += n;
    h->under_way -= n;
    if (h->sent == p.bytes) {
        memmove(h->pulls, h->pulls + 1, --h->n_pulls * sizeof *h->pulls);
        h->sent = 0;
    }
    if (h->spoil != NULL) h->spoil(&piece);
    return weights_pull_take(h->pull, &piece, err);
}

static struct weight_source open_hand(struct hand *h)
{
    const struct weights_port port = {ask, answer, h};
    assert_int_equal(weights_pull_open(&h->pull, &port, NULL), ERR_NONE);
    return weights_pull_source(h->pull);
}

/* Many small ones, an empty one, one larger than the window, and the same bytes again. */
static const struct weight_extent extents[] = {
    {NULL, 0, 0, 1},       {NULL, 0, 64, 100},       {NULL, 0, 192, 0},
    {NULL, 3, 200, 7},     {NULL, 0, 1000, 9 << 20}, {NULL, 1, 10 << 20, 1 << 20},
    {NULL, 1, 0, 3 << 20}, {NULL, 1, 5, 1},          {NULL, 1, 6, 1},
    {NULL, 1, 7, 300001},
};
enum { EXTENTS = sizeof extents / sizeof extents[0] };

static void read_all(const struct weight_source *s, size_t step)
{
    struct err err;
    uint8_t *got = malloc(step);
    if (s->begin(s->ctx, extents, EXTENTS, &err) != ERR_NONE) fail_msg("%s", err.text);
    for (size_t i = 0; i < EXTENTS; i++)
        for (uint64_t at = 0; at < extents[i].bytes;) {
            const uint64_t left = extents[i].bytes - at;
            const size_t n = left < step ? (size_t)left : step;
            if (s->read(s->ctx, got, n, &err) != ERR_NONE) fail_msg("%s", err.text);
            assert_memory_equal(got, file + extents[i].offset + at, n);
            at += n;
        }
    free(got);
}

static void what_is_pulled_is_what_the_file_has(void **state)
{
    (void)state;
    static const uint32_t pieces[] = {MESSAGE_PIECE_BYTES_MAX, 65536, 10007};
    static const size_t steps[] = {1 << 20, 12345, 4 << 20};
    for (int i = 0; i < 9; i++) {
        struct hand h = {.piece_bytes = pieces[i / 3]};
        const struct weight_source s = open_hand(&h);
        read_all(&s, steps[i % 3]);
        assert_int_equal(h.under_way, 0);
        assert_true(h.under_way_max > 3 << 20 && h.under_way_max <= WINDOW_MAX);
        read_all(&s, steps[i % 3]); /* and again */
        weights_pull_close(h.pull);
    }
}

static void many_small_extents_keep_the_number_of_pulls_in_its_limit(void **state)
{
    (void)state;
    enum { N = 1000 };
    struct weight_extent small[N];
    for (uint32_t i = 0; i < N; i++) small[i] = (struct weight_extent){NULL, 0, i * 32, 1 + i % 32};
    struct hand h = {.piece_bytes = MESSAGE_PIECE_BYTES_MAX};
    const struct weight_source s = open_hand(&h);
    assert_int_equal(s.begin(s.ctx, small, N, NULL), ERR_NONE);
    for (uint32_t i = 0; i < N; i++) {
        uint8_t got[32];
        assert_int_equal(s.read(s.ctx, got, small[i].bytes, NULL), ERR_NONE);
        assert_memory_equal(got, file + small[i].offset, small[i].bytes);
    }
    weights_pull_close(h.pull);
}

static void spoil_digest(struct msg_piece *p)
{
    p->digest ^= 1;
}

static void spoil_offset(struct msg_piece *p)
{
    p->offset += 1;
}

static void spoil_part(struct msg_piece *p)
{
    p->part += 1;
}

static void spoil_length(struct msg_piece *p)
{
    p->n_bytes = MESSAGE_PULL_BYTES_MAX + 1;
}

static void spoil_byte(struct msg_piece *p)
{
    static uint8_t other[MESSAGE_PIECE_BYTES_MAX];
    memcpy(other, p->bytes, p->n_bytes);
    other[p->n_bytes - 1] ^= 0x80;
    p->bytes = other;
}

static void a_piece_that_is_not_right_is_refused(void **state)
{
    (void)state;
    static const struct {
        void (*spoil)(struct msg_piece *piece);
        const char *text;
    } cases[] = {{spoil_digest, "damaged on the way"},
                 {spoil_byte, "damaged on the way"},
                 {spoil_offset, "came from byte 1 of part 0, want at most 1 from byte 0 of part 0"},
                 {spoil_part, "came from byte 0 of part 1, want"},
                 {spoil_length, "1048577 bytes came from byte 0"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct hand h = {.piece_bytes = MESSAGE_PIECE_BYTES_MAX, .spoil = cases[i].spoil};
        const struct weight_source s = open_hand(&h);
        struct err err;
        uint8_t got[1];
        assert_int_equal(s.begin(s.ctx, extents, EXTENTS, &err), ERR_NONE);
        assert_int_equal(s.read(s.ctx, got, 1, &err), ERR_PEER);
        if (strstr(err.text, cases[i].text) == NULL) fail_msg("%s", err.text);
        weights_pull_close(h.pull);
    }
}

static void a_piece_that_nobody_asked_for_is_refused(void **state)
{
    (void)state;
    struct hand h = {0};
    open_hand(&h);
    struct err err;
    const struct msg_piece piece = {0, 0, digest_bytes(file, 8), file, 8};
    assert_int_equal(weights_pull_take(h.pull, &piece, &err), ERR_PEER);
    assert_non_null(strstr(err.text, "nobody asked for"));
    weights_pull_close(h.pull);
}

static void an_error_of_the_port_ends_the_read(void **state)
{
    (void)state;
    struct hand h = {.piece_bytes = 100};
    const struct weight_source s = open_hand(&h);
    struct err err;
    uint8_t got[100];
    assert_int_equal(s.begin(s.ctx, extents, EXTENTS, &err), ERR_NONE);
    assert_int_equal(s.read(s.ctx, got, 1, &err), ERR_NONE);
    h.fails = ERR_STALL;
    assert_int_equal(s.read(s.ctx, got, 100, &err), ERR_STALL);
    weights_pull_close(h.pull);
}

/* ---- the coordinator's side ---- */

struct served {
    struct link *ends[2];
    struct gguf *g;
    struct codec *here, *there;
    struct weights_server *server;
    struct weights_pull *pull;
    bool holds;
};

static int ask_served(void *ctx, const struct msg_pull *pull, struct err *err)
{
    struct served *s = ctx;
    return weights_server_take(s->server, 1, pull, err);
}

static int wait_served(void *ctx, struct err *err)
{
    struct served *s = ctx;
    int from;
    const uint8_t *frame;
    size_t len;
    struct message m;
    struct frame_view view;
    if (s->holds) link_receive_done(s->ends[1], LINK_WEIGHTS);
    s->holds = false;
    TRY(weights_server_work(s->server, err));
    TRY(link_receive(s->ends[1], LINK_WEIGHTS, &from, &frame, &len, err));
    if (frame == NULL) return ERR_NONE;
    s->holds = true;
    TRY(codec_unpack(s->there, frame, len, &m, &view, err));
    return weights_pull_take(s->pull, &m.u.piece, err);
}

static void open_served(struct served *s, const char *path)
{
    struct err err;
    *s = (struct served){0};
    const struct weights_port port = {ask_served, wait_served, s};
    assert_int_equal(gguf_open(&s->g, path, &err), ERR_NONE);
    assert_int_equal(link_local_open(s->ends, 2, LINK_IDLE_SLEEP, &err), ERR_NONE);
    assert_int_equal(codec_open(&s->here, 16384, 0, &err), ERR_NONE);
    assert_int_equal(codec_open(&s->there, 16384, 0, &err), ERR_NONE);
    assert_int_equal(weights_server_open(&s->server, s->g, s->ends[0], s->here, &err), ERR_NONE);
    assert_int_equal(link_open_weights(s->ends[1], &err), ERR_NONE);
    assert_int_equal(weights_pull_open(&s->pull, &port, &err), ERR_NONE);
}

static void close_served(struct served *s)
{
    if (s->holds) link_receive_done(s->ends[1], LINK_WEIGHTS);
    link_close_weights(s->ends[1]);
    weights_pull_close(s->pull);
    weights_server_close(s->server);
    codec_close(s->here);
    codec_close(s->there);
    for (int i = 0; i < 2; i++) link_close(s->ends[i], false);
    gguf_close(s->g);
}

static void the_server_sends_every_tensor_of_its_file(void **state)
{
    (void)state;
    SKIP_WITHOUT(path, "families/llama.gguf");
    struct served s;
    struct err err;
    open_served(&s, path);
    const struct msg_model m = weights_server_describe(s.server);
    assert_int_equal(m.n_parts, 1);
    assert_int_equal(m.file_bytes[0], gguf_file_bytes(s.g));
    const struct weight_source source = weights_pull_source(s.pull);
    for (uint64_t i = 0; i < gguf_tensor_count(s.g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(s.g, i);
        const struct weight_extent e = {t, t->part, t->offset, t->bytes};
        uint8_t *got = malloc(t->bytes);
        assert_int_equal(source.begin(source.ctx, &e, 1, &err), ERR_NONE);
        if (source.read(source.ctx, got, t->bytes, &err) != ERR_NONE) fail_msg("%s", err.text);
        assert_memory_equal(got, t->data, t->bytes);
        free(got);
    }
    close_served(&s);
}

static void the_server_refuses_what_no_file_has_and_too_many_pulls(void **state)
{
    (void)state;
    SKIP_WITHOUT(path, "families/llama.gguf");
    struct served s;
    struct err err;
    open_served(&s, path);
    const uint64_t end = gguf_file_bytes(s.g);
    const struct msg_pull bad[] = {
        {1, 0, 1}, {0, end, 1}, {0, end - 1, 2}, {0, INT64_MAX, 1 << 20}, {511, 0, 1}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(weights_server_take(s.server, 1, &bad[i], &err), ERR_PEER);
    const struct msg_pull good = {0, end - 1, 1};
    for (int i = 0; i < MESSAGE_PULLS_MAX; i++)
        assert_int_equal(weights_server_take(s.server, 1, &good, &err), ERR_NONE);
    assert_int_equal(weights_server_take(s.server, 1, &good, &err), ERR_PEER);
    assert_non_null(strstr(err.text, "33 times"));
    close_served(&s);
}

int main(void)
{
    file = malloc(FILE_BYTES);
    if (file == NULL) return 1;
    uint64_t x = 1;
    for (size_t i = 0; i < FILE_BYTES; i++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        file[i] = (uint8_t)(x >> 56);
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_pulled_is_what_the_file_has),
        cmocka_unit_test(many_small_extents_keep_the_number_of_pulls_in_its_limit),
        cmocka_unit_test(a_piece_that_is_not_right_is_refused),
        cmocka_unit_test(a_piece_that_nobody_asked_for_is_refused),
        cmocka_unit_test(an_error_of_the_port_ends_the_read),
        cmocka_unit_test(the_server_sends_every_tensor_of_its_file),
        cmocka_unit_test(the_server_refuses_what_no_file_has_and_too_many_pulls),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    free(file);
    return failed;
}
