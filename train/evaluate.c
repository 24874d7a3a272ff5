#include "train/evaluate.h"

enum dt_status dt_evaluator_open(struct dt_world *world, const struct dt_data_spec *spec,
                                 struct dt_network *network, struct dt_evaluator *out)
{
    *out = (struct dt_evaluator){.world = world, .network = network};
    struct dt_shard shard = {.mode = DT_SHARDING_SHARD,
                             .global_batch = (size_t)network->capacity * (size_t)world->size,
                             .rank = world->rank,
                             .size = world->size};
    const enum dt_split split = spec->validation > 0 ? DT_SPLIT_VALIDATION : DT_SPLIT_TEST;
    enum dt_status s;
    DT_TRY_GOTO(s, dt_dataset_count(spec, split, &shard.n_total), fail);
    DT_TRY_GOTO(s, dt_dataset_open(spec, split, dt_shard_owned(&shard), &out->set.data), fail);
    DT_TRY_GOTO(s, dt_loader_open(&shard, &out->set.loader), fail);
    DT_TRY_GOTO(s,
                network->backend->ops->samples_open(network->backend, &out->set.data.samples,
                                                    &out->set.samples),
                fail);
    return DT_OK;
fail:
    dt_evaluator_close(out);
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
    double sums[] = {out->loss_sum, out->n_correct, out->n_samples};
    DT_TRY(dt_comm_allreduce(e->world->comm, sums, 3, DT_TYPE_F64, DT_REDUCE_SUM,
                             "sum of the results"));
    *out = (struct dt_metrics){sums[0], sums[1], sums[2]};
    return e->answers != NULL ? e->answers->end(e->answers, e) : DT_OK;
}
