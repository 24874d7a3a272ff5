/* Pools, with channels innermost. */
#include "cpu/kernels/kernels.h"
#include "cpu/kernels/vector.h"

/* Index of the first element of output (p, q)'s window. */
static size_t window(const struct dt_pooling *pool, int p, int q)
{
    return ((size_t)(p * pool->stride) * (size_t)pool->w + (size_t)(q * pool->stride)) *
           (size_t)pool->c;
}

static size_t element(const struct dt_pooling *pool, int r, int s)
{
    return ((size_t)r * (size_t)pool->w + (size_t)s) * (size_t)pool->c;
}

typedef uint16_t vector_of_u16 __attribute__((vector_size(2 * VL), aligned(2), may_alias));

/* n channels of one window, at most VL; NaN counts as the largest number, and the first of equal
 * elements wins. */
ALWAYS_INLINE void window_max(const struct dt_pooling *pool, const float *x, const int n, float *y,
                              uint16_t *winner)
{
    vf best = load(x);
    vi chosen = {0};
    for (int r = 0; r < pool->size_h; r++) {
        for (int s = 0; s < pool->size_w; s++) {
            const vf v = load(x + element(pool, r, s));
            const vi better = (v > best) | ((v != v) & (best == best));
            best = blend(better, v, best);
            chosen = (better & (r * pool->size_w + s)) | (~better & chosen);
        }
    }
    store_first(y, best, n);
    if (winner != NULL) {
        const vector_of_u16 narrow = __builtin_convertvector(chosen, vector_of_u16);
        copy_few(VL_LOG + 1, winner, &narrow, (size_t)n * sizeof narrow[0]);
    }
}

void DT_KERNEL(max_pool)(const struct dt_pooling *pool, const float *x, float *y, uint16_t *winner)
{
    const int n_whole = pool->c / VL * VL;
    for (int p = 0; p < pool->out_h; p++) {
        for (int q = 0; q < pool->out_w;
             q++, y += pool->c, winner += winner != NULL ? pool->c : 0) {
            const float *from = x + window(pool, p, q);
            for (int c = 0; c < n_whole; c += VL) {
                window_max(pool, from + c, VL, y + c, winner != NULL ? winner + c : NULL);
            }
            if (n_whole < pool->c) {
                window_max(pool, from + n_whole, pool->c - n_whole, y + n_whole,
                           winner != NULL ? winner + n_whole : NULL);
            }
        }
    }
}

void DT_KERNEL(max_pool_backward)(const struct dt_pooling *pool, const float *dy,
                                  const uint16_t *winner, float *dx)
{
    memset(dx, 0, (size_t)pool->h * (size_t)pool->w * (size_t)pool->c * sizeof(float));
    for (int p = 0; p < pool->out_h; p++) {
        for (int q = 0; q < pool->out_w; q++) {
            float *to = dx + window(pool, p, q);
            for (int r = 0; r < pool->size_h; r++) {
                for (int s = 0; s < pool->size_w; s++) {
                    float *x = to + element(pool, r, s);
                    const uint16_t place = (uint16_t)(r * pool->size_w + s);
                    for (int c = 0; c < pool->c; c++) {
                        x[c] += winner[c] == place ? dy[c] : 0.0f;
                    }
                }
            }
            dy += pool->c;
            winner += pool->c;
        }
    }
}

void DT_KERNEL(avg_pool)(const struct dt_pooling *pool, const float *x, float *y)
{
    const float share = 1.0f / (float)(pool->size_h * pool->size_w);
    for (int p = 0; p < pool->out_h; p++) {
        for (int q = 0; q < pool->out_w; q++, y += pool->c) {
            const float *from = x + window(pool, p, q);
            for (int c = 0; c < pool->c; c += VL) {
                vf sum = {0};
                for (int r = 0; r < pool->size_h; r++) {
                    for (int s = 0; s < pool->size_w; s++) {
                        sum += load(from + element(pool, r, s) + c);
                    }
                }
                store_first(y + c, sum * share, dt_min(VL, pool->c - c));
            }
        }
    }
}

void DT_KERNEL(avg_pool_backward)(const struct dt_pooling *pool, const float *dy, float *dx)
{
    const float share = 1.0f / (float)(pool->size_h * pool->size_w);
    const bool adds =
        pool->stride < pool->size_h || pool->stride < pool->size_w; /* windows share elements */
    memset(dx, 0, (size_t)pool->h * (size_t)pool->w * (size_t)pool->c * sizeof(float));
    for (int p = 0; p < pool->out_h; p++) {
        for (int q = 0; q < pool->out_w; q++, dy += pool->c) {
            float *to = dx + window(pool, p, q);
            for (int c = 0; c < pool->c; c += VL) {
                const vf part = load(dy + c) * share;
                for (int r = 0; r < pool->size_h; r++) {
                    for (int s = 0; s < pool->size_w; s++) {
                        float *sum = to + element(pool, r, s) + c;
                        store_first(sum, adds ? load(sum) + part : part, dt_min(VL, pool->c - c));
                    }
                }
            }
        }
    }
}
