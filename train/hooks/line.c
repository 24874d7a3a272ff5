/* The line lab: where a model is y = slope * x + intercept (one dense layer from one input to one
 * output, without an activation, on data of the format "linear"), a run ends with the line that
 * each rank has learned. There it shows what averaging and broadcasting are for
 * (docs/strategies.md). */
#include "train/hooks/hooks.h"

#include <stdlib.h>

#include "train/events.h"

struct hook {
    struct dt_hook hook;  /* first */
    struct dt_fit *lines; /* of the ranks */
};

static bool is_line(const struct dt_trainer *t)
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

static enum dt_status read_line(const struct dt_trainer *t, struct dt_fit *out)
{
    DT_ASSERT(t->model.blocks[0].weight != DT_NO_PARAM && t->model.blocks[0].bias != DT_NO_PARAM);
    DT_TRY(read_parameter(t, t->model.blocks[0].weight, &out->slope));
    return read_parameter(t, t->model.blocks[0].bias, &out->intercept);
}

static enum dt_status end_run(struct dt_hook *hook, struct dt_trainer *t, enum dt_status status,
                              struct dt_end_event *end)
{
    struct dt_fit *lines = ((struct hook *)hook)->lines, mine;
    if (status != DT_OK) {
        return DT_OK;
    }
    end->lines = lines;
    DT_TRY(dt_world_agree(t->world, read_line(t, &mine)));
    return dt_comm_allgather(t->world->comm, &mine, lines, sizeof mine,
                             "exchange of the ranks' lines");
}

static void close_line(struct dt_hook *hook)
{
    free(((struct hook *)hook)->lines);
    free(hook);
}

static const struct dt_hook_ops line_ops = {.run_end = end_run, .close = close_line};

enum dt_status dt_line_open(struct dt_trainer *t)
{
    struct hook *hook;
    if (!is_line(t)) {
        return DT_OK;
    }
    DT_TRY(dt_hook_open(t, &line_ops, sizeof *hook, "the ranks' lines", (void **)&hook));
    return dt_world_alloc(t->world, (size_t)t->world->size, sizeof *hook->lines, "the ranks' lines",
                          (void **)&hook->lines);
}
