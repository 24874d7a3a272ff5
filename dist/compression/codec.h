/* Codecs: encode floats in fewer bytes, and add up encoded ones. Pure functions without
 * allocations; the same bits in every run.
 *
 *   fp16, bf16  half.c    each number separately, rounded to nearest, ties to even
 *   int8        int8.c    8 bits a number, with a scale and a zero point for every 256
 *   onebit      onebit.c  the sign, with two means for every column of a matrix
 *   topk        topk.c    the largest numbers with their places
 *
 * onebit: Seide, Fu, Droppo, Li, Yu, "1-bit stochastic gradient descent and its application to
 * data-parallel distributed training of speech DNNs", Interspeech 2014. topk: Lin, Han, Mao, Wang,
 * Dally, "Deep gradient compression", ICLR 2018, arXiv 1712.01887, of which this is the
 * sparsification alone.
 *
 * In onebit's formula, d of the n numbers belong to matrices, in c groups of columns.
 *
 * A diverged training must stay visible: a number that is not finite is encoded as one that is not
 * finite either. Bytes are in the machine's order. */
#ifndef DT_DIST_COMPRESSION_CODEC_H
#define DT_DIST_COMPRESSION_CODEC_H

#include <string.h>

#include "dist/compression/compression.h"

/* Row after row of the array whose ranges are encoded. */
struct dt_matrix {
    size_t begin, n_rows, n_cols;
};
#define DT_MAX_MATRICES 64

/* The matrices of an array, in its order (dist/strategy/check_compression.h). onebit encodes them,
 * and sends all other numbers as they are. */
struct dt_codec_layout {
    int n_matrices;
    struct dt_matrix matrices[DT_MAX_MATRICES];
};

struct dt_codec;

/* All slots are mandatory. */
struct dt_codec_ops {
    /* Each number is encoded by itself, in as many bytes as any other, and what was decoded encodes
     * without loss: a range may be encoded in parts, and sums be encoded again. */
    bool summable;
    size_t (*bytes)(const struct dt_codec *codec, size_t begin, size_t n);
    void (*encode)(const struct dt_codec *codec, uint64_t draw, const float *from, size_t begin,
                   size_t n, uint8_t *bytes);
    void (*decode_add)(const struct dt_codec *codec, const uint8_t *bytes, size_t begin, size_t n,
                       float *to);
};

struct dt_codec {
    const struct dt_codec_ops *ops;
    struct dt_compression_spec spec;
    struct dt_codec_layout layout;
};

/* codecs: the program's, by enum dt_compression_type; NULL: it links none. layout: of the array
 * that is encoded; NULL: it has no matrices. DT_INTERNAL: the program does not link the codec. */
enum dt_status dt_codec_open(const struct dt_codec_ops *const *codecs,
                             const struct dt_compression_spec *spec,
                             const struct dt_codec_layout *layout, struct dt_codec *out);
struct dt_codec dt_codec_none(void);                                   /* numbers as they are */
const struct dt_codec *dt_codec_or_none(const struct dt_codec *codec); /* where it is NULL */

/* The encoded size of n numbers from element `begin` of the array on, whatever their values. Never
 * more than 4 n: where a codec saves nothing, numbers are sent as they are. */
size_t dt_codec_bytes(const struct dt_codec *codec, size_t begin, size_t n);
/* draw: stochastic rounding is a function of it and of the numbers' places. */
void dt_codec_encode(const struct dt_codec *codec, uint64_t draw, const float *from, size_t begin,
                     size_t n, void *bytes);
void dt_codec_decode_add(const struct dt_codec *codec, const void *bytes, size_t begin, size_t n,
                         float *to);
/* The same in place of what was there: what is added to it is so to the bit; numbers that were not
 * sent are -0. */
void dt_codec_decode(const struct dt_codec *codec, const void *bytes, size_t begin, size_t n,
                     float *to);

/* ---- for implementations */

#define DT_COMPRESSION_OPS(constant, name, c_name, ...) \
    extern const struct dt_codec_ops dt_##c_name##_codec;
DT_COMPRESSION_LIST(DT_COMPRESSION_OPS)
#undef DT_COMPRESSION_OPS

static inline uint32_t dt_float_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline float dt_float_of_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* To the nearest, ties to even. */
static inline uint16_t dt_bf16_of(float x)
{
    const uint32_t bits = dt_float_bits(x), rounded = bits + 0x7FFFu + (bits >> 16 & 1u);
    const bool is_nan = (bits & 0x7FFFFFFFu) > 0x7F800000u;
    return (uint16_t)((is_nan ? bits | 0x400000u : rounded) >> 16);
}

static inline float dt_float_of_bf16(uint16_t half)
{
    return dt_float_of_bits((uint32_t)half << 16);
}

#endif
