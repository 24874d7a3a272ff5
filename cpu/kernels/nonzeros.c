/* Finds the elements of an output gradient that survive ReLU, max pool and dropout, without writing
 * the zeros in between. */
#include "cpu/kernels/kernels.h"
#include "cpu/kernels/vector.h"

/* Bits of up to 64 floats: set if nonzero. */
static uint64_t nonzero_bits(const float *x, int n)
{
    uint64_t bits = 0;
    for (int i = 0; i < n; i += VL) {
        bits |= nonzero_lanes(load(x + i)) << i;
    }
    return n < 64 ? bits & (((uint64_t)1 << n) - 1) : bits;
}

/* Bits of the next 64 winners: set if equal to `place`. */
ALWAYS_INLINE uint64_t place_bits(const uint16_t *winner, int place)
{
#if defined(__AVX512BW__)
    const __m512i wanted = _mm512_set1_epi16((short)place);
    return _mm512_cmpeq_epi16_mask(_mm512_loadu_si512(winner), wanted) |
           (uint64_t)_mm512_cmpeq_epi16_mask(_mm512_loadu_si512(winner + 32), wanted) << 32;
#elif defined(__SSE2__)
    const __m128i wanted = _mm_set1_epi16((short)place);
    uint64_t bits = 0;
    UNROLL
    for (int i = 0; i < 64; i += 16) {
        const __m128i low = _mm_cmpeq_epi16(_mm_loadu_si128((const __m128i *)(winner + i)), wanted);
        const __m128i high =
            _mm_cmpeq_epi16(_mm_loadu_si128((const __m128i *)(winner + i + 8)), wanted);
        bits |= (uint64_t)(uint32_t)_mm_movemask_epi8(_mm_packs_epi16(low, high)) << i;
    }
    return bits;
#else
    uint64_t bits = 0;
    for (int i = 0; i < 64; i++) {
        bits |= (uint64_t)(winner[i] == place) << i;
    }
    return bits;
#endif
}

size_t DT_KERNEL(count_nonzero)(size_t n_elems, const float *x)
{
    size_t n = 0;
    for (size_t i = 0; i < n_elems; i += 64) {
        n += (size_t)__builtin_popcountll(
            nonzero_bits(x + i, n_elems - i < 64 ? (int)(n_elems - i) : 64));
    }
    return n;
}

size_t DT_KERNEL(nonzeros)(size_t n_positions, int k, const float *dy, uint64_t *bitmask)
{
    size_t n = 0;
    for (size_t i = 0; i < n_positions; i++, dy += k) {
        for (int k0 = 0; k0 < k; k0 += 64) {
            *bitmask = nonzero_bits(dy + k0, k - k0 < 64 ? k - k0 : 64);
            n += (size_t)__builtin_popcountll(*bitmask++);
        }
    }
    return n;
}

size_t DT_KERNEL(nonzeros_pooled)(const struct dt_pooling *pool, const float *dy,
                                  const uint16_t *winner, uint64_t *bitmask)
{
    const size_t n_words = dt_nonzero_words(pool->c), row = (size_t)pool->w * n_words;
    size_t n = 0;
    for (int p = 0; p < pool->out_h; p++) {
        for (int q = 0; q < pool->out_w; q++, dy += pool->c, winner += pool->c) {
            uint64_t *window =
                bitmask + (size_t)(p * pool->stride) * row + (size_t)(q * pool->stride) * n_words;
            for (int k0 = 0; k0 < pool->c; k0 += 64, window++) {
                const uint64_t bits = nonzero_bits(dy + k0, pool->c - k0 < 64 ? pool->c - k0 : 64);
                n += (size_t)__builtin_popcountll(bits);
                for (int place = 0, r = 0; r < pool->size_h; r++) {
                    for (int s = 0; s < pool->size_w; s++, place++) {
                        window[(size_t)r * row + (size_t)s * n_words] =
                            bits & place_bits(winner + k0, place);
                    }
                }
            }
        }
    }
    return n;
}

size_t DT_KERNEL(count_bits)(size_t n_words, const uint64_t *bitmask)
{
    size_t n = 0;
    for (size_t i = 0; i < n_words; i++) {
        n += (size_t)__builtin_popcountll(bitmask[i]);
    }
    return n;
}

void DT_KERNEL(spread_nonzeros)(const struct dt_conv *conv, const struct dt_nonzeros *from,
                                float *dy)
{
    const uint64_t *bitmask = from->bitmask;
    memset(dy, 0, (size_t)conv->out_h * (size_t)conv->out_w * (size_t)conv->k * sizeof(float));
    for (int i = 0; i < conv->out_h; i++) {
        for (int q = 0; q < conv->out_w; q++, dy += conv->k) {
            const float *value = from->value + from->row_at[i] + from->column_at[q];
            for (int k0 = 0; k0 < conv->k; k0 += 64) {
                for (uint64_t bits = *bitmask++; bits != 0; bits &= bits - 1) {
                    const int k = k0 + __builtin_ctzll(bits);
                    dy[k] = value[k] * from->scale;
                }
            }
        }
    }
}
