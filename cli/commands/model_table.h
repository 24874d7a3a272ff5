/* The blocks of a model as a table has them: for `dtrain plan`, and a run's page. */
#ifndef DT_CLI_COMMANDS_MODEL_TABLE_H
#define DT_CLI_COMMANDS_MODEL_TABLE_H

#include "model/block.h"

struct dt_block_row {
    const char *name;
    char in[32], out[32]; /* shapes: "32x26x26", "128" */
    char layers[256];     /* "conv2d 64 3x3, relu": that the block was made of */
    size_t n_parameters;
    double flops; /* of a sample's forward pass */
};
void dt_block_row_make(const struct dt_model *model, int index, struct dt_block_row *out);

/* A line for each convolution with more zeros behind than before, which PyTorch's padding has not.
 */
void dt_model_print_uneven(const struct dt_model *model);

#endif
