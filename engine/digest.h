/* digest - 64 bits that tell two runs of bytes apart: XXH3, which costs less than reading them.
 *
 * Against damage on the way or on a disk, not against somebody who means harm.
 * Stations: whoever sends, receives or stores weights. */
#ifndef TANDEM_ENGINE_DIGEST_H
#define TANDEM_ENGINE_DIGEST_H

#include <stddef.h>
#include <stdint.h>

uint64_t digest_bytes(const void *bytes, size_t n);

#endif
