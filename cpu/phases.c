/* A convolution 5 x 5 or 6 x 6 of stride 2 as one of 3 x 3 and stride 1, so that Winograd's method
 * applies: over an image of half the height and width, whose pixels hold the four of a square, one
 * of each phase, as channels. Tap (r, s) of a window meets phase (r % 2, s % 2). A kernel of 5 gets
 * a sixth row and column of zeros. */
#include "cpu/block_state.h"

#include <string.h>

bool dt_cpu_may_split(const struct dt_block *b)
{
    return b->stride == 2 && (b->kernel == 5 || b->kernel == 6);
}

struct dt_winograd dt_cpu_phases_shape(const struct dt_conv *conv)
{
    return (struct dt_winograd){.c = 4 * conv->c,
                                .h = (conv->h + 1) / 2,
                                .w = (conv->w + 1) / 2,
                                .k = conv->k,
                                .out_h = conv->out_h,
                                .out_w = conv->out_w};
}

void dt_cpu_split_phases(const struct dt_block_state *state, const float *x, float *phases)
{
    const struct dt_block *b = &state->block;
    const size_t n_c = (size_t)b->in.c, row = (size_t)state->conv.winograd.w * 4 * n_c;
    for (int i = 0; i < b->in.h; i++) {
        const int r = i + b->pad_before_h;
        float *to = phases + (size_t)(r / 2) * row + (size_t)(r % 2) * 2 * n_c;
        for (int j = 0; j < b->in.w; j++, x += n_c) {
            const int s = j + b->pad_before_w;
            memcpy(to + ((size_t)(s / 2) * 4 + (size_t)(s % 2)) * n_c, x, n_c * sizeof(float));
        }
    }
}

void dt_cpu_phase_weights(const struct dt_conv *conv, const float *weight, float *to)
{
    const int n = conv->kernel;
    for (int k = 0; k < conv->k; k++, weight += (size_t)conv->c * (size_t)(n * n)) {
        for (int i = 0; i < 4 * conv->c; i++) {
            const float *of = weight + (size_t)(i % conv->c) * (size_t)(n * n);
            for (int tap = 0; tap < 9; tap++) {
                const int r = tap / 3 * 2 + i / conv->c / 2, s = tap % 3 * 2 + i / conv->c % 2;
                *to++ = r < n && s < n ? of[r * n + s] : 0.0f;
            }
        }
    }
}
