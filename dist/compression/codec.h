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

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/status.h"

/* X(constant, the configuration's name, C name, bytes of n numbers, meaning) */
#define DT_COMPRESSION_LIST(X)                                                               \
    X(DT_COMPRESSION_NONE, "none", none, "4 n", "numbers as they are")                       \
    X(DT_COMPRESSION_FP16, "fp16", fp16, "2 n", "16 bits, 10 of them fraction: up to 65504") \
    X(DT_COMPRESSION_BF16, "bf16", bf16, "2 n",                                              \
      "16 bits, 7 of them fraction: as far as 32 bits reach")                                \
    X(DT_COMPRESSION_INT8, "int8", int8, "n + 3 ceil(n / 256)",                              \
      "8 bits between the least and the largest of 256")                                     \
    X(DT_COMPRESSION_ONEBIT, "onebit", onebit, "d / 8 + 4 c + 4 (n - d)",                    \
      "the sign, and two means for each column of a dense layer")                            \
    X(DT_COMPRESSION_TOPK, "topk", topk, "8 k, k = ratio n",                                 \
      "the largest k, each with its place; 4 n from ratio 0.5 on")
#define DT_COMPRESSION_ENUM(constant, ...) constant,
enum dt_compression_type { DT_COMPRESSION_LIST(DT_COMPRESSION_ENUM) DT_N_COMPRESSION_TYPES };
extern const char *const dt_compression_names[DT_N_COMPRESSION_TYPES];
extern const char
    *const dt_compression_formulas[DT_N_COMPRESSION_TYPES]; /* bytes of n numbers, for people */

#define DT_ROUNDING_LIST(X)           \
    X(DT_ROUNDING_NEAREST, "nearest") \
    X(DT_ROUNDING_STOCHASTIC, "stochastic")
enum dt_rounding { DT_ROUNDING_LIST(DT_COMPRESSION_ENUM) };

/* Row after row of the array whose ranges are encoded. */
struct dt_matrix {
    size_t begin, n_rows, n_cols;
};
#define DT_MAX_MATRICES 64

/* The matrices of an array, in its order (dist/strategy/matrices.h). onebit encodes them, and sends
 * all other numbers as they are. */
struct dt_codec_layout {
    int n_matrices;
    struct dt_matrix matrices[DT_MAX_MATRICES];
};

/* The configuration's `distributed.compression`. Zeros: none. */
struct dt_compression_spec {
    enum dt_compression_type type;
    double ratio;              /* topk: the share of the numbers that is sent, in (0, 1] */
    bool error_feedback;       /* what is lost is added to what comes next (error_feedback.h) */
    enum dt_rounding rounding; /* int8 */
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
struct dt_codec dt_codec_none(void); /* numbers as they are */

/* How many bytes n numbers become, whatever they are, that begin at `begin` of the array. Never
 * more than 4 n: where a codec saves nothing, they are sent as they are.
 */
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
