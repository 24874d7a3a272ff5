#include "train/watch/line.h"

bool dt_line_is_model(const struct dt_trainer *t)
{
    const struct dt_block *block = &t->model.blocks[0];
    return t->config.data.format == DT_DATA_LINEAR && t->model.n_blocks == 1 &&
           block->linear == DT_LINEAR_DENSE && block->activation == DT_ACTIVATION_NONE &&
           block->dropout_rate == 0;
}

static enum dt_status read_parameter(const struct dt_trainer *t, int index, float *out)
{
    return t->backend->ops->copy_out(
        t->backend, out, t->network->params + t->model.params[index].offset, sizeof *out);
}

static enum dt_status read_line(const struct dt_trainer *t, struct dt_line *out)
{
    DT_TRY(read_parameter(t, t->model.blocks[0].weight, &out->slope));
    return read_parameter(t, t->model.blocks[0].bias, &out->intercept);
}

enum dt_status dt_line_gather(struct dt_trainer *t, struct dt_line *all)
{
    struct dt_line mine;
    DT_TRY(dt_world_agree(t->world, read_line(t, &mine)));
    return dt_comm_allgather(t->world->comm, &mine, all, sizeof mine,
                             "exchange of the ranks' lines");
}
