/* test_no_alloc - once a line is open, packing, sending, receiving and unpacking allocate nothing.
 *
 * The allocator's entry points are defined here and count, for libraries too; a sanitizer has its
 * own, so there is nothing to count then. */
#include "proto/codec.h"
#include "proto/link.h"
#include "random_message.h"
#include "tests/count_alloc.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

enum { DATA_MAX = 1 << 17, ROUNDS = 200 };

static struct random_store store;

/* Not cmocka's: those may allocate. */
#define EXPECT(condition)                                                                          \
    do {                                                                                           \
        if (!(condition)) abort();                                                                 \
    } while (0)

/* One message from an endpoint to the next, out of the one's arena and into the other's. */
static void pass_on(struct link *from, struct link *to, enum link_channel channel, struct codec *c,
                    const struct message *m, struct message *got)
{
    size_t capacity, len;
    int sender;
    const uint8_t *in;
    struct frame_view view;
    uint8_t *out = link_send_begin(from, channel, link_rank(to), &capacity);
    EXPECT(out != NULL);
    EXPECT(codec_pack(c, m, 0, out, capacity, &len, NULL) == ERR_NONE);
    EXPECT(link_send(from, channel, link_rank(to), len, NULL) == ERR_NONE);
    link_wait(to, 100);
    EXPECT(link_receive(to, channel, &sender, &in, &len, NULL) == ERR_NONE && in != NULL);
    EXPECT(codec_unpack(c, in, len, got, &view, NULL) == ERR_NONE);
    EXPECT(same_message(m, got));
    link_receive_done(to, channel);
    link_made_progress(to);
}

static void the_token_loop_allocates_nothing(void **state)
{
    (void)state;
    struct link *line[2];
    struct codec *c;
    struct message m, got;
    assert_int_equal(link_local_open(line, 2, LINK_IDLE_SLEEP, NULL), ERR_NONE);
    for (int i = 0; i < 2; i++)
        assert_int_equal(link_open_data(line[i], DATA_MAX, DATA_MAX, 2, 2, NULL), ERR_NONE);
    assert_int_equal(codec_open(&c, DATA_MAX, RANDOM_VOCAB, NULL), ERR_NONE);

    unsigned long before = n_taken;
    for (int i = 0; i < ROUNDS; i++) {
        for (int type = MESSAGE_HELLO; type <= MESSAGE_CLOCK; type++) {
            random_message(&store, (enum message_type)type, &m);
            pass_on(line[i % 2], line[1 - i % 2], LINK_CONTROL, c, &m, &got);
        }
        random_message(&store, MESSAGE_BATCH, &m);
        pass_on(line[0], line[1], LINK_DATA, c, &m, &got);
        random_message(&store, MESSAGE_RESULT, &m);
        pass_on(line[1], line[0], LINK_DATA, c, &m, &got);
    }
    unsigned long counted = n_taken - before;

    codec_close(c);
    link_close(line[0], false);
    link_close(line[1], false);
    if (!COUNTED) {
        print_message("skipped: a sanitizer has the allocator\n");
        skip();
    }
    assert_true(before > 0); /* the counting works */
    assert_int_equal(counted, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_token_loop_allocates_nothing)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
