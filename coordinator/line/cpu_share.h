/* cpu_share - the CPUs of each host, dealt to its workers, and what is odd about that.
 *
 * Pure: no I/O, no ranks.
 * Station before: roster (what each worker said in HELLO). Station after: line, which tells each
 * worker its number of threads and warns. */
#ifndef TANDEM_COORDINATOR_LINE_CPU_SHARE_H
#define TANDEM_COORDINATOR_LINE_CPU_SHARE_H

#include "proto/message.h"

enum { CPU_SHARE_TEXT_MAX = 256 };

/* cpu_share_threads() - how many threads a worker gets: as many as the CPUs that it is bound to;
 * the unbound workers of a host share what there is. At least one. hellos [n], in the order of the
 * line. */
uint32_t cpu_share_threads(const struct msg_hello *const *hellos, uint32_t n, uint32_t worker);

/* cpu_share_cpus() - that the workers of a worker's host can run on together. */
uint32_t cpu_share_cpus(const struct msg_hello *const *hellos, uint32_t n, uint32_t worker);

/* cpu_share_lanes() - how many of the workers can compute at the same time: on each host no more
 * than its CPUs have threads of theirs. At least one. threads [n]. */
uint32_t cpu_share_lanes(const struct msg_hello *const *hellos, const uint32_t *threads,
                         uint32_t n);

enum cpu_share_verdict {
    CPU_SHARE_FINE,
    CPU_SHARE_CROWDED, /* more workers than CPUs, with a thread each: what was asked for */
    CPU_SHARE_WRONG,   /* another start would be faster */
};

/* cpu_share_judge() - is this worker bound to fewer CPUs than its share of the host, or do the
 * workers of its host have more threads than CPUs (said of the first of them)? Stages of one
 * process are not judged. threads [n]. Unless it is fine, text says what is not; it follows the
 * worker's name. */
enum cpu_share_verdict cpu_share_judge(const struct msg_hello *const *hellos,
                                       const uint32_t *threads, uint32_t n, uint32_t worker,
                                       char text[CPU_SHARE_TEXT_MAX]);

#endif
