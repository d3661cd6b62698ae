/* float_body - products of float formats, written once for every vector width; included by one file
 * of each instruction set after its simd_*.h and matmul_body.h. */

/* Weights of k and k + 1, and of the last k where n_in is odd, of one vector of a panel. */
typedef void load_pair_fn(const uint8_t *panel, size_t k, int v, vf *even, vf *odd);
typedef vf load_last_fn(const uint8_t *panel, size_t k, int v);

INLINE vf last_f32(const uint8_t *panel, size_t k, int v)
{
    return v_load((const float *)panel + k * PANEL_ROWS + v * V_LANES);
}

INLINE void pair_f32(const uint8_t *panel, size_t k, int v, vf *even, vf *odd)
{
    *even = last_f32(panel, k, v);
    *odd = last_f32(panel, k + 1, v);
}

INLINE vf last_f16(const uint8_t *panel, size_t k, int v)
{
    return v_load_f16(panel + 2 * (k * PANEL_ROWS + (size_t)v * V_LANES));
}

INLINE void pair_f16(const uint8_t *panel, size_t k, int v, vf *even, vf *odd)
{
    *even = last_f16(panel, k, v);
    *odd = last_f16(panel, k + 1, v);
}

INLINE vf last_bf16(const uint8_t *panel, size_t k, int v)
{
    return v_load_bf16(panel + 2 * (k * PANEL_ROWS + (size_t)v * V_LANES));
}

INLINE void pair_bf16(const uint8_t *panel, size_t k, int v, vf *even, vf *odd)
{
    vi raw = vi_load(panel + 2 * (k * PANEL_ROWS + (size_t)v * 2 * V_LANES));
    *even = vi_as_float(vi_shift_left(raw, 16));
    *odd = vi_as_float(vi_and(raw, vi_set1((int32_t)0xffff0000)));
}

INLINE void tile_float(const struct tile *t, int rows, int panels, size_t value_bytes,
                       load_pair_fn *load_pair, load_last_fn *load_last)
{
    size_t n_in = t->w->n_in, k = 0;
    const float *x = t->x->f32 + t->row * n_in;
    const uint8_t *panel[MAX_PANELS];
    tile_acc acc;
    UNROLL_FOR (p, panels) {
        panel[p] = tile_panel(t, p);
        UNROLL_FOR (r, rows)
            UNROLL_FOR (v, PANEL_VECTORS) acc[r][p][v] = v_zero();
    }
    for (; k + 2 <= n_in; k += 2) {
        vf even[MAX_PANELS][PANEL_VECTORS], odd[MAX_PANELS][PANEL_VECTORS];
        UNROLL_FOR (p, panels)
            fetch_ahead(panel[p] + k * PANEL_ROWS * value_bytes, 2 * PANEL_ROWS * value_bytes,
                        rows);
        UNROLL_FOR (p, panels)
            UNROLL_FOR (v, PANEL_VECTORS) load_pair(panel[p], k, v, &even[p][v], &odd[p][v]);
        UNROLL_FOR (r, rows) {
            vf x0 = v_set1(x[(size_t)r * n_in + k]);
            UNROLL_FOR (p, panels)
                UNROLL_FOR (v, PANEL_VECTORS) acc[r][p][v] = v_fma(even[p][v], x0, acc[r][p][v]);
        }
        UNROLL_FOR (r, rows) {
            vf x1 = v_set1(x[(size_t)r * n_in + k + 1]);
            UNROLL_FOR (p, panels)
                UNROLL_FOR (v, PANEL_VECTORS) acc[r][p][v] = v_fma(odd[p][v], x1, acc[r][p][v]);
        }
    }
    if (k < n_in)
        UNROLL_FOR (p, panels)
            UNROLL_FOR (v, PANEL_VECTORS) {
                vf weights = load_last(panel[p], k, v);
                UNROLL_FOR (r, rows)
                    acc[r][p][v] = v_fma(weights, v_set1(x[(size_t)r * n_in + k]), acc[r][p][v]);
            }
    tile_store(t, rows, panels, acc);
}

INLINE void tile_f32(const struct tile *t, int rows, int panels)
{
    tile_float(t, rows, panels, 4, pair_f32, last_f32);
}

INLINE void tile_f16(const struct tile *t, int rows, int panels)
{
    tile_float(t, rows, panels, 2, pair_f16, last_f16);
}

INLINE void tile_bf16(const struct tile *t, int rows, int panels)
{
    tile_float(t, rows, panels, 2, pair_bf16, last_bf16);
}

DEFINE_MATMUL(f32, PANEL_ROWS * 4 * w->n_in, FLOAT)
DEFINE_MATMUL(f16, PANEL_ROWS * 2 * w->n_in, FLOAT)
DEFINE_MATMUL(bf16, PANEL_ROWS * 2 * w->n_in, FLOAT)
