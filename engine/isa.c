/* isa - see isa.h.
 *
 * Detection asks for the CPU's flags and for the system's consent (XGETBV) at once: the compiler's
 * own run-time library does both behind __builtin_cpu_supports. */
#include "engine/isa.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static const char *const names[ISA_COUNT] = {"generic", "avx2", "avx512"};

const char *isa_name(enum isa isa)
{
    return (unsigned)isa < ISA_COUNT ? names[isa] : "?";
}

int isa_find(const char *name)
{
    for (int i = 0; i < ISA_COUNT; i++)
        if (strcmp(names[i], name) == 0) return i;
    return -1;
}

#if defined(__x86_64__)
static bool has_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
           __builtin_cpu_supports("f16c");
}

static bool has_avx512(void)
{
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vnni");
}

static enum isa detect_best(void)
{
    __builtin_cpu_init();
    if (has_avx512()) return ISA_AVX512;
    if (has_avx2()) return ISA_AVX2;
    return ISA_GENERIC;
}
#else
static enum isa detect_best(void)
{
    return ISA_GENERIC;
}
#endif

int isa_detect(enum isa *out, struct err *err)
{
    enum isa best = detect_best();
    const char *forced = getenv("TANDEM_ISA");
    if (forced == NULL || forced[0] == '\0') {
        *out = best;
        return ERR_NONE;
    }
    int wanted = isa_find(forced);
    CHECK(wanted >= 0, err, ERR_USAGE,
          "TANDEM_ISA=%s is no instruction set: use generic, avx2 or avx512", forced);
    CHECK(wanted <= (int)best, err, ERR_UNSUPPORTED,
          "TANDEM_ISA=%s: this CPU has %s at best; unset it, or choose one that the CPU has",
          forced, isa_name(best));
    *out = (enum isa)wanted;
    return ERR_NONE;
}
