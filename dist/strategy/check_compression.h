/* The compression of a model's gradients. */
#ifndef DT_DIST_STRATEGY_CHECK_COMPRESSION_H
#define DT_DIST_STRATEGY_CHECK_COMPRESSION_H

#include "dist/compression/codec.h"
#include "dist/strategy/strategy.h"

/* Which of them are matrices, as one bit wants them (dist/compression/onebit.c): those of dense
 * layers, a row for each unit, a column for each input. */
struct dt_codec_layout dt_matrices_of(const struct dt_model *model);

extern const struct dt_compression_ops dt_compression;

#endif
