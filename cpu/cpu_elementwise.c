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

#define GROUPS 16 /* Philox calls side by side */

/* base/rng.h's dt_rng_words for GROUPS neighbouring groups; words[j][i] is word j of group first + i. */
static void rng_groups(const struct dt_dropout_key *key, uint32_t first, uint32_t words[4][GROUPS])
{
    uint32_t key0 = (uint32_t)key->seed, key1 = (uint32_t)(key->seed >> 32);
    for (uint32_t i = 0; i < GROUPS; i++) {
        words[0][i] = first + i;
        words[1][i] = key->sample;
        words[2][i] = key->epoch;
        words[3][i] = (uint32_t)DT_RNG_DROPOUT << 24 | (key->stream & 0xFFFFFFu);
    }
    for (int round = 0; round < 10; round++) {
        for (int i = 0; i < GROUPS; i++) {
            const uint64_t p0 = (uint64_t)0xD2511F53u * words[0][i], p1 = (uint64_t)0xCD9E8D57u * words[2][i];
            words[0][i] = (uint32_t)(p1 >> 32) ^ words[1][i] ^ key0;
            words[1][i] = (uint32_t)p1;
            words[2][i] = (uint32_t)(p0 >> 32) ^ words[3][i] ^ key1;
            words[3][i] = (uint32_t)p0;
        }
        key0 += 0x9E3779B9u;
        key1 += 0xBB67AE85u;
    }
}

void DT_KERNEL(dropout_mask)(const struct dt_dropout_key *key, size_t n_units, uint8_t *keep)
{
    enum { UNITS = GROUPS * DT_DROPOUT_UNITS_PER_GROUP };
    for (size_t begin = 0; begin < n_units; begin += UNITS) {
        uint32_t words[4][GROUPS];
        uint8_t kept[UNITS];
        rng_groups(key, (uint32_t)(begin / DT_DROPOUT_UNITS_PER_GROUP), words);
        for (int i = 0; i < GROUPS; i++) {
            for (int j = 0; j < 4; j++) {
                kept[8 * i + 2 * j] = (words[j][i] & 0xFFFFu) >= key->threshold;
                kept[8 * i + 2 * j + 1] = words[j][i] >> 16 >= key->threshold;
            }
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
