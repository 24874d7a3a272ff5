/* How layers with an operation of their own become blocks. */
#include <stdio.h>

#include "base/arithmetic.h"
#include "model/layers/layers.h"

/* The next tensor of a list: one number per channel or unit. */
static struct dt_param *add_tensor(struct dt_lowering *l, struct dt_param *list, int *n,
                                   const char *kind, float initial)
{
    const struct dt_block *block = l->block;
    struct dt_param *param = &list[(*n)++];
    *param = (struct dt_param){.n_dims = 1,
                               .dims = {(size_t)block->in.c},
                               .n_elems = (size_t)block->in.c,
                               .image = l->image,
                               .is_bias = true,
                               .initial = initial};
    snprintf(param->name, sizeof param->name, "%s.%s", block->name, kind);
    return param;
}

static int add_param(struct dt_lowering *l, const char *kind, float initial)
{
    (void)add_tensor(l, l->model->params, &l->model->n_params, kind, initial);
    return l->model->n_params - 1;
}

static void add_buffer(struct dt_lowering *l, const char *kind, float initial)
{
    struct dt_model *model = l->model;
    struct dt_param *buffer = add_tensor(l, model->buffers, &model->n_buffers, kind, initial);
    buffer->offset = model->buffer_elems;
    model->buffer_elems += dt_round_up(buffer->n_elems, DT_PARAM_ALIGN);
}

static int count_rows(const struct dt_model *model, enum dt_layer_type type)
{
    int n = 0;
    for (int b = 0; b < model->n_blocks; b++) {
        const int row = model->blocks[b].row;
        n += row > 0 && model->spec.layers[row - 1].type == type;
    }
    return n;
}

/* Units after a flatten are in H W C order, and in a file in PyTorch's, as the inputs of a dense
 * layer. */
static enum dt_status lower_batch_norm(struct dt_lowering *l, const struct dt_layer_spec *layer)
{
    struct dt_block *block = l->block;
    if (!(layer->epsilon > 0 && layer->epsilon <= 1)) {
        return dt_error(DT_CONFIG, "epsilon out of range (use above 0 to 1)");
    }
    if (!(layer->momentum > 0 && layer->momentum <= 1)) {
        return dt_error(DT_CONFIG, "momentum out of range (use above 0 to 1)");
    }
    snprintf(block->name, sizeof block->name, "bn%d", count_rows(l->model, layer->type));
    block->weight = add_param(l, "weight", 1);
    block->bias = add_param(l, "bias", 0);
    block->buffer = 1 + l->model->n_buffers;
    add_buffer(l, "running_mean", 0);
    add_buffer(l, "running_var", 1);
    return DT_OK;
}

enum dt_status dt_layer_lower(struct dt_lowering *l, const struct dt_layer_spec *layer)
{
    l->block->row = 1 + l->layer;
    DT_TRY(lower_batch_norm(l, layer));
    l->shape = l->block->linear_out;
    l->block->activation = layer->activation;
    l->next_stage += layer->activation != DT_ACTIVATION_NONE;
    return DT_OK;
}

static void forget_images(int n, struct dt_param *params)
{
    for (int i = 0; i < n; i++) {
        params[i].image = (struct dt_shape){0};
    }
}

/* Where no dense layer follows, a flatten gives C H W (dt_block.canonical). */
enum dt_status dt_layers_finish(struct dt_lowering *l)
{
    struct dt_model *model = l->model;
    if (l->n_dense == 0) {
        forget_images(model->n_params, model->params);
        forget_images(model->n_buffers, model->buffers);
    }
    for (int b = 0; b < model->n_blocks; b++) {
        model->graph = model->blocks[b].row > 0 ? &dt_layer_graph : model->graph;
    }
    return DT_OK;
}
