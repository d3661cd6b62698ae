/* random_message - messages with random contents, and whether two are the same. For the tests of
 * proto/. */
#ifndef TANDEM_TESTS_PROTO_RANDOM_MESSAGE_H
#define TANDEM_TESTS_PROTO_RANDOM_MESSAGE_H

#include "proto/link.h"
#include "proto/message.h"

#include <stdbool.h>

enum {
    RANDOM_ROWS = 40,
    RANDOM_COMMANDS = 20,
    RANDOM_FETCHES = 5,
    RANDOM_LIST = 12,
    RANDOM_VOCAB = 37
};

/* What a random message points to. */
struct random_store {
    uint64_t state;
    char text[5][MESSAGE_TEXT_MAX];
    int32_t token[RANDOM_ROWS];
    uint32_t seq[RANDOM_ROWS], pos[RANDOM_ROWS];
    uint8_t wanted[RANDOM_ROWS];
    struct msg_account accounts[MESSAGE_ACCOUNTS_MAX];
    struct msg_layer_mark marks[MESSAGE_MARKS_MAX];
    struct tensor_digest digests[TENSOR_DIGESTS_MAX];
    uint32_t sizes[LINK_RAW_SIZES_MAX];
    uint64_t header_bytes[64], file_bytes[64];
    uint8_t piece[512];
    struct kv_command commands[RANDOM_COMMANDS];
    struct score_need needs[RANDOM_ROWS];
    struct msg_fetch fetches[RANDOM_FETCHES];
    struct score_adjust adjust[RANDOM_ROWS + RANDOM_FETCHES][RANDOM_LIST];
    int32_t ids[RANDOM_ROWS + RANDOM_FETCHES][RANDOM_LIST];
    struct score_head heads[RANDOM_ROWS];
    int32_t pair_ids[RANDOM_ROWS][RANDOM_LIST];
    float pair_scores[RANDOM_ROWS][RANDOM_LIST], id_scores[RANDOM_ROWS][RANDOM_LIST];
    float raw[RANDOM_ROWS][RANDOM_VOCAB];
};

uint64_t random_next(struct random_store *r);

/* random_message() - a valid message of this type; sizes from nothing to the maxima above. */
void random_message(struct random_store *r, enum message_type type, struct message *out);

/* same_message() - equal in all that travels; floats bit by bit. */
bool same_message(const struct message *a, const struct message *b);

#endif
