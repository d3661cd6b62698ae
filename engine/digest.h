/* digest - 64 bits that tell two runs of bytes apart: XXH3, which costs less than reading them.
 *
 * Against damage on the way or on a disk, not against somebody who means harm.
 * Stations: whoever reads, sends, receives or stores weights. */
#ifndef TANDEM_ENGINE_DIGEST_H
#define TANDEM_ENGINE_DIGEST_H

#include <stddef.h>
#include <stdint.h>

uint64_t digest_bytes(const void *bytes, size_t n);

/* Of bytes that come piece by piece: however they are cut, digest_end() returns what digest_bytes()
 * does of all since digest_begin(). */
struct digest_run;

/* digest_open() - the caller's; NULL: no memory. digest_close(): NULL is allowed. */
struct digest_run *digest_open(void);
void digest_close(struct digest_run *run);

void digest_begin(struct digest_run *run);
void digest_add(struct digest_run *run, const void *bytes, size_t n);
uint64_t digest_end(const struct digest_run *run);

/* A tensor outside of layers, as its file has it: several stages may hold the same one. tensor: its
 * enum tensor_id, of a tied one that of the tensor in the file. */
struct tensor_digest {
    uint32_t tensor;
    uint64_t digest;
};
enum { TENSOR_DIGESTS_MAX = 16 }; /* no family has more of them */

#endif
