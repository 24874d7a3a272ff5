#include "cli/commands/model_table.h"

#include <stdbool.h>
#include <stdio.h>

static void shape_text(struct dt_shape s, bool flat, char *text, size_t size)
{
    if (flat) {
        snprintf(text, size, "%d", s.c);
    } else {
        snprintf(text, size, "%dx%dx%d", s.c, s.h, s.w);
    }
}

/* "conv2d 64 3x3", "max_pool2d 2", "relu": a layer but for its activation. */
static void layer_text(const struct dt_layer_spec *l, char *text, size_t size)
{
    char numbers[48] = "";
    if (l->kernel > 0) {
        snprintf(numbers, sizeof numbers, " %d %dx%d%s", l->size, l->kernel, l->kernel,
                 l->padding == DT_PADDING_SAME ? " same" : "");
    } else if (l->size > 0) {
        snprintf(numbers, sizeof numbers, " %d", l->size);
    } else if (l->rate > 0) {
        snprintf(numbers, sizeof numbers, " %g", l->rate);
    }
    snprintf(text, size, "%s%s", dt_layer_names[l->type], numbers);
}

/* "conv2d 64, 3x3, relu": the layers that a block was made of. */
static void layers_text(const struct dt_model *model, int index, char *text, size_t size)
{
    const int begin = model->blocks[index].first_layer;
    const int end =
        index + 1 < model->n_blocks ? model->blocks[index + 1].first_layer : model->spec.n_layers;
    size_t used = 0;
    text[0] = '\0';
    for (int i = begin; i < end && used < size; i++) {
        const struct dt_layer_spec *l = &model->spec.layers[i];
        char one[64];
        layer_text(l, one, sizeof one);
        const char *activation =
            l->activation != DT_ACTIVATION_NONE ? dt_activation_names[l->activation] : "";
        const int n = snprintf(text + used, size - used, "%s%s%s%s", used > 0 ? ", " : "", one,
                               activation[0] != '\0' ? ", " : "", activation);
        used += n > 0 ? (size_t)n : 0;
    }
}

/* Behind a flatten shapes are numbers of features; so they are where no block has images. */
static bool is_flat(const struct dt_model *model, int n_blocks)
{
    bool flat = model->n_spatial == 0;
    for (int b = 0; b < n_blocks; b++) {
        flat = flat || model->blocks[b].flatten;
    }
    return flat;
}

void dt_block_row_make(const struct dt_model *model, int index, struct dt_block_row *out)
{
    const struct dt_block *block = &model->blocks[index];
    out->name = block->name;
    shape_text(block->in, is_flat(model, index), out->in, sizeof out->in);
    shape_text(block->out, is_flat(model, index + 1), out->out, sizeof out->out);
    layers_text(model, index, out->layers, sizeof out->layers);
    out->n_parameters = block->weight == DT_NO_PARAM ? 0
                                                     : model->params[block->weight].n_elems +
                                                           model->params[block->bias].n_elems;
    out->flops = dt_block_flops(block);
}
