#include "train/evaluate.h"

enum dt_status dt_sample_set_open(const struct dt_data_spec *spec, enum dt_split split,
                                  const struct dt_shard *shard, struct dt_backend *backend,
                                  struct dt_sample_set *out)
{
    DT_ASSERT(shard->rank < shard->size);
    struct dt_shard counted = *shard;
    enum dt_status s;
    *out = (struct dt_sample_set){.samples = NULL};
    DT_TRY_GOTO(s, dt_dataset_count(spec, split, &counted.n_total), fail);
    DT_TRY_GOTO(s, dt_dataset_open(spec, split, dt_shard_owned(&counted), &out->data), fail);
    DT_TRY_GOTO(s, dt_loader_open(&counted, &out->loader), fail);
    DT_TRY_GOTO(s, backend->ops->samples_open(backend, &out->data.samples, &out->samples), fail);
    DT_ASSERT(out->data.samples.n == dt_shard_owned(&counted).n);
    return DT_OK;
fail:
    dt_sample_set_close(out, backend);
    return s;
}

void dt_sample_set_close(struct dt_sample_set *set, struct dt_backend *backend)
{
    if (set->samples != NULL) {
        backend->ops->samples_close(backend, set->samples);
        set->samples = NULL;
    }
    dt_loader_close(&set->loader);
    dt_dataset_close(&set->data);
}

enum dt_status dt_evaluator_open(struct dt_world *world, const struct dt_data_spec *spec,
                                 struct dt_network *network, struct dt_evaluator *out)
{
    const struct dt_shard shard = {.mode = DT_SHARDING_SHARD,
                                   .global_batch = (size_t)network->capacity * (size_t)world->size,
                                   .rank = world->rank,
                                   .size = world->size};
    const enum dt_split split = spec->validation > 0 ? DT_SPLIT_VALIDATION : DT_SPLIT_TEST;
    *out = (struct dt_evaluator){.world = world, .network = network};
    return dt_sample_set_open(spec, split, &shard, network->backend, &out->set);
}

enum dt_status dt_evaluator_open_all(struct dt_world *world, const struct dt_data_spec *spec,
                                     struct dt_network *network, struct dt_evaluator *out)
{
    enum dt_status s = DT_OK;
    for (bool again = true; again && s == DT_OK;) {
        const enum dt_status opened = dt_evaluator_open(world, spec, network, out);
        s = dt_world_agree(world, opened);
        s = s == DT_OK ? dt_samples_settle(world, spec, &again) : s;
        if (opened == DT_OK && (s != DT_OK || again)) {
            dt_evaluator_close(out);
            out->network = NULL;
        }
    }
    return s;
}

void dt_evaluator_close(struct dt_evaluator *e)
{
    dt_sample_set_close(&e->set, e->network->backend);
}

enum dt_status dt_evaluator_run(struct dt_evaluator *e, struct dt_metrics *out)
{
    struct dt_backend *backend = e->network->backend;
    const uint64_t n_steps = dt_shard_steps_per_epoch(&e->set.loader.shard);
    dt_comm_phase(e->world->comm, "evaluation");
    DT_TRY(backend->ops->metrics_take(backend, out)); /* whatever was left there is not ours */
    if (e->answers != NULL) {
        e->answers->begin(e->answers);
    }
    for (uint64_t step = 0; step < n_steps; step++) {
        const struct dt_batch batch = dt_loader_batch(&e->set.loader, 0, step);
        dt_comm_alive(e->world->comm);
        const struct dt_pass pass = {.batch = &batch};
        DT_TRY(dt_network_gather(e->network, e->set.samples, &batch));
        DT_TRY(dt_network_forward(e->network, &pass));
        DT_TRY(dt_network_loss(e->network, e->set.samples, &pass));
        DT_TRY(e->answers != NULL ? e->answers->take(e->answers, e, &batch) : DT_OK);
    }
    DT_TRY(backend->ops->metrics_take(backend, out));
    DT_TRY(dt_comm_allreduce(e->world->comm, out, sizeof *out / sizeof(double), DT_TYPE_F64,
                             DT_REDUCE_SUM, "sum of the results"));
    DT_ASSERT(out->n_samples == (double)e->set.loader.shard.n_total);
    if (e->set.data.variance > 0) {
        out->n_correct = out->n_samples - (out->n_samples - out->n_correct) / e->set.data.variance;
    }
    DT_ASSERT(!(out->n_correct > out->n_samples));
    return e->answers != NULL ? e->answers->end(e->answers, e) : DT_OK;
}
