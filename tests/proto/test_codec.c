/* test_codec - messages come out of frames as they went in, and no bytes of a peer do any harm. */
#include "proto/codec.h"
#include "proto/frame_sizes.h"
#include "random_message.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { FRAME_BYTES = 1 << 17, ROUNDS = 60 };

static struct random_store store;
static _Alignas(64) uint8_t frame[FRAME_BYTES];

static struct codec *open_codec_of(size_t head_max, uint32_t n_vocab)
{
    struct codec *c = NULL;
    assert_int_equal(codec_open(&c, head_max, n_vocab, NULL), ERR_NONE);
    return c;
}

static struct codec *open_codec(size_t head_max)
{
    return open_codec_of(head_max, RANDOM_VOCAB);
}

/* The first len bytes of a frame in exactly their memory, so that a read beyond them is seen. */
static uint8_t *exact_copy(const uint8_t *from, size_t len)
{
    void *copy = NULL;
    assert_int_equal(posix_memalign(&copy, FRAME_ALIGN, len > 0 ? len : 1), 0);
    memcpy(copy, from, len);
    return copy;
}

static size_t pack(struct codec *c, const struct message *m)
{
    struct err err = {0};
    size_t len = 0;
    uint64_t rows = m->type == MESSAGE_BATCH ? m->u.batch.batch.n_rows * 20ul : 0;
    int rc = codec_pack(c, m, rows, frame, sizeof frame, &len, &err);
    if (rc != ERR_NONE) fail_msg("%s", err.text);
    return len;
}

static void every_message_comes_back_as_it_was(void **state)
{
    (void)state;
    struct codec *c = open_codec(65536);
    for (int type = MESSAGE_HELLO; type <= MESSAGE_RESULT; type++) {
        for (int round = 0; round < ROUNDS; round++) {
            struct message sent, got;
            struct frame_view view;
            struct err err = {0};
            random_message(&store, (enum message_type)type, &sent);
            size_t len = pack(c, &sent);
            uint8_t *copy = exact_copy(frame, len);
            int rc = codec_unpack(c, copy, len, &got, &view, &err);
            if (rc != ERR_NONE) fail_msg("type %d: %s", type, err.text);
            assert_true(same_message(&sent, &got));
            /* The next station packs what it unpacked. */
            if (type == MESSAGE_BATCH) assert_int_equal(pack(c, &got), len);
            if (type == MESSAGE_BATCH)
                assert_memory_equal(frame, copy, FRAME_HEADER_BYTES + view.head_bytes);
            free(copy);
        }
    }
    codec_close(c);
}

/* Any outcome but a crash or an over-read will do; an error has a text. */
static int unpack_hostile(struct codec *c, const uint8_t *bytes, size_t len)
{
    struct message got;
    struct frame_view view;
    struct err err = {0};
    uint8_t *copy = exact_copy(bytes, len);
    int rc = codec_unpack(c, copy, len, &got, &view, &err);
    free(copy);
    assert_true(rc == ERR_NONE || rc == ERR_PEER || rc == ERR_DISAGREE);
    if (rc != ERR_NONE) assert_true(err.text[0] != '\0' && strchr(err.text, '\n') == NULL);
    return rc;
}

static void a_cut_frame_is_refused_at_every_length(void **state)
{
    (void)state;
    struct codec *c = open_codec(65536);
    for (int type = MESSAGE_HELLO; type <= MESSAGE_RESULT; type++) {
        struct message m;
        random_message(&store, (enum message_type)type, &m);
        size_t len = pack(c, &m);
        for (size_t cut = 0; cut < len; cut++)
            assert_int_equal(unpack_hostile(c, frame, cut), ERR_PEER);
    }
    codec_close(c);
}

/* A head that is cut, with a header that says so: protobuf has to notice, or the lists do not agree
 * any more. */
static void a_cut_head_does_no_harm_at_any_length(void **state)
{
    (void)state;
    struct codec *c = open_codec(65536);
    for (int type = MESSAGE_HELLO; type <= MESSAGE_RESULT; type++) {
        struct message m;
        random_message(&store, (enum message_type)type, &m);
        size_t len = pack(c, &m);
        for (size_t cut = len - 1; cut >= FRAME_HEADER_BYTES; cut--) {
            frame_write_header(frame, m.type, (uint32_t)(cut - FRAME_HEADER_BYTES), 0);
            unpack_hostile(c, frame, cut);
        }
    }
    codec_close(c);
}

static void a_changed_byte_does_no_harm_wherever_it_is(void **state)
{
    (void)state;
    struct codec *c = open_codec(65536);
    for (int type = MESSAGE_HELLO; type <= MESSAGE_RESULT; type++) {
        struct message m;
        random_message(&store, (enum message_type)type, &m);
        size_t len = pack(c, &m);
        for (size_t at = 0; at < len; at++) {
            uint8_t was = frame[at];
            uint8_t tries[4] = {(uint8_t)(was ^ 0x80), (uint8_t)(was ^ 1), 0xff,
                                (uint8_t)random_next(&store)};
            for (int i = 0; i < 4; i++) {
                frame[at] = tries[i];
                int rc = unpack_hostile(c, frame, len);
                if (at < FRAME_HEADER_BYTES && tries[i] != was) assert_int_not_equal(rc, ERR_NONE);
            }
            frame[at] = was;
        }
    }
    codec_close(c);
}

static void random_heads_do_no_harm(void **state)
{
    (void)state;
    struct codec *c = open_codec(4096);
    for (int round = 0; round < 20000; round++) {
        enum message_type type = (enum message_type)(1 + random_next(&store) % MESSAGE_RESULT);
        size_t n = random_next(&store) % 200;
        for (size_t i = 0; i < n; i++) frame[FRAME_HEADER_BYTES + i] = (uint8_t)random_next(&store);
        /* Mostly keys and lengths that make sense, so that the walk goes on. */
        for (size_t i = 0; i + 1 < n && random_next(&store) % 8 != 0;
             i += 2 + frame[FRAME_HEADER_BYTES + i + 1]) {
            frame[FRAME_HEADER_BYTES + i] = (uint8_t)((1 + random_next(&store) % 15) << 3 | 2);
            frame[FRAME_HEADER_BYTES + i + 1] = (uint8_t)(random_next(&store) % 16);
        }
        frame_write_header(frame, type, (uint32_t)n, 0);
        unpack_hostile(c, frame, FRAME_HEADER_BYTES + n);
    }
    codec_close(c);
}

/* Heads by hand: what only a peer with bad intentions sends. */
static const struct {
    enum message_type type;
    size_t n;
    uint8_t head[24];
    const char *text;
} hostile_heads[] = {
    {MESSAGE_STOP, 2, {0x10, 1}, "STOP head has the unknown field 2"},
    {MESSAGE_HELLO, 4, {0x18, 1, 0x18, 2}, "HELLO head has field 3 twice"},
    {MESSAGE_HELLO, 4, {0x80, 0x80, 0x80, 0x80}, "HELLO head is cut at byte 0 of 4"},
    {MESSAGE_HELLO, 2, {0x0a, 0x7f}, "HELLO head is malformed at byte 0 of 2"},
    {MESSAGE_HELLO,
     11,
     {0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01},
     "malformed at byte 0"},
    {MESSAGE_HELLO, 2, {0x0b, 0x0c}, "HELLO head is malformed at byte 0 of 2"},
    {MESSAGE_HELLO, 2, {0x18, 0x80}, "HELLO head is malformed at byte 0 of 2"},
    {MESSAGE_HELLO, 2, {0x30, 100}, "HELLO.isa is 100"},
    {MESSAGE_LOAD, 0, {0}, "LOAD.n_stages is 0, want 1 to 4095"},
    {MESSAGE_LOAD, 4, {0x08, 3, 0x10, 3}, "LOAD.stage is 3, want 0 to 2"},
    {MESSAGE_LOAD, 6, {0x10, 3, 0x18, 4, 0x20, 4}, "LOAD.layer_first is 4, want 0 to 3"},
    {MESSAGE_LOAD,
     23,
     {0x10, 1, 0x20, 1, 0x38, 1, 0x40, 1, 0x4a, 4, 1, 1,
      1,    1, 0x50, 1, 0x58, 1, 0x60, 1, 0xb0, 1, 3},
     "LOAD.wire_format is 3, want 0 to 2"},
    {MESSAGE_READY, 3, {0x3a, 1, 1}, "READY.digest has 0 entries, want 1"},
    {MESSAGE_READY, 19, {0x3a, 17}, "READY.digest_tensor entries is 17, want 0 to 16"},
    {MESSAGE_HEARTBEAT, 0, {0}, "HEARTBEAT.state is 0, want 1 to 4"},
    {MESSAGE_HEARTBEAT,
     12,
     {0x08, 1, 0x32, 8},
     "HEARTBEAT.account_received_ns has 0 entries, want 1"},
    {MESSAGE_HEARTBEAT, 13, {0x08, 1, 0x92, 0x01, 8}, "HEARTBEAT.mark_layer has 0 entries, want 1"},
    {MESSAGE_ERROR, 2, {0x08, 100}, "ERROR.code is 100"},
    {MESSAGE_PROBE, 2, {0x10, 1}, "PROBE.rounds is 1, want 0"},
    {MESSAGE_PROBE, 3, {0x0a, 1, 9}, "PROBE.rounds is 0, want 1 to 10000"},
    {MESSAGE_PROBE, 5, {0x0a, 1, 0, 0x10, 1}, "PROBE.bytes is 0, want 1 to 2147483647"},
    {MESSAGE_PROBE, 7, {0x0a, 1, 9, 0x10, 1, 0x18, 2}, "PROBE.threads is 2, want 0"},
    {MESSAGE_PROBE, 2, {0x28, 100}, "PROBE.isa is 100"},
    {MESSAGE_HELLO, 2, {0x70, 2}, "HELLO.wants_model is 2"},
    {MESSAGE_MODEL, 0, {0}, "MODEL.header_bytes entries is 0, want 1 to 512"},
    {MESSAGE_MODEL, 10, {0x12, 8, 1}, "MODEL.file_bytes has 0 entries, want 1"},
    {MESSAGE_MODEL,
     20,
     {0x12, 8, 0, 2, 0, 0, 0, 0, 0, 0, 0x1a, 8, 255, 1},
     "MODEL.header_bytes is 512, want 1 to 511"},
    {MESSAGE_MODEL,
     20,
     {0x12, 8, 0, 0, 0, 0, 1, 0, 0, 0, 0x1a, 8, 0, 0, 0, 0, 2},
     "MODEL.header_bytes is 4294967296, want 1 to 1073741824"},
    {MESSAGE_PULL, 2, {0x08, 1}, "PULL.bytes is 0, want 1 to 1048576"},
    {MESSAGE_PULL, 6, {0x18, 0x81, 0x80, 0x40, 0x08, 1}, "PULL.bytes is 1048577"},
    {MESSAGE_PULL, 3, {0x08, 0x80, 0x04}, "PULL.part is 512, want 0 to 511"},
    {MESSAGE_PIECE, 2, {0x08, 1}, "PIECE bytes is 0, want 1 to 262016"},
    {MESSAGE_BATCH, 0, {0}, "BATCH.id is 0"},
    {MESSAGE_BATCH, 4, {0x08, 1, 0x10, 2}, "BATCH.release_before is 2"},
    {MESSAGE_BATCH, 5, {0x08, 1, 0xd0, 0x01, 2}, "BATCH.as_f32 is 2, want 0 to 1"},
    {MESSAGE_BATCH, 5, {0x08, 1, 0x1a, 1, 7}, "BATCH.seq has 0 entries, want 1"},
    {MESSAGE_BATCH, 8, {0x08, 1, 0x1a, 1, 7, 0x22, 1, 0}, "BATCH.pos has 0 entries, want 1"},
    {MESSAGE_BATCH,
     11,
     {0x08, 1, 0x1a, 1, 7, 0x22, 1, 0, 0x2a, 1, 0},
     "BATCH.wanted has 0 entries, want 1"},
    {MESSAGE_BATCH,
     14,
     {0x08, 1, 0x1a, 1, 7, 0x22, 1, 0, 0x2a, 1, 0, 0x32, 1, 1},
     "BATCH.need_temperature has 0 entries, want 1"},
    {MESSAGE_BATCH, 5, {0x08, 1, 0x3a, 1, 0}, "BATCH.command_seq has 0 entries, want 1"},
    {MESSAGE_BATCH, 6, {0x08, 1, 0x92, 0x01, 1, 0}, "BATCH.adjust_repeat has 0 entries, want 1"},
    {MESSAGE_BATCH,
     6,
     {0x08, 1, 0xaa, 0x01, 1, 0},
     "BATCH.ids has 1 entries, but its counts add up to 0"},
    {MESSAGE_BATCH, 6, {0x08, 1, 0xba, 0x01, 1, 0}, "BATCH.fetch_wanted has 1 entries, want 0"},
    {MESSAGE_RESULT, 0, {0}, "RESULT.id is 0"},
    {MESSAGE_RESULT, 12, {0x08, 1, 0x12, 8}, "RESULT.pair_count has 0 entries, want 1"},
    {MESSAGE_RESULT, 5, {0x08, 1, 0x32, 1, 0}, "RESULT.score has 0 entries, want 1"},
    {MESSAGE_RESULT,
     8,
     {0x08, 1, 0x42, 4, 0, 0, 0, 0},
     "RESULT.id_score has 1 entries, but its counts add up to 0"},
};

static void unpack_and_expect(struct codec *c, size_t len, const char *text)
{
    struct message got;
    struct frame_view view;
    struct err err = {0};
    uint8_t *copy = exact_copy(frame, len);
    assert_int_equal(codec_unpack(c, copy, len, &got, &view, &err), ERR_PEER);
    if (strstr(err.text, text) == NULL) fail_msg("want \"%s\", the text is: %s", text, err.text);
    free(copy);
}

static void a_hostile_head_is_refused_by_name(void **state)
{
    (void)state;
    struct codec *c = open_codec(4096);
    for (size_t i = 0; i < sizeof hostile_heads / sizeof hostile_heads[0]; i++) {
        size_t n = hostile_heads[i].n;
        memcpy(frame + FRAME_HEADER_BYTES, hostile_heads[i].head, n);
        frame_write_header(frame, hostile_heads[i].type, (uint32_t)n, 0);
        unpack_and_expect(c, FRAME_HEADER_BYTES + n, hostile_heads[i].text);
    }
    memset(frame, 0, 8192);
    frame_write_header(frame, MESSAGE_BATCH, 4097, 0);
    unpack_and_expect(c, FRAME_HEADER_BYTES + 4097,
                      "BATCH has a head of 4097 bytes, the line's limit is 4096");
    frame_write_header(frame, MESSAGE_STOP, 0, 64);
    unpack_and_expect(c, 128, "STOP has 64 bytes of rows, want none");
    codec_close(c);
}

/* One row, one command, one need with two adjustments, one fetch: each case spoils one number of
 * it. */
struct small_batch {
    int32_t token[2];
    uint32_t seq[2], pos[2];
    uint8_t wanted[2];
    struct kv_command command;
    struct score_adjust adjust[2];
    int32_t ids[1];
    struct score_need need;
    struct msg_fetch fetch;
    struct message m;
};

static void make_small_batch(struct small_batch *s)
{
    *s = (struct small_batch){
        .token = {1, 2},
        .pos = {5, 6},
        .wanted = {0, 1},
        .adjust = {{3, 1.5f, 0}, {4, 1, -INFINITY}},
        .need = {.temperature = 1, .count = 1, .n_adjust = 2, .n_ids = 1},
        .fetch = {.batch_id = 8, .need = {.temperature = 1}},
    };
    s->need.adjust = s->adjust;
    s->need.ids = s->ids;
    s->m = (struct message){.type = MESSAGE_BATCH};
    s->m.u.batch = (struct msg_batch){
        .id = 9,
        .release_before = 7,
        .batch = {2, 1, 1, s->token, s->seq, s->pos, s->wanted, &s->command},
        .needs = &s->need,
        .fetches = &s->fetch,
        .n_fetches = 1,
    };
}

static void bad_token(struct small_batch *s)
{
    s->token[1] = -1;
}
static void bad_pos(struct small_batch *s)
{
    s->pos[1] = 7;
}
static void bad_op(struct small_batch *s)
{
    s->command.op = (enum kv_op)(KV_TRIM + 1);
}
static void bad_wanted(struct small_batch *s)
{
    s->wanted[0] = 1;
}
static void zero_temperature(struct small_batch *s)
{
    s->need.temperature = 0;
}
static void nan_temperature(struct small_batch *s)
{
    s->fetch.need.temperature = NAN;
}
static void nan_mass(struct small_batch *s)
{
    s->need.mass = NAN;
}
static void negative_ratio(struct small_batch *s)
{
    s->need.ratio = -1;
}
static void descending(struct small_batch *s)
{
    s->adjust[1].id = 2;
}
static void twice(struct small_batch *s)
{
    s->adjust[1].id = 3;
}
static void negative_id(struct small_batch *s)
{
    s->adjust[0].id = -3;
}
static void nan_delta(struct small_batch *s)
{
    s->adjust[0].delta = NAN;
}
static void infinite_delta(struct small_batch *s)
{
    s->adjust[0].delta = INFINITY;
}
static void zero_repeat(struct small_batch *s)
{
    s->adjust[0].repeat = 0;
}
static void bad_ids(struct small_batch *s)
{
    s->ids[0] = -1;
}
static void late_fetch(struct small_batch *s)
{
    s->fetch.batch_id = 9;
}
static void released_fetch(struct small_batch *s)
{
    s->fetch.batch_id = 6;
}
static void early_release(struct small_batch *s)
{
    s->m.u.batch.release_before = 10;
}

static const struct {
    void (*spoil)(struct small_batch *s);
    const char *text;
} spoilt_batches[] = {
    {bad_token, "BATCH.token[1] is 4294967295"},
    {bad_pos, "BATCH.pos[1] is 7 after 5"},
    {bad_op, "BATCH.command_op[0] is 3, want at most 2"},
    {bad_wanted, "BATCH.need_temperature has 2 entries, want 3"},
    {zero_temperature, "BATCH.need_temperature[0] is 0"},
    {nan_temperature, "BATCH.need_temperature[1] is nan"},
    {nan_mass, "BATCH.need_mass[0] is nan"},
    {negative_ratio, "BATCH.need_ratio[0] is -1"},
    {descending, "BATCH.adjust_id[1] is 2 after 3"},
    {twice, "BATCH.adjust_id[1] is 3 after 3"},
    {negative_id, "BATCH.adjust_id[0] is 4294967293"},
    {nan_delta, "BATCH.adjust_delta[0] is nan"},
    {infinite_delta, "BATCH.adjust_delta[0] is inf"},
    {zero_repeat, "BATCH.adjust_repeat[0] is 0"},
    {bad_ids, "BATCH.ids[0] is 4294967295"},
    {late_fetch, "BATCH.fetch_batch[0] is 9, want 7 or later, before 9"},
    {released_fetch, "BATCH.fetch_batch[0] is 6"},
    {early_release, "BATCH.release_before is 10"},
};

static void a_batch_with_one_wrong_number_is_refused_by_name(void **state)
{
    (void)state;
    struct codec *c = open_codec(4096);
    struct small_batch s;
    struct message got;
    struct frame_view view;
    make_small_batch(&s);
    size_t len = pack(c, &s.m);
    assert_int_equal(codec_unpack(c, frame, len, &got, &view, NULL), ERR_NONE);
    for (size_t i = 0; i < sizeof spoilt_batches / sizeof spoilt_batches[0]; i++) {
        make_small_batch(&s);
        spoilt_batches[i].spoil(&s);
        unpack_and_expect(c, pack(c, &s.m), spoilt_batches[i].text);
    }
    make_small_batch(&s);
    assert_int_equal(codec_pack(c, &s.m, 7, frame, sizeof frame, &len, NULL), ERR_NONE);
    unpack_and_expect(c, len, "BATCH 9 of 2 rows has 7 bytes of rows");
    codec_close(c);
}

static void a_result_with_one_wrong_number_is_refused_by_name(void **state)
{
    (void)state;
    static const float raw[RANDOM_VOCAB];
    static const struct {
        double lse;
        int32_t id;
        float score, id_score;
        uint32_t raw_sent;
        const char *text;
    } cases[] = {
        {NAN, 1, 0, 0, 0, "RESULT.lse[0] is nan"},
        {(double)INFINITY, 1, 0, 0, 0, "RESULT.lse[0] is inf"},
        {1, RANDOM_VOCAB, 0, 0, 0, "RESULT.token[0] is 37, want at most 36"},
        {1, -1, 0, 0, 0, "RESULT.token[0] is 4294967295"},
        {1, 1, NAN, 0, 0, "RESULT.score[0] is nan"},
        {1, 1, 0, INFINITY, 0, "RESULT.id_score[0] is inf"},
        {1, 1, 0, 0, RANDOM_VOCAB - 1, "RESULT has 144 bytes of raw rows"},
        {1, 1, 0, 0, 1, "RESULT has 4 bytes of raw rows"},
    };
    struct codec *c = open_codec(4096);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct score_head head = {.lse = cases[i].lse,
                                  .n = 1,
                                  .ids = &cases[i].id,
                                  .scores = &cases[i].score,
                                  .n_ids = 1,
                                  .id_scores = &cases[i].id_score,
                                  .raw = cases[i].raw_sent > 0 ? raw : NULL};
        struct message m = {.type = MESSAGE_RESULT, .u.result = {1, 1, &head}};
        size_t len;
        struct codec *sender = open_codec_of(4096, cases[i].raw_sent);
        assert_int_equal(codec_pack(sender, &m, 0, frame, sizeof frame, &len, NULL), ERR_NONE);
        codec_close(sender);
        unpack_and_expect(c, len, cases[i].text);
    }
    codec_close(c);
}

static void a_peers_text_is_one_line_and_short(void **state)
{
    (void)state;
    struct codec *c = open_codec(4096);
    struct message m = {.type = MESSAGE_ERROR, .u.error = {ERR_FILE, "two\nlines\x1b[31m\x7f"}},
                   got;
    struct frame_view view;
    size_t len = pack(c, &m);
    assert_int_equal(codec_unpack(c, frame, len, &got, &view, NULL), ERR_NONE);
    assert_string_equal(got.u.error.text, "two?lines?[31m?");

    char longer[MESSAGE_TEXT_MAX + 1];
    memset(longer, 'x', MESSAGE_TEXT_MAX);
    longer[MESSAGE_TEXT_MAX] = '\0';
    m.u.error.text = longer;
    assert_int_equal(codec_pack(c, &m, 0, frame, sizeof frame, &len, NULL), ERR_CAPACITY);
    uint8_t *head = frame + FRAME_HEADER_BYTES;
    memcpy(head, (const uint8_t[]){0x08, 1, 0x12, 0x80, 0x04}, 5);
    memset(head + 5, 'x', MESSAGE_TEXT_MAX);
    frame_write_header(frame, MESSAGE_ERROR, 5 + MESSAGE_TEXT_MAX, 0);
    unpack_and_expect(c, FRAME_HEADER_BYTES + 5 + MESSAGE_TEXT_MAX,
                      "ERROR.text is longer than 511 bytes");
    codec_close(c);
}

static void the_answer_to_one_greedy_row_fits_64_bytes(void **state)
{
    (void)state;
    struct codec *c = open_codec(4096);
    int32_t id = INT32_MAX;
    float score = -1.5f;
    struct score_head head = {.lse = 12.5, .n = 1, .ids = &id, .scores = &score};
    struct message m = {.type = MESSAGE_RESULT, .u.result = {UINT64_MAX, 1, &head}};
    assert_true(pack(c, &m) <= 64);
    head.whole = true;
    assert_true(pack(c, &m) <= 64);
    codec_close(c);
}

static void a_frame_that_is_too_small_is_refused_and_not_written_beyond(void **state)
{
    (void)state;
    struct codec *c = open_codec(65536);
    for (int type = MESSAGE_HELLO; type <= MESSAGE_RESULT; type++) {
        struct message m;
        random_message(&store, (enum message_type)type, &m);
        size_t full = pack(c, &m), len;
        for (size_t capacity = 0; capacity < full; capacity += 1 + capacity / 8) {
            uint8_t *small = exact_copy(frame, capacity);
            uint64_t rows = m.type == MESSAGE_BATCH ? m.u.batch.batch.n_rows * 20ul : 0;
            assert_int_equal(codec_pack(c, &m, rows, small, capacity, &len, NULL), ERR_CAPACITY);
            free(small);
        }
    }
    codec_close(c);
}

/* ---- bounds ---- */

enum { ROWS = 512, SEQS = 64, ADJUSTS = 900, VOCAB = 128000 };

/* A full batch with the longest numbers: a prompt of 512 rows, the commands and penalties of 64
 * sequences. */
static void a_full_batch_fits_a_head_of_one_mebibyte(void **state)
{
    (void)state;
    static int32_t token[ROWS];
    static uint32_t seq[ROWS], pos[ROWS];
    static uint8_t wanted[ROWS];
    static struct kv_command commands[SEQS * 4];
    static struct score_need needs[SEQS];
    static struct score_adjust adjust[SEQS][ADJUSTS];
    static int32_t ids[SEQS][2];
    static struct msg_fetch fetches[SEQS];
    static _Alignas(64) uint8_t big[1 << 21];
    for (unsigned i = 0; i < ROWS; i++)
        token[i] = INT32_MAX, seq[i] = UINT32_MAX, pos[i] = UINT32_MAX - ROWS + i;
    for (unsigned i = 0; i < SEQS * 4; i++)
        commands[i] = (struct kv_command){KV_TRIM, UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX};
    for (unsigned k = 0; k < SEQS; k++) {
        wanted[ROWS - 1 - k] = 1;
        for (int i = 0; i < ADJUSTS; i++)
            adjust[k][i] = (struct score_adjust){INT32_MAX - ADJUSTS + i, 1.1f, -0.5f};
        ids[k][0] = ids[k][1] = INT32_MAX;
        needs[k] =
            (struct score_need){0.7f, UINT32_MAX, 0.9f, 0.1f, true, adjust[k], ADJUSTS, ids[k], 2};
        fetches[k] = (struct msg_fetch){UINT64_MAX - 1, UINT32_MAX, {.temperature = 1}};
    }
    struct message m = {.type = MESSAGE_BATCH}, got;
    m.u.batch = (struct msg_batch){UINT64_MAX,
                                   1,
                                   UINT64_MAX,
                                   1,
                                   {ROWS, SEQS, SEQS * 4, token, seq, pos, wanted, commands},
                                   needs,
                                   fetches,
                                   SEQS};
    size_t bound = codec_batch_head_bound(ROWS, SEQS * 4, SEQS, SEQS * ADJUSTS, SEQS * 2, SEQS),
           len;
    assert_true(bound <= 1 << 20);
    struct codec *c = open_codec(1 << 20);
    struct frame_view view;
    struct err err = {0};
    if (codec_pack(c, &m, 0, big, sizeof big, &len, &err)) fail_msg("%s", err.text);
    assert_true(len <= FRAME_HEADER_BYTES + bound);
    assert_true(len >= bound * 9 / 10);
    if (codec_unpack(c, big, len, &got, &view, &err)) fail_msg("%s", err.text);
    assert_true(same_message(&m, &got));
    codec_close(c);
}

static void random_heads_stay_inside_their_bounds(void **state)
{
    (void)state;
    struct codec *c = open_codec_of(65536, 0); /* the heads alone */
    for (int round = 0; round < 200; round++) {
        struct message m;
        random_message(&store, MESSAGE_BATCH, &m);
        const struct msg_batch *b = &m.u.batch;
        size_t adjusts = 0, ids = 0, pairs = 0, scores = 0, len;
        for (uint32_t k = 0; k < b->batch.n_wanted; k++)
            adjusts += b->needs[k].n_adjust, ids += b->needs[k].n_ids;
        for (uint32_t k = 0; k < b->n_fetches; k++)
            adjusts += b->fetches[k].need.n_adjust, ids += b->fetches[k].need.n_ids;
        size_t bound = codec_batch_head_bound(b->batch.n_rows, b->batch.n_commands,
                                              b->batch.n_wanted, adjusts, ids, b->n_fetches);
        assert_int_equal(codec_pack(c, &m, 0, frame, FRAME_HEADER_BYTES + bound, &len, NULL),
                         ERR_NONE);

        random_message(&store, MESSAGE_RESULT, &m);
        for (uint32_t k = 0; k < m.u.result.n_heads; k++)
            pairs += m.u.result.heads[k].n, scores += m.u.result.heads[k].n_ids;
        bound = RESULT_FIXED_BYTES + m.u.result.n_heads * (size_t)RESULT_HEAD_BYTES +
                pairs * RESULT_PAIR_BYTES + scores * sizeof(float);
        assert_int_equal(codec_pack(c, &m, 0, frame, FRAME_HEADER_BYTES + bound, &len, NULL),
                         ERR_NONE);
    }
    codec_close(c);
}

/* A head of exactly head_max bytes in which every list has the shortest entries: the most memory
 * for a byte. */
static void the_densest_heads_fit_the_arena(void **state)
{
    (void)state;
    enum { N = 10000 };
    static struct kv_command commands[N];
    static struct score_head heads[N];
    static struct msg_fetch fetches[N];
    static _Alignas(64) uint8_t big[1 << 20];
    for (int i = 0; i < N; i++) fetches[i].need.temperature = 1, fetches[i].batch_id = 1;
    struct message dense[3] = {
        {.type = MESSAGE_BATCH,
         .u.batch = {.id = 2, .batch = {.n_commands = N, .commands = commands}}},
        {.type = MESSAGE_BATCH, .u.batch = {.id = 2, .fetches = fetches, .n_fetches = N}},
        {.type = MESSAGE_RESULT, .u.result = {.id = 1, .n_heads = N, .heads = heads}},
    };
    for (int i = 0; i < 3; i++) {
        struct codec *wide = open_codec_of(1 << 20, 0);
        struct message got;
        struct frame_view view;
        struct err err = {0};
        size_t len;
        if (codec_pack(wide, &dense[i], 0, big, sizeof big, &len, &err))
            fail_msg("case %d: %s", i, err.text);
        codec_close(wide);
        struct codec *tight = open_codec_of(len - FRAME_HEADER_BYTES, 0);
        if (codec_unpack(tight, big, len, &got, &view, &err)) fail_msg("case %d: %s", i, err.text);
        if (codec_pack(tight, &got, 0, big, sizeof big, &len, &err))
            fail_msg("case %d: %s", i, err.text);
        codec_close(tight);
    }
}

/* Whole rows side by side, as the last stage lays them: packed from where they are, beyond
 * head_max. */
static void joined_heads_are_packed_without_the_arena(void **state)
{
    (void)state;
    static int32_t ids[2 * VOCAB];
    static float scores[2 * VOCAB];
    static _Alignas(64) uint8_t big[1 << 22];
    for (int i = 0; i < 2 * VOCAB; i++) ids[i] = i % VOCAB, scores[i] = (float)-i;
    struct score_head heads[2] = {
        {.lse = 1, .whole = true, .n = VOCAB, .ids = ids, .scores = scores},
        {.lse = 2, .whole = true, .n = VOCAB, .ids = ids + VOCAB, .scores = scores + VOCAB},
    };
    struct message m = {.type = MESSAGE_RESULT, .u.result = {1, 2, heads}}, got;
    struct codec *narrow = open_codec_of(4096, VOCAB), *wide = open_codec_of(1 << 22, VOCAB);
    struct frame_view view;
    size_t len;
    assert_int_equal(codec_pack(narrow, &m, 0, big, sizeof big, &len, NULL), ERR_NONE);
    assert_int_equal(codec_unpack(wide, big, len, &got, &view, NULL), ERR_NONE);
    assert_true(same_message(&m, &got));
    heads[0].ids = ids + VOCAB; /* no longer side by side: needs an arena */
    assert_int_equal(codec_pack(narrow, &m, 0, big, sizeof big, &len, NULL), ERR_CAPACITY);
    assert_int_equal(codec_pack(wide, &m, 0, big, sizeof big, &len, NULL), ERR_NONE);
    assert_int_equal(codec_unpack(wide, big, len, &got, &view, NULL), ERR_NONE);
    assert_true(same_message(&m, &got));
    codec_close(narrow);
    codec_close(wide);
}

/* Pairs side by side, id scores not, in every way that one head of three can have none. */
static void id_scores_that_stand_apart_are_packed_too(void **state)
{
    (void)state;
    static const int32_t ids[3] = {1, 2, 3};
    static const float scores[3] = {-1, -2, -3}, id_scores[9] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
    static const struct {
        uint32_t n[3];
        int at[3];
    } cases[] = {
        {{2, 0, 2}, {0, 5, 5}}, {{2, 0, 2}, {0, 2, 2}}, {{0, 2, 2}, {3, 3, 6}},
        {{2, 2, 2}, {4, 2, 0}}, {{0, 0, 2}, {1, 1, 4}}, {{2, 2, 2}, {1, 3, 5}},
    };
    struct codec *c = open_codec(4096);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct score_head heads[3];
        for (int k = 0; k < 3; k++)
            heads[k] = (struct score_head){.n = 1,
                                           .ids = ids + k,
                                           .scores = scores + k,
                                           .n_ids = cases[i].n[k],
                                           .id_scores = id_scores + cases[i].at[k]};
        struct message m = {.type = MESSAGE_RESULT, .u.result = {1, 3, heads}}, got;
        struct frame_view view;
        size_t len = pack(c, &m);
        assert_int_equal(codec_unpack(c, frame, len, &got, &view, NULL), ERR_NONE);
        assert_true(same_message(&m, &got));
    }
    codec_close(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_message_comes_back_as_it_was),
        cmocka_unit_test(a_cut_frame_is_refused_at_every_length),
        cmocka_unit_test(a_cut_head_does_no_harm_at_any_length),
        cmocka_unit_test(a_changed_byte_does_no_harm_wherever_it_is),
        cmocka_unit_test(random_heads_do_no_harm),
        cmocka_unit_test(a_hostile_head_is_refused_by_name),
        cmocka_unit_test(a_batch_with_one_wrong_number_is_refused_by_name),
        cmocka_unit_test(a_result_with_one_wrong_number_is_refused_by_name),
        cmocka_unit_test(a_peers_text_is_one_line_and_short),
        cmocka_unit_test(the_answer_to_one_greedy_row_fits_64_bytes),
        cmocka_unit_test(a_frame_that_is_too_small_is_refused_and_not_written_beyond),
        cmocka_unit_test(a_full_batch_fits_a_head_of_one_mebibyte),
        cmocka_unit_test(random_heads_stay_inside_their_bounds),
        cmocka_unit_test(the_densest_heads_fit_the_arena),
        cmocka_unit_test(id_scores_that_stand_apart_are_packed_too),
        cmocka_unit_test(joined_heads_are_packed_without_the_arena),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
