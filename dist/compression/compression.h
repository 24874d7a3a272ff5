/* The configuration's `distributed.compression`. */
#ifndef DT_DIST_COMPRESSION_COMPRESSION_H
#define DT_DIST_COMPRESSION_COMPRESSION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* X(constant, the configuration's name, C name, bytes of n numbers)
 * fp16:   10 bits of fraction, up to 65504; bf16: 7 bits, as far as 32 bits reach
 * int8:   8 bits between the least and the largest of 256 numbers
 * onebit: the sign, and two means for each column of a dense layer
 * topk:   the largest k numbers, each with its place; 4 n bytes from ratio 0.5 on */
#define DT_COMPRESSION_LIST(X)                                            \
    X(DT_COMPRESSION_NONE, "none", none, "4 n")                           \
    X(DT_COMPRESSION_FP16, "fp16", fp16, "2 n")                           \
    X(DT_COMPRESSION_BF16, "bf16", bf16, "2 n")                           \
    X(DT_COMPRESSION_INT8, "int8", int8, "n + 3 ceil(n / 256)")           \
    X(DT_COMPRESSION_ONEBIT, "onebit", onebit, "d / 8 + 4 c + 4 (n - d)") \
    X(DT_COMPRESSION_TOPK, "topk", topk, "8 k, k = ratio n")
enum dt_compression_type { DT_COMPRESSION_LIST(DT_NAMED_ENUM) DT_N_COMPRESSION_TYPES };
extern const char *const dt_compression_names[DT_N_COMPRESSION_TYPES];
extern const char
    *const dt_compression_formulas[DT_N_COMPRESSION_TYPES]; /* bytes of n numbers, for people */

#define DT_ROUNDING_LIST(X)           \
    X(DT_ROUNDING_NEAREST, "nearest") \
    X(DT_ROUNDING_STOCHASTIC, "stochastic")
enum dt_rounding { DT_ROUNDING_LIST(DT_NAMED_ENUM) };

/* Zeros: none. */
struct dt_compression_spec {
    enum dt_compression_type type;
    double ratio;              /* topk: the share of the numbers that is sent, in (0, 1] */
    bool error_feedback;       /* what is lost is added to what comes next (error_feedback.h) */
    enum dt_rounding rounding; /* int8 */
};

#endif
