/* digest - see digest.h. Source: https://xxhash.com, XXH3 with 64 bits and seed 0. */
#include "engine/digest.h"

#include <xxhash.h>

uint64_t digest_bytes(const void *bytes, size_t n)
{
    return XXH3_64bits(bytes, n);
}
