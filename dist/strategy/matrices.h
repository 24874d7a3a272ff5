/* Which of a model's gradients are matrices, as one bit wants them (dist/compression/onebit.c):
 * those of dense layers, a row for each unit, a column for each input. */
#ifndef DT_DIST_STRATEGY_MATRICES_H
#define DT_DIST_STRATEGY_MATRICES_H

#include "dist/compression/codec.h"
#include "model/block.h"

struct dt_codec_layout dt_matrices_of(const struct dt_model *model);

#endif
