/* Which of a model's gradients are matrices, as one bit wants them (dist/compression/onebit.c):
 * those of dense layers, a row for each unit, a column for each input. */
#ifndef DT_DIST_STRATEGY_MATRICES_H
#define DT_DIST_STRATEGY_MATRICES_H

#include "dist/compression/codec.h"
#include "model/block.h"

/* The configuration's compression with the matrices of this model. */
struct dt_compression_spec dt_matrices_add(const struct dt_compression_spec *compression,
                                           const struct dt_model *model);
struct dt_codec dt_matrices_codec(const struct dt_compression_spec *compression,
                                  const struct dt_model *model);

#endif
