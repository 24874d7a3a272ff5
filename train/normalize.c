#include "train/parts.h"

#include <stdlib.h>

#include "data/transform.h"

/* Ranks have shares of the images, or each of them all. */
static bool counts(const struct dt_trainer *t)
{
    return t->world->rank == 0 ||
           (t->config.sharding == DT_SHARDING_SHARD && t->roles.n_workers > 1);
}

/* The text has what the configuration said before ranks and model filled in their parts. */
static enum dt_status rewrite(struct dt_trainer *t)
{
    struct dt_config *config = malloc(sizeof *config);
    if (config == NULL) {
        return dt_error(DT_NO_MEMORY, "out of memory for the resolved configuration");
    }
    char *text = NULL;
    enum dt_status s = t->written.format->read(t->config.name, t->written.text, config);
    if (s == DT_OK) {
        config->data.normalize = t->config.data.normalize;
        text = t->written.format->write(config);
        s = text != NULL ? DT_OK
                         : dt_error(DT_NO_MEMORY, "out of memory for the resolved configuration");
    }
    free(config);
    if (s == DT_OK) {
        free(t->written.text);
        t->written.text = text;
    }
    return s;
}

static enum dt_status take(struct dt_trainer *t, const struct dt_channel_sums *sums)
{
    DT_ASSERT(t->config.data.normalize.of_dataset);
    struct dt_dataset *data = &t->set.data;
    DT_TRY(dt_normalize_of(sums, data->samples.shape.c, &t->config.data.normalize));
    DT_TRY(rewrite(t));
    free(data->transform);
    data->samples.transform = data->transform = NULL;
    DT_TRY(dt_transform_open(&t->config.data, DT_SPLIT_TRAIN, &data->transform));
    data->samples.transform = data->transform;
    return DT_OK;
}

enum dt_status dt_trainer_normalize(struct dt_trainer *t)
{
    const struct dt_samples *samples = &t->set.data.samples;
    struct dt_channel_sums sums[DT_MOST_CHANNELS] = {{0}};
    if (!t->config.data.normalize.of_dataset) {
        return DT_OK;
    }
    if (counts(t)) {
        dt_channel_sums_add(samples, sums);
    }
    DT_TRY(dt_comm_allreduce(t->world->comm, sums, 3 * (size_t)samples->shape.c, DT_TYPE_U64,
                             DT_REDUCE_SUM, "sum of the training images' pixels"));
    return dt_world_agree(t->world, take(t, sums));
}
