/* The input's gradient of a convolution 3 x 3 by Winograd's method: what winograd_kernel.h
 * computes, differentiated. With e the gradient of a tile's 4 x 4 outputs, that of its 6 x 6 inputs
 * is B [sum over filters of (G g G') * (A e A')] B'. Neighbouring tiles share two rows or columns
 * of inputs, whose gradients add up. */
#include "cpu/kernels/winograd/winograd_kernel.h"

/* B: each input is the sum over the frequencies of its coefficient in the row of B'. */
ALWAYS_INLINE void data_row(const vf m[SIDE], vf d[SIDE])
{
    const vf outer = 1.5f * m[0] + (2 * m[3] - 0.5f * m[4]);
    d[0] = m[0];
    d[1] = (m[2] - m[1]) + (m[5] - outer);
    d[2] = ((0.5f * m[1] - 2.5f * m[2]) - (m[3] + m[4])) - (2 * m[0] + 1.5f * m[5]);
    d[3] = (outer - 2 * m[5]) + (2.5f * m[1] + 0.5f * m[2]);
    d[4] = ((m[0] + m[1]) + (m[2] + m[3])) + (m[4] + 1.5f * m[5]);
    d[5] = m[5];
}

/* Adds B m B' of the tile at (top, left) to the gradient of its image. */
static void add_tile(const struct dt_winograd *w, const float *m, int top, int left, float *dx)
{
    const size_t n_c = (size_t)w->k, row = (size_t)w->out_w * n_c;
    const int n_rows = dt_min(SIDE, w->out_h - top), n_columns = dt_min(SIDE, w->out_w - left);
    dx += (size_t)top * row + (size_t)left * n_c;
    for (size_t c = 0; c < n_c; c += VL, m += w->m_block) {
        const int n_lanes = n_c - c < VL ? (int)(n_c - c) : VL;
        vf rows[SIDE][SIDE];
        UNROLLED(j, SIDE) {
            vf f[SIDE], d[SIDE];
            UNROLLED(i, SIDE) {
                f[i] = load(m + (i * SIDE + j) * VL);
            }
            data_row(f, d);
            UNROLLED(i, SIDE) {
                rows[i][j] = d[i];
            }
        }
        for (int i = 0; i < n_rows; i++) {
            vf d[SIDE];
            float *to = dx + (size_t)i * row + c;
            data_row(rows[i], d);
            UNROLLED(j, SIDE) {
                if (j < n_columns) {
                    float *at = to + (size_t)j * n_c;
                    store_lanes(at, load(at) + d[j], n_lanes);
                }
            }
        }
    }
}

void DT_KERNEL(winograd_data)(const struct dt_winograd *w, int n_images, const float *dy,
                              const float *packed, float *dx, float *scratch)
{
    const int n_tiles = w->rows * w->columns, n_all = n_images * n_tiles;
    const size_t n_dx = (size_t)w->out_h * (size_t)w->out_w * (size_t)w->k;
    float *v = scratch, *m = v + (size_t)w->group * w->v_tile,
          *edge = m + (size_t)w->group * w->m_tile;
    memset(dx, 0, (size_t)n_images * n_dx * sizeof(float));
    for (int first = 0; first < n_all; first += w->group) {
        const int n = dt_min(w->group, n_all - first);
#define TOP(at) ((at) % n_tiles / w->columns * M)
#define LEFT(at) ((at) % n_tiles % w->columns * M)
        for (int i = 0; i < n; i++) {
            const int at = first + i;
            DT_KERNEL(winograd_tile_gradient)
            (w->c, w->h, w->w, dy + (size_t)(at / n_tiles) * dt_winograd_image_elems(w), TOP(at),
             LEFT(at), edge, w->v_freq, v + (size_t)i * w->v_tile);
        }
        DT_KERNEL(winograd_products)(w, 0, N_FREQS, n, v, packed, m);
        for (int i = 0; i < n; i++) {
            const int at = first + i;
            add_tile(w, m + (size_t)i * w->m_tile, TOP(at), LEFT(at),
                     dx + (size_t)(at / n_tiles) * n_dx);
        }
    }
}
