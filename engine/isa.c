/* isa - see isa.h.
 *
 * Detection asks for the CPU's flags and for the system's consent (XGETBV) at once: the compiler's
 * own run-time library does both behind __builtin_cpu_supports. Tiles need one thing more: Linux
 * grants their state to a process that asks for it. */
#include "engine/isa.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__) && defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

static const char *const names[ISA_COUNT] = {"generic", "avx2", "avx512", "amx"};

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

#if defined(__linux__)
/* The system's consent holds for all threads of the process, those to come as well. */
static bool may_use_tiles(void)
{
    enum { ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18 };
    return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
}
#else
static bool may_use_tiles(void)
{
    return false;
}
#endif

static bool has_amx(void)
{
    return has_avx512() && __builtin_cpu_supports("avx512bf16") &&
           __builtin_cpu_supports("amx-tile") && __builtin_cpu_supports("amx-int8") &&
           __builtin_cpu_supports("amx-bf16") && may_use_tiles();
}

static enum isa detect_best(void)
{
    __builtin_cpu_init();
    if (has_amx()) return ISA_AMX;
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
          "TANDEM_ISA=%s is no instruction set: use generic, avx2, avx512 or amx", forced);
    CHECK(wanted <= (int)best, err, ERR_UNSUPPORTED,
          "TANDEM_ISA=%s: this machine has %s at best; unset it, or choose one that it has", forced,
          isa_name(best));
    *out = (enum isa)wanted;
    return ERR_NONE;
}
