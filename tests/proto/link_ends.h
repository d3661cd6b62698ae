/* link_ends - what the tests of the link share: one program whose ends are ranks under mpirun, and
 * else threads. Included after cmocka. */
#ifndef TANDEM_TESTS_PROTO_LINK_ENDS_H
#define TANDEM_TESTS_PROTO_LINK_ENDS_H

#include "proto/link.h"

#include <stdio.h>
#include <stdlib.h>

static struct link *mpi_line; /* of this rank; NULL without mpirun */
static bool under_mpi;

/* What is made of two endpoints in one process. */
static inline void skip_under_mpi(void)
{
    if (!under_mpi) return;
    print_message("skipped: it wants all ends in one process, and mpirun makes many\n");
    skip();
}

/* In the body of an endpoint l, which may be a thread that cmocka does not know. */
#define EXPECT(condition, ...)                                                                     \
    do {                                                                                           \
        if (condition) break;                                                                      \
        fprintf(stderr, "endpoint %d, line %d: %s: ", link_rank(l), __LINE__, #condition);         \
        fprintf(stderr, __VA_ARGS__);                                                              \
        fputc('\n', stderr);                                                                       \
        if (under_mpi) link_mpi_abort(1);                                                          \
        _Exit(1);                                                                                  \
    } while (0)

#endif
