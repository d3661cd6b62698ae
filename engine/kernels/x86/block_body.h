/* block_body - products of Q8_0 and Q4_0, written once for every vector width; included by each
 * file of an instruction set after its simd_*.h, its dot_*.h where there is one, and matmul_body.h.
 */

/* Unsigned quants of k = 4j .. 4j + 3 of a block, for the rows of one vector. */
typedef vi quants_fn(const uint8_t *quants, int j, int v);

INLINE vi quants_q8_0(const uint8_t *quants, int j, int v)
{
    return vi_load(quants + 4 * (j * PANEL_ROWS + v * V_LANES));
}

INLINE vi quants_q4_0(const uint8_t *quants, int j, int v)
{
    vi halves = vi_load(quants + 4 * (j % 4 * PANEL_ROWS + v * V_LANES));
    return vi_and(j < 4 ? halves : vi_shift_right(halves, 4), vi_set1(0x0f0f0f0f));
}

INLINE vi broadcast_4(const int8_t *q)
{
    int32_t four;
    memcpy(&four, q, sizeof four);
    return vi_set1(four);
}

/* block_bytes: of a block of one row in the file. bits: of a quant. */
INLINE void tile_block(const struct tile *t, int rows, int panels, size_t block_bytes, int bits,
                       quants_fn *quants)
{
    size_t n_blocks = t->w->n_in / QUANT_BLOCK;
    const uint8_t *panel[MAX_PANELS];
    const int zero = 1 << (bits - 1);
    tile_acc acc;
    UNROLL_FOR (p, panels) {
        panel[p] = tile_panel(t, p);
        UNROLL_FOR (r, rows)
            UNROLL_FOR (v, PANEL_VECTORS) acc[r][p][v] = v_zero();
    }
    for (size_t b = 0; b < n_blocks; b++) {
        size_t at = t->row * n_blocks + b; /* of the first row; the next ones are n_blocks apart */
        vi sum[MAX_ROWS][MAX_PANELS][PANEL_VECTORS];
        UNROLL_FOR (p, panels) fetch_ahead(panel[p], block_bytes * PANEL_ROWS, rows);
        UNROLL_FOR (r, rows)
            UNROLL_FOR (p, panels)
                UNROLL_FOR (v, PANEL_VECTORS)
                    sum[r][p][v] = dot_start(bits, zero, t->x->sum[at + (size_t)r * n_blocks]);
        UNROLL_FOR (j, QUANT_BLOCK / 4) {
            vi w[MAX_PANELS][PANEL_VECTORS];
            UNROLL_FOR (p, panels)
                UNROLL_FOR (v, PANEL_VECTORS) w[p][v] = quants(panel[p] + SCALES_BYTES, j, v);
            UNROLL_FOR (r, rows) {
                vi x = broadcast_4(t->x->q8 + (at + (size_t)r * n_blocks) * QUANT_BLOCK + 4 * j);
                UNROLL_FOR (p, panels)
                    UNROLL_FOR (v, PANEL_VECTORS)
                        sum[r][p][v] = dot_4(bits, sum[r][p][v], w[p][v], x);
            }
        }
        UNROLL_FOR (p, panels)
            UNROLL_FOR (v, PANEL_VECTORS) {
                vf scale = v_load_f16(panel[p] + 2 * v * V_LANES);
                UNROLL_FOR (r, rows) {
                    size_t of_row = at + (size_t)r * n_blocks;
                    vf both = v_mul(scale, v_set1(t->x->scale[of_row]));
                    vi whole = dot_end(bits, zero, sum[r][p][v], t->x->sum[of_row]);
                    acc[r][p][v] = v_fma(both, vi_to_float(whole), acc[r][p][v]);
                }
            }
        UNROLL_FOR (p, panels) panel[p] += block_bytes * PANEL_ROWS;
    }
    tile_store(t, rows, panels, acc);
}

INLINE void tile_q8_0(const struct tile *t, int rows, int panels)
{
    tile_block(t, rows, panels, 34, 8, quants_q8_0);
}

INLINE void tile_q4_0(const struct tile *t, int rows, int panels)
{
    tile_block(t, rows, panels, 18, 4, quants_q4_0);
}

DEFINE_MATMUL(q8_0, PANEL_ROWS * 34 * (w->n_in / QUANT_BLOCK), BLOCK)
DEFINE_MATMUL(q4_0, PANEL_ROWS * 18 * (w->n_in / QUANT_BLOCK), BLOCK)
