/* kernels - see kernels.h: how the table is filled. */
#include "engine/kernels/kernels.h"

/* What every instruction set has, but for AMX: it takes those of AVX-512. */
#define FILL_VECTOR(isa)                                                                           \
    k->quantise = quantise_##isa;                                                                  \
    k->norm[NORM_RMS] = norm_rms_##isa;                                                            \
    k->norm[NORM_LAYER] = norm_layer_##isa;                                                        \
    k->rope[ROPE_INTERLEAVED] = rope_interleaved_##isa;                                            \
    k->rope[ROPE_HALF] = rope_half_##isa;                                                          \
    k->activate[ACT_SILU] = silu_##isa;                                                            \
    k->activate[ACT_GELU] = gelu_##isa;                                                            \
    k->activate[ACT_RELU_SQUARED] = relu_squared_##isa;                                            \
    k->activate[ACT_SWIGLU_CLAMPED] = swiglu_clamped_##isa;                                        \
    k->softcap = softcap_##isa;                                                                    \
    k->attention[KV_F16] = attention_f16_##isa;                                                    \
    k->attention[KV_F32] = attention_f32_##isa;                                                    \
    k->attention[KV_Q8_0] = attention_q8_0_##isa;                                                  \
    k->attention_join = attention_join_##isa;                                                      \
    k->store[KV_F16] = store_f16_##isa;                                                            \
    k->add = add_##isa;                                                                            \
    k->add_scaled = add_scaled_##isa;

static void fill_generic(struct kernels *k)
{
#define FORMAT_GENERIC(id, suffix, q8)                                                             \
    k->format[KERNEL_FORMAT_##id] = (struct format_kernels){                                       \
        .format = FORMAT_##id,                                                                     \
        .reads_q8 = q8,                                                                            \
        .pack = pack_##suffix##_generic,                                                           \
        .matmul = matmul_##suffix##_generic,                                                       \
        .lookup = lookup_##suffix##_generic,                                                       \
    };
    KERNEL_FORMATS(FORMAT_GENERIC)
#undef FORMAT_GENERIC
    FILL_VECTOR(generic)
    k->bite_rows = 60;
    k->bite_panels = 4;
    k->share_panels = 1;
    k->rope[ROPE_NONE] = NULL;
    k->store[KV_F32] = store_f32_generic;
    k->store[KV_Q8_0] = store_q8_0_generic;
    k->load[KV_F16] = load_f16_generic;
    k->load[KV_F32] = load_f32_generic;
    k->load[KV_Q8_0] = load_q8_0_generic;
}

#if defined(TANDEM_KERNELS_X86)
#define FORMAT_AVX2(id, suffix, q8) k->format[KERNEL_FORMAT_##id].matmul = matmul_##suffix##_avx2;
#define FORMAT_AVX_VNNI(id, suffix, q8)                                                            \
    k->format[KERNEL_FORMAT_##id].matmul = matmul_##suffix##_avx_vnni;
#define FORMAT_AVX512(id, suffix, q8)                                                              \
    k->format[KERNEL_FORMAT_##id].matmul = matmul_##suffix##_avx512;

static void override_avx2(struct kernels *k)
{
    KERNEL_FORMATS(FORMAT_AVX2)
    FILL_VECTOR(avx2)
    k->peak_float = peak_float_avx2;
    k->peak_block = peak_block_avx2;
}

static void override_avx_vnni(struct kernels *k)
{
    KERNEL_BLOCK_FORMATS(FORMAT_AVX_VNNI)
    k->peak_float = peak_float_avx_vnni;
    k->peak_block = peak_block_avx_vnni;
}

static void override_avx512(struct kernels *k)
{
    KERNEL_FORMATS(FORMAT_AVX512)
    FILL_VECTOR(avx512)
    k->peak_float = peak_float_avx512;
    k->peak_block = peak_block_avx512;
}

#define FORMAT_AMX(id, suffix, q8) k->format[KERNEL_FORMAT_##id].matmul = matmul_##suffix##_amx;

/* A walk over tiles packs its rows first: many panels are to share that. */
static void override_amx(struct kernels *k)
{
    KERNEL_AMX_FORMATS(FORMAT_AMX)
    k->peak_float = peak_float_amx;
    k->peak_block = peak_block_amx;
    k->bite_rows = 256;
    k->bite_panels = 128;
}
#endif

void kernels_init(struct kernels *k, enum isa isa)
{
    *k = (struct kernels){.isa = isa};
    fill_generic(k);
#if defined(TANDEM_KERNELS_X86)
    if (isa >= ISA_AVX2) override_avx2(k);
    if (isa == ISA_AVX2 && isa_has_avx_vnni()) override_avx_vnni(k);
    if (isa >= ISA_AVX512) override_avx512(k);
    if (isa >= ISA_AMX) override_amx(k);
#endif
}

void kernels_forgo_vnni(struct kernels *k)
{
#if defined(TANDEM_KERNELS_X86)
    if (k->isa == ISA_AVX2) override_avx2(k);
#else
    (void)k;
#endif
}

#define FORMAT_BLAS(id, suffix) k->format[KERNEL_FORMAT_##id].matmul = matmul_##suffix##_blas;

/* A call has to decode its weights first: many rows are to share that. */
void kernels_choose_matmul(struct kernels *k, enum matmul_choice choice)
{
    if (choice == MATMUL_PACKED || (choice == MATMUL_AUTO && k->isa != ISA_GENERIC)) return;
    blas_begin();
    KERNEL_BLAS_FORMATS(FORMAT_BLAS)
    k->bite_rows = 256;
    if (k->bite_panels < BLAS_SHARE_PANELS) k->bite_panels = BLAS_SHARE_PANELS;
    k->share_panels = BLAS_SHARE_PANELS;
}

const struct format_kernels *kernels_find_format(const struct kernels *k, uint32_t format)
{
    for (size_t i = 0; i < KERNEL_FORMAT_COUNT; i++)
        if (k->format[i].format == format) return &k->format[i];
    return NULL;
}
