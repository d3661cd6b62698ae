/* rows_body - quantising, activations and rounding of one row, written once for every vector width;
 * included by one file of each instruction set after its simd_*.h. The formulas are those of
 * kernels.h and generic/exp.h. */
#include "engine/kernels/generic/exp.h"
#include "engine/kernels/kernels.h"

static inline vf v_exp(vf x)
{
    /* The constant first: min and max give their second operand where one is NaN. */
    vf clamped = v_max(v_set1(EXP_LOWEST), v_min(v_set1(EXP_HIGHEST), x));
    vf shifted = v_fma(clamped, v_set1(EXP_LOG2E), v_set1(EXP_ROUND));
    vf n = v_sub(shifted, v_set1(EXP_ROUND));
    vf r = v_fnma(n, v_set1(EXP_LN2_LOW), v_fnma(n, v_set1(EXP_LN2_HIGH), clamped));
    vf p = v_set1(1.0F / 5040);
    p = v_fma(p, r, v_set1(1.0F / 720));
    p = v_fma(p, r, v_set1(1.0F / 120));
    p = v_fma(p, r, v_set1(1.0F / 24));
    p = v_fma(p, r, v_set1(1.0F / 6));
    p = v_fma(p, r, v_set1(0.5F));
    p = v_fma(p, r, v_set1(1));
    p = v_fma(p, r, v_set1(1));
    vi power = vi_add(vi_shift_left(v_as_int(shifted), 23), vi_set1(0x3f800000));
    return v_zero_below(x, v_set1(EXP_LOWEST), v_mul(p, vi_as_float(power)));
}

KERNEL_QUANTISE(KERNEL_NAME(quantise))
{
    for (size_t b = 0; b < n_blocks; b++, x += QUANT_BLOCK, q += QUANT_BLOCK) {
        vi max_bits = vi_set1(0);
        for (size_t i = 0; i < QUANT_BLOCK; i += V_LANES)
            max_bits = vi_max(max_bits, vi_and(v_as_int(v_load(x + i)), vi_set1(0x7fffffff)));
        float max = v_first(vi_as_float(vi_set1(vi_fold_max(max_bits))));
        vf inverse = v_set1(max > QUANT_TINY ? 127.0F / max : 0);
        vi total = vi_set1(0);
        for (size_t i = 0; i < QUANT_BLOCK; i += V_LANES) {
            vf v = v_mul(v_load(x + i), inverse);
            vi whole = v_round_to_int(v_max(v_set1(-127), v_min(v_set1(127), v)));
            vi_store_bytes(q + i, whole);
            total = vi_add(total, whole);
        }
        scale[b] = max / 127.0F;
        sum[b] = vi_fold_add(total);
    }
}

static inline vf v_silu(vf x)
{
    return v_div(x, v_add(v_set1(1), v_exp(v_sub(v_zero(), x))));
}

static inline vf v_gelu(vf x)
{
    vf cube = v_mul(v_mul(x, x), x);
    vf y = v_mul(v_set1(GELU_SCALE), v_fma(v_set1(GELU_CUBE), cube, x));
    return v_div(x, v_add(v_set1(1), v_exp(v_mul(v_set1(-2), y))));
}

static inline vf v_relu_squared(vf x)
{
    vf y = v_max(v_zero(), x);
    return v_mul(y, y);
}

static inline vf v_swiglu_clamped(vf x)
{
    vf g = v_min(v_set1(SWIGLU_LIMIT), x);
    return v_div(g, v_add(v_set1(1), v_exp(v_mul(v_set1(-SWIGLU_SLOPE), g))));
}

/* What the activated value is multiplied by. */
static inline vf v_factor(vf up)
{
    return up;
}

static inline vf v_factor_clamped(vf up)
{
    vf u = v_max(v_set1(-SWIGLU_LIMIT), v_min(v_set1(SWIGLU_LIMIT), up));
    return v_add(u, v_set1(1));
}

/* The tail goes through the same instructions, so a value does not feel where its slice begins. */
#define DEFINE_ACTIVATE(name, factor)                                                              \
    KERNEL_ACTIVATE(KERNEL_NAME(name))                                                             \
    {                                                                                              \
        size_t i = 0;                                                                              \
        for (; i + V_LANES <= n; i += V_LANES) {                                                   \
            vf y = v_##name(v_load(x + i));                                                        \
            v_store(x + i, up == NULL ? y : v_mul(y, factor(v_load(up + i))));                     \
        }                                                                                          \
        if (i == n) return;                                                                        \
        vf y = v_##name(v_load_n(x + i, n - i));                                                   \
        v_store_n(x + i, up == NULL ? y : v_mul(y, factor(v_load_n(up + i, n - i))), n - i);       \
    }

DEFINE_ACTIVATE(silu, v_factor)
DEFINE_ACTIVATE(gelu, v_factor)
DEFINE_ACTIVATE(relu_squared, v_factor)
DEFINE_ACTIVATE(swiglu_clamped, v_factor_clamped)

static inline vf v_softcap(vf x, float cap)
{
    vf twice = v_mul(v_set1(2), v_div(x, v_set1(cap)));
    vf tail = v_div(v_set1(2), v_add(v_set1(1), v_exp(twice)));
    return v_mul(v_set1(cap), v_sub(v_set1(1), tail));
}

KERNEL_SOFTCAP(KERNEL_NAME(softcap))
{
    size_t i = 0;
    for (; i + V_LANES <= n; i += V_LANES) v_store(x + i, v_softcap(v_load(x + i), cap));
    if (i < n) v_store_n(x + i, v_softcap(v_load_n(x + i, n - i), cap), n - i);
}

KERNEL_STORE(KERNEL_NAME(store_f16))
{
    size_t first = across ? at : at * n, step = across ? KV_BLOCK_POSITIONS : 1;
    for (size_t i = 0; i < n; i += V_LANES) {
        size_t some = n - i < V_LANES ? n - i : V_LANES;
        uint16_t halves[V_LANES];
        v_to_f16(halves, some < V_LANES ? v_load_n(src + i, some) : v_load(src + i));
        for (size_t l = 0; l < some; l++)
            memcpy(block + 2 * (first + (i + l) * step), &halves[l], 2);
    }
}
