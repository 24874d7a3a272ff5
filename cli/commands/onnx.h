/* A trained model as ONNX (onnx.ai) has it, which other runtimes load; names of weights as PyTorch
 * has them.
 *
 * Input "input", floats (N, C, H, W), or (N, features) of a model without images; output "logits",
 * (N, classes), or "output" of a regression. N is free. Dropout is not there: it is for training.
 */
#ifndef DT_CLI_COMMANDS_ONNX_H
#define DT_CLI_COMMANDS_ONNX_H

#include <stdint.h>

#include "data/dataset.h"
#include "model/layers/layers.h"

/* The oldest version of the operators, from 13 on, that has all of the model's: gelu is of 20. */
static inline int dt_onnx_opset(const struct dt_model *model)
{
    int opset = 13;
    for (int b = 0; b < model->n_blocks; b++) {
        const struct dt_block *block = &model->blocks[b];
        const int needed =
            block->activation == DT_ACTIVATION_GELU ? 20
            : block->row > 0 ? dt_operation_of(model->spec.layers[block->row - 1].type)->onnx_opset
                             : 0;
        opset = needed > opset ? needed : opset;
    }
    return opset;
}

/* `arena`, `buffers`: in the file's order (dt_model_reorder). `input_text`: what the input is, for
 * people; it is normalized inside, and outputs get the units of their targets. `class_names`:
 * "cat/dog", for the metadata, or NULL. The caller frees `bytes`. DT_NO_MEMORY; DT_CONFIG: over 2
 * GiB, more than the format holds; DT_UNAVAILABLE: a build without libprotobuf-c. */
enum dt_status dt_onnx_make(const struct dt_model *model, const float *arena, const float *buffers,
                            const struct dt_normalize *of_input,
                            const struct dt_normalize *of_output, const char *input_text,
                            const char *class_names, uint8_t **bytes, size_t *n_bytes);

#endif
