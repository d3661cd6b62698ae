/* field_check - what codec asks of the numbers in a message; each failure is one line with field
 * and numbers.
 *
 * field is "MESSAGE.member", as tandem.proto names it. All return ERR_NONE or ERR_PEER.
 * Station before: a head that protobuf-c has unpacked. Station after: the structs of message.h. */
#ifndef TANDEM_PROTO_FIELD_CHECK_H
#define TANDEM_PROTO_FIELD_CHECK_H

#include "engine/err.h"

#include <stddef.h>
#include <stdint.h>

/* check_entries() - a list has as many entries as it must. */
int check_entries(const char *field, size_t n, size_t want, struct err *err);

/* check_number() - least <= value <= most. check_numbers() - every value of a list is <= most. */
int check_number(const char *field, uint64_t value, uint64_t least, uint64_t most, struct err *err);
int check_numbers(const char *field, const uint32_t *values, size_t n, uint32_t most,
                  struct err *err);

/* check_scores() - no value is NaN or +INFINITY; -INFINITY (a banned token) may be. */
int check_scores(const char *field, const float *values, size_t n, struct err *err);

/* check_positive() - every value is finite and > 0; check_not_negative() - or 0. */
int check_positive(const char *field, const float *values, size_t n, struct err *err);
int check_not_negative(const char *field, const float *values, size_t n, struct err *err);

/* check_sum() - n counts add up to the entries of the list that they cut. */
int check_sum(const char *list, size_t entries, const uint32_t *counts, size_t n, struct err *err);

#endif
