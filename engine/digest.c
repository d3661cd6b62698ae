/* digest - see digest.h. Source: https://xxhash.com, XXH3 with 64 bits and seed 0. */
#include "engine/digest.h"

#include <xxhash.h>

uint64_t digest_bytes(const void *bytes, size_t n)
{
    return XXH3_64bits(bytes, n);
}

/* struct digest_run is the library's own state under a name of ours. */
static XXH3_state_t *state_of(struct digest_run *run)
{
    return (XXH3_state_t *)(void *)run;
}

struct digest_run *digest_open(void)
{
    return (struct digest_run *)(void *)XXH3_createState();
}

void digest_close(struct digest_run *run)
{
    XXH3_freeState(state_of(run));
}

void digest_begin(struct digest_run *run)
{
    XXH3_64bits_reset(state_of(run));
}

void digest_add(struct digest_run *run, const void *bytes, size_t n)
{
    XXH3_64bits_update(state_of(run), bytes, n);
}

uint64_t digest_end(const struct digest_run *run)
{
    return XXH3_64bits_digest((const XXH3_state_t *)(const void *)run);
}
