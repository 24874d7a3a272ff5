/* Activations, dropout and the change of layout. Plain loops: the compiler makes vectors of them. */
#include "cpu/cpu_kernels.h"

#include <math.h>

#include "base/rng.h"
#include "cpu/cpu_vector.h"

void DT_KERNEL(activate)(enum dt_activation activation, size_t n_elems, float *x)
{
    switch (activation) {
    case DT_ACTIVATION_RELU:
        for (size_t i = 0; i < n_elems; i++) {
            x[i] = x[i] < 0 ? 0.0f : x[i]; /* this way round a NaN stays one */
        }
        break;
    case DT_ACTIVATION_TANH:
        for (size_t i = 0; i < n_elems; i++) {
            x[i] = tanhf(x[i]);
        }
        break;
    case DT_ACTIVATION_SIGMOID:
        for (size_t i = 0; i < n_elems; i++) {
            x[i] = 1.0f / (1.0f + expf(-x[i]));
        }
        break;
    case DT_ACTIVATION_NONE:
        break;
    }
}

void DT_KERNEL(activate_backward)(enum dt_activation activation, size_t n_elems, const float *y, float y_scale, float *dy)
{
    switch (activation) {
    case DT_ACTIVATION_RELU:
        for (size_t i = 0; i < n_elems; i++) {
            dy[i] = y[i] > 0 ? dy[i] : 0.0f;
        }
        break;
    case DT_ACTIVATION_TANH:
        for (size_t i = 0; i < n_elems; i++) {
            const float a = y[i] * y_scale;
            dy[i] *= 1.0f - a * a;
        }
        break;
    case DT_ACTIVATION_SIGMOID:
        for (size_t i = 0; i < n_elems; i++) {
            const float a = y[i] * y_scale;
            dy[i] *= a * (1.0f - a);
        }
        break;
    case DT_ACTIVATION_NONE:
        break;
    }
}

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "dropout_mask reads the low half of a word first");

/* One round's product with a constant: both halves of all lanes. */
ALWAYS_INLINE void multiply_wide(vu a, uint32_t factor, vu *high, vu *low)
{
    const vu even = multiply_even(a, factor), odd = multiply_even((vu)((vu64)a >> 32), factor);
    *low = (vu)(((vu64)even & 0xFFFFFFFFu) | (vu64)odd << 32);
    *high = (vu)((vu64)even >> 32 | ((vu64)odd & 0xFFFFFFFF00000000u));
}

/* base/rng.h's dt_rng_words for VL neighbouring groups: words[i] are those of group first + i. */
static void rng_groups(const struct dt_dropout_key *key, uint32_t first, uint32_t words[VL][4])
{
    uint32_t key0 = (uint32_t)key->seed, key1 = (uint32_t)(key->seed >> 32);
    vu c[4] = {(vu)lane_numbers() + first, (vu){0} + key->sample, (vu){0} + key->epoch,
               (vu){0} + ((uint32_t)DT_RNG_DROPOUT << 24 | (key->stream & 0xFFFFFFu))};
    for (int round = 0; round < 10; round++) {
        vu high0, low0, high1, low1;
        multiply_wide(c[0], 0xD2511F53u, &high0, &low0);
        multiply_wide(c[2], 0xCD9E8D57u, &high1, &low1);
        c[0] = high1 ^ c[1] ^ key0;
        c[1] = low1;
        c[2] = high0 ^ c[3] ^ key1;
        c[3] = low0;
        key0 += 0x9E3779B9u;
        key1 += 0xBB67AE85u;
    }
    uint32_t by_word[4][VL];
    memcpy(by_word, c, sizeof by_word);
    for (int i = 0; i < VL; i++) {
        for (int j = 0; j < 4; j++) {
            words[i][j] = by_word[j][i];
        }
    }
}

void DT_KERNEL(dropout_mask)(const struct dt_dropout_key *key, size_t n_units, uint8_t *keep)
{
    enum { UNITS = VL * DT_DROPOUT_UNITS_PER_GROUP };
    for (size_t begin = 0; begin < n_units; begin += UNITS) {
        uint32_t words[VL][4];
        uint16_t half[UNITS];
        uint8_t kept[UNITS];
        rng_groups(key, (uint32_t)(begin / DT_DROPOUT_UNITS_PER_GROUP), words);
        memcpy(half, words, sizeof half);
        for (int i = 0; i < UNITS; i++) {
            kept[i] = half[i] >= key->threshold;
        }
        memcpy(keep + begin, kept, n_units - begin < UNITS ? n_units - begin : UNITS);
    }
}

void DT_KERNEL(dropout)(size_t n_units, const uint8_t *keep, float scale, float *x)
{
    for (size_t i = 0; i < n_units; i++) {
        x[i] *= keep[i] ? scale : 0.0f;
    }
}

#define BLOCK 16

void DT_KERNEL(transpose)(size_t n_rows, size_t n_cols, const float *from, float *to)
{
    for (size_t row = 0; row < n_rows; row += BLOCK) {
        const size_t row_end = row + BLOCK < n_rows ? row + BLOCK : n_rows;
        for (size_t col = 0; col < n_cols; col++) {
            for (size_t i = row; i < row_end; i++) {
                to[col * n_rows + i] = from[i * n_cols + col];
            }
        }
    }
}
