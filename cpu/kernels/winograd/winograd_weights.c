/* Winograd's transform of the filters; winograd_kernel.h explains the method. */
#include "cpu/kernels/winograd/winograd_kernel.h"

/* G: (1, p, p^2) divided by the product of p's distances from the other points. */
static const float filter_matrix[SIDE][3] = {{1, 0, 0},
                                             {1 / 3.0f, 1 / 3.0f, 1 / 3.0f},
                                             {-1 / 3.0f, 1 / 3.0f, -1 / 3.0f},
                                             {-16 / 15.0f, -8 / 15.0f, -4 / 15.0f},
                                             {1 / 15.0f, -2 / 15.0f, 4 / 15.0f},
                                             {0, 0, 1}};

/* Taps from `top` and `left` on of VL filters of channel c from filter k on, (K C R S); zeros after
 * the last filter, and for taps that the parts above or to the left have. */
ALWAYS_INLINE void load_filters(const struct dt_winograd *w, const float *weight, int k, int c,
                                int top, int left, vf g[3][3])
{
    float lanes[9][VL] = {{0}};
    const int n = dt_min(VL, w->k - k), kernel = dt_winograd_kernel(w);
    for (int i = 0; i < n; i++) {
        const float *of =
            weight + ((size_t)(k + i) * (size_t)w->c + (size_t)c) * (size_t)(kernel * kernel);
        for (int tap = 0; tap < 9; tap++) {
            const int r = top + tap / 3, s = left + tap % 3;
            const bool before = (top > 0 && r < 3) || (left > 0 && s < 3);
            lanes[tap][i] = before ? 0.0f : of[r * kernel + s];
        }
    }
    memcpy(g, lanes, sizeof lanes);
}

/* G g G' of VL filters; frequencies are `step` floats apart. */
ALWAYS_INLINE void transform_filters(const vf g[3][3], float *u, size_t step)
{
    for (int i = 0; i < SIDE; i++) {
        const float *G = filter_matrix[i];
        vf row[3];
        UNROLLED(s, 3) {
            row[s] = G[0] * g[0][s] + G[1] * g[1][s] + G[2] * g[2][s];
        }
        UNROLLED(j, SIDE) {
            G = filter_matrix[j];
            store(u + (size_t)(i * SIDE + j) * step, G[0] * row[0] + G[1] * row[1] + G[2] * row[2]);
        }
    }
}

/* Packed: [frequency][panel of filters][channel][filter]. */
void DT_KERNEL(winograd_pack)(const struct dt_winograd *w, const float *weight, float *packed)
{
    for (int k0 = 0; k0 < w->k; k0 += PANEL) {
        const int n = panel_vectors(w->k, k0);
        for (int i = 0; i < dt_winograd_depth(w); i++) {
            const int part = i / w->c, top = part / 2 * w->wider, left = part % 2 * w->wider;
            for (int v = 0; v < n; v++, packed += VL) {
                vf g[3][3];
                load_filters(w, weight, k0 + v * VL, i % w->c, top, left, g);
                transform_filters((const vf(*)[3])g, packed, w->u_freq);
            }
        }
    }
}
