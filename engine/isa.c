/* isa - see isa.h.
 *
 * Detection asks the CPU (CPUID) and the system, which must save the registers (XGETBV). Tiles need
 * one thing more: Linux grants their state to a process that asks for it.
 *
 * Source: Intel 64 and IA-32 Architectures Software Developer's Manual, CPUID; volume 1, 13.3. */
#include "engine/isa.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif
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
/* Where the CPU says what it has: leaf and subleaf of CPUID. */
enum leaf { LEAF_1, LEAF_7, LEAF_7_1, LEAF_COUNT };
enum reg { EAX, EBX, ECX, EDX, REG_COUNT };

static const struct flag {
    enum isa isa; /* the first that needs it */
    enum leaf leaf;
    enum reg reg;
    int bit;
} flags[] = {
    {ISA_AVX2, LEAF_1, ECX, 12},   /* FMA */
    {ISA_AVX2, LEAF_1, ECX, 27},   /* OSXSAVE: there is XGETBV */
    {ISA_AVX2, LEAF_1, ECX, 28},   /* AVX */
    {ISA_AVX2, LEAF_1, ECX, 29},   /* F16C */
    {ISA_AVX2, LEAF_7, EBX, 5},    /* AVX2 */
    {ISA_AVX512, LEAF_7, EBX, 16}, /* AVX512F */
    {ISA_AVX512, LEAF_7, EBX, 17}, /* AVX512DQ */
    {ISA_AVX512, LEAF_7, EBX, 30}, /* AVX512BW */
    {ISA_AVX512, LEAF_7, EBX, 31}, /* AVX512VL */
    {ISA_AVX512, LEAF_7, ECX, 11}, /* AVX512_VNNI */
    {ISA_AMX, LEAF_7_1, EAX, 5},   /* AVX512_BF16 */
    {ISA_AMX, LEAF_7, EDX, 22},    /* AMX-BF16 */
    {ISA_AMX, LEAF_7, EDX, 24},    /* AMX-TILE */
    {ISA_AMX, LEAF_7, EDX, 25},    /* AMX-INT8 */
};

/* Of XCR0, which registers the system saves: XMM and YMM; masks and ZMM; tiles. */
static const uint64_t saved[ISA_COUNT] = {
    [ISA_AVX2] = 0x6, [ISA_AVX512] = 0xe6, [ISA_AMX] = 0x600e6};

static uint64_t read_xcr0(void)
{
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
}

/* read_leaves() - all zeros where the CPU does not know one. */
static void read_leaves(uint32_t leaves[LEAF_COUNT][REG_COUNT])
{
    static const uint32_t which[LEAF_COUNT][2] = {{1, 0}, {7, 0}, {7, 1}};
    memset(leaves, 0, LEAF_COUNT * sizeof *leaves);
    for (int i = 0; i < LEAF_COUNT; i++)
        __get_cpuid_count(which[i][0], which[i][1], &leaves[i][EAX], &leaves[i][EBX],
                          &leaves[i][ECX], &leaves[i][EDX]);
}

/* find_best() - the last one of which, and of those before it, nothing is missing. */
static enum isa find_best(void)
{
    uint32_t leaves[LEAF_COUNT][REG_COUNT];
    int best = ISA_COUNT - 1;
    read_leaves(leaves);
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        if ((leaves[flags[i].leaf][flags[i].reg] >> flags[i].bit & 1) == 0 &&
            best >= (int)flags[i].isa)
            best = (int)flags[i].isa - 1;
    while (best > ISA_GENERIC && (read_xcr0() & saved[best]) != saved[best]) best--;
    return (enum isa)best;
}

bool isa_has_avx_vnni(void)
{
    uint32_t leaves[LEAF_COUNT][REG_COUNT];
    read_leaves(leaves);
    return leaves[LEAF_7_1][EAX] >> 4 & 1;
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

static enum isa detect_best(void)
{
    enum isa best = find_best();
    return best == ISA_AMX && !may_use_tiles() ? ISA_AVX512 : best;
}
#else
bool isa_has_avx_vnni(void)
{
    return false;
}

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
