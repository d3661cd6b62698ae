/* field_check - the checks themselves; see field_check.h.
 * Stations: codec before and after. */
#include "proto/field_check.h"

#include <inttypes.h>
#include <math.h>

int check_entries(const char *field, size_t n, size_t want, struct err *err)
{
    CHECK(n == want, err, ERR_PEER, "%s has %zu entries, want %zu", field, n, want);
    return ERR_NONE;
}

int check_number(const char *field, uint64_t value, uint64_t least, uint64_t most, struct err *err)
{
    CHECK(value >= least && value <= most, err, ERR_PEER,
          "%s is %" PRIu64 ", want %" PRIu64 " to %" PRIu64, field, value, least, most);
    return ERR_NONE;
}

int check_numbers(const char *field, const uint32_t *values, size_t n, uint32_t most,
                  struct err *err)
{
    for (size_t i = 0; i < n; i++)
        CHECK(values[i] <= most, err, ERR_PEER, "%s[%zu] is %" PRIu32 ", want at most %" PRIu32,
              field, i, values[i], most);
    return ERR_NONE;
}

/* The comparisons are written so that NaN fails them. */
int check_scores(const char *field, const float *values, size_t n, struct err *err)
{
    for (size_t i = 0; i < n; i++)
        CHECK(values[i] < INFINITY, err, ERR_PEER, "%s[%zu] is %g, want a score", field, i,
              (double)values[i]);
    return ERR_NONE;
}

int check_positive(const char *field, const float *values, size_t n, struct err *err)
{
    for (size_t i = 0; i < n; i++)
        CHECK(values[i] > 0 && values[i] < INFINITY, err, ERR_PEER,
              "%s[%zu] is %g, want a positive number", field, i, (double)values[i]);
    return ERR_NONE;
}

int check_not_negative(const char *field, const float *values, size_t n, struct err *err)
{
    for (size_t i = 0; i < n; i++)
        CHECK(values[i] >= 0 && values[i] < INFINITY, err, ERR_PEER,
              "%s[%zu] is %g, want 0 or more", field, i, (double)values[i]);
    return ERR_NONE;
}

int check_sum(const char *list, size_t entries, const uint32_t *counts, size_t n, struct err *err)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < n; i++) sum += counts[i];
    CHECK(sum == entries, err, ERR_PEER, "%s has %zu entries, but its counts add up to %" PRIu64,
          list, entries, sum);
    return ERR_NONE;
}
