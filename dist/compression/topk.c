/* The k numbers that are largest without their sign, NaN being larger than all, and of equal ones
 * those that come first.
 *
 * k places, 32 bits each, in rising order, and then the k numbers. The k-th largest is found by
 * counting: without its sign, a float's bits are in the order of its size, so three counts of 11,
 * 10 and 10 of them, from the top, need neither sorting nor memory. */
#include <math.h>

#include "dist/compression/codec.h"

static size_t n_sent(const struct dt_codec *codec, size_t n)
{
    DT_ASSERT(codec->spec.ratio > 0 && codec->spec.ratio <= 1);
    const size_t k = (size_t)floor(codec->spec.ratio * (double)n + 0.5);
    return k < 1 ? 1 : k < n ? k : n;
}

static size_t topk_bytes(const struct dt_codec *codec, size_t begin, size_t n)
{
    (void)begin;
    return n_sent(codec, n) * (sizeof(uint32_t) + sizeof(float));
}

static inline uint32_t size_bits(float x)
{
    return dt_float_bits(x) & 0x7FFFFFFFu;
}

struct selection {
    uint32_t least; /* the k-th largest number's bits, without its sign */
    size_t n_equal; /* how many of these are among the k */
};

/* Finds the next n_bits of the threshold among the numbers that begin with the bits found so far,
 * [low_bit + n_bits, 31); *n_left of those numbers are to be sent. */
static void select_bits(const float *from, size_t n, int low_bit, int n_bits,
                        struct selection *found)
{
    uint32_t counts[1 << 11] = {0}, place = (1u << n_bits) - 1;
    for (size_t i = 0; i < n; i++) {
        const uint32_t bits = size_bits(from[i]);
        if ((bits ^ found->least) >> (low_bit + n_bits) == 0) {
            counts[bits >> low_bit & ((1u << n_bits) - 1)]++;
        }
    }
    while (counts[place] < found->n_equal) {
        found->n_equal -= counts[place--];
    }
    DT_ASSERT(found->n_equal >= 1 && found->n_equal <= counts[place]);
    found->least |= place << low_bit;
}

static struct selection select_largest(const float *from, size_t n, size_t k)
{
    struct selection found = {.n_equal = k};
    select_bits(from, n, 20, 11, &found);
    select_bits(from, n, 10, 10, &found);
    select_bits(from, n, 0, 10, &found);
    return found;
}

static void topk_encode(const struct dt_codec *codec, uint64_t draw, const float *from,
                        size_t begin, size_t n, uint8_t *bytes)
{
    (void)draw, (void)begin;
    const size_t k = n_sent(codec, n);
    struct selection left = select_largest(from, n, k);
    uint8_t *numbers = bytes + k * sizeof(uint32_t);
    for (size_t i = 0; i < n; i++) {
        const uint32_t bits = size_bits(from[i]), place = (uint32_t)i;
        const bool equal = bits == left.least && left.n_equal > 0;
        if (bits > left.least || equal) {
            memcpy(bytes, &place, sizeof place);
            memcpy(numbers, &from[i], sizeof from[i]);
            bytes += sizeof place;
            numbers += sizeof from[i];
            left.n_equal -= equal;
        }
    }
}

static void topk_decode_add(const struct dt_codec *codec, const uint8_t *bytes, size_t begin,
                            size_t n, float *to)
{
    (void)begin;
    const size_t k = n_sent(codec, n);
    const uint8_t *numbers = bytes + k * sizeof(uint32_t);
    for (size_t i = 0; i < k; i++) {
        uint32_t place;
        float x;
        memcpy(&place, bytes + i * sizeof place, sizeof place);
        memcpy(&x, numbers + i * sizeof x, sizeof x);
        if (place < n) { /* or a bit has turned over on the way, and replicas will differ */
            to[place] += x;
        }
    }
}

const struct dt_codec_ops dt_topk_codec = {
    .summable = false, .bytes = topk_bytes, .encode = topk_encode, .decode_add = topk_decode_add};
