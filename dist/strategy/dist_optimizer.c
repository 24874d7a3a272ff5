#include "dist/strategy/dist_optimizer.h"

#include <stdlib.h>

#include "base/clock.h"

static bool steps_together(const struct dt_dist_optimizer *opt)
{
    return opt->step.memory.bytes != NULL;
}

int dt_dist_grad_ends(const struct dt_model *model, size_t ends[DT_MAX_LAYERS])
{
    int n_ends = 0;
    for (int i = model->n_blocks - 1; i >= 0; i--) { /* the arena's order: last block first */
        const struct dt_block *block = &model->blocks[i];
        if (block->grad_end > block->grad_begin) {
            ends[n_ends++] = block->grad_end;
        }
    }
    return n_ends;
}

static enum dt_status open_sync(struct dt_dist_optimizer *opt)
{
    size_t ends[DT_MAX_LAYERS];
    const int n_ends = dt_dist_grad_ends(opt->network->model, ends);
    return dt_grad_sync_open(&opt->allreduce, ends, n_ends, opt->spec.bucket_bytes, opt->spec.overlap, &opt->sync);
}

enum dt_status dt_dist_optimizer_open(const struct dt_dist_spec *spec, struct dt_comm *comm, struct dt_network *network,
                                      struct dt_optimizer *optimizer, struct dt_dist_optimizer *out)
{
    *out = (struct dt_dist_optimizer){.spec = *spec, .comm = comm, .network = network, .optimizer = optimizer};
    return DT_OK;
}

enum dt_status dt_dist_optimizer_share(struct dt_dist_optimizer *opt, struct dt_comm *device)
{
    struct dt_network *network = opt->network;
    const struct dt_allreduce_spec spec = {.type = opt->spec.allreduce,
                                           .comm = opt->comm,
                                           .device = device,
                                           .memory = network->grads,
                                           .n_elems = network->model->arena_elems,
                                           .n_slots = network->model->n_blocks};
    if (!opt->spec.average) {
        return DT_OK;
    }
    DT_TRY(dt_allreduce_open(&spec, &opt->allreduce));
    if (opt->allreduce.part != network->grads) {
        network->backend->ops->free(network->backend, network->grads);
        network->grads = opt->allreduce.part;
    }
    return open_sync(opt);
}

/* One host, replicas that begin alike, and a rule that looks at one element at a time. */
static bool may_step_together(const struct dt_dist_optimizer *opt)
{
    return opt->allreduce.shared.part != NULL && opt->comm->n_hosts == 1 && opt->spec.broadcast &&
           opt->optimizer->spec.clip_norm == 0;
}

enum dt_status dt_dist_optimizer_step_together(struct dt_dist_optimizer *opt, bool wanted)
{
    int32_t all_want = wanted;
    if (!may_step_together(opt)) {
        return DT_OK;
    }
    DT_TRY(dt_comm_allreduce(opt->comm, &all_want, 1, DT_TYPE_I32, DT_REDUCE_MIN, "agreement to step together"));
    if (all_want) {
        DT_TRY(dt_host_step_open(opt->comm, opt->network, opt->optimizer, &opt->allreduce.shared, &opt->step));
        opt->sync.quiet = steps_together(opt); /* pieces are left for those who have nothing else to do, at the wait */
    }
    return DT_OK;
}

void dt_dist_optimizer_close(struct dt_dist_optimizer *opt)
{
    dt_host_step_close(&opt->step);
    if (opt->allreduce.shared.part != NULL) {
        opt->network->grads = NULL;
    }
    dt_allreduce_close(&opt->allreduce);
}

/* One device buffer becomes rank 0's, by way of host memory. */
static enum dt_status broadcast_floats(struct dt_dist_optimizer *opt, float *device, float *host, const char *name)
{
    struct dt_backend *backend = opt->network->backend;
    const size_t n_bytes = opt->network->model->arena_elems * sizeof *device;
    if (opt->comm->rank == 0) {
        DT_TRY(backend->ops->copy_out(backend, host, device, n_bytes));
    }
    DT_TRY(dt_comm_broadcast(opt->comm, host, n_bytes, 0, name));
    return backend->ops->copy_in(backend, device, host, n_bytes);
}

enum dt_status dt_dist_optimizer_broadcast(struct dt_dist_optimizer *opt)
{
    if (!opt->spec.broadcast || opt->comm->size == 1) {
        return DT_OK;
    }
    float *host = malloc(opt->network->model->arena_elems * sizeof *host + 1);
    if (host == NULL) {
        return dt_error(DT_NO_MEMORY, "no memory to broadcast the weights");
    }
    enum dt_status status;
    DT_TRY_GOTO(status, broadcast_floats(opt, opt->network->params, host, "broadcast of weights"), done);
    for (int i = 0; i < opt->optimizer->n_states; i++) {
        DT_TRY_GOTO(status, broadcast_floats(opt, opt->optimizer->states[i], host, "broadcast of optimizer state"), done);
    }
    uint64_t *n_steps = &opt->optimizer->n_steps;
    status = dt_comm_broadcast(opt->comm, n_steps, sizeof *n_steps, 0, "broadcast of the step count");
done:
    free(host);
    return status;
}

struct dt_update dt_dist_optimizer_next(struct dt_dist_optimizer *opt, double lr, size_t n_global, size_t n_local)
{
    const size_t n = opt->spec.average ? n_global : n_local;
    return dt_optimizer_next(opt->optimizer, lr, n == 0 ? 0.0 : 1.0 / (double)n);
}

enum dt_status dt_dist_optimizer_backward(struct dt_dist_optimizer *opt, const struct dt_update *update, struct dt_pass *pass)
{
    if (!opt->spec.average) {
        return dt_network_backward(opt->network, pass, NULL, NULL);
    }
    if (steps_together(opt)) {
        if (update == NULL) {
            return dt_error(DT_INTERNAL, "the ranks of the host step together, and none of them was told how");
        }
        opt->step.update = *update;
    }
    dt_grad_sync_begin(&opt->sync);
    pass->poll = opt->spec.overlap ? dt_grad_sync_poll : NULL;
    pass->poll_context = &opt->sync;
    const enum dt_status status = dt_network_backward(opt->network, pass, dt_grad_sync_ready, &opt->sync);
    pass->poll = NULL;
    return status;
}

/* A rank's own step, of elements whose gradients are there. */
struct own_step {
    struct dt_dist_optimizer *opt;
    const struct dt_update *update;
};

/* A dt_grad_ready_fn. */
static enum dt_status step_range(void *context, size_t begin, size_t end)
{
    const struct own_step *step = context;
    struct dt_dist_optimizer *opt = step->opt;
    const float *grads = opt->spec.average ? opt->allreduce.total : opt->network->grads;
    const double start_s = dt_clock_s();
    const enum dt_status s =
        dt_optimizer_apply_range(opt->optimizer, step->update, begin, end, opt->network->params, grads + begin);
    opt->update_s += dt_clock_s() - start_s;
    return s;
}

enum dt_status dt_dist_optimizer_finish(struct dt_dist_optimizer *opt, const struct dt_update *update)
{
    struct own_step step = {.opt = opt, .update = update};
    const bool own = update != NULL && !steps_together(opt);
    const bool by_bucket = own && opt->spec.average && update->clip_norm == 0 && opt->network->backend->host_memory;
    if (opt->spec.average) {
        DT_TRY(dt_grad_sync_wait(&opt->sync, by_bucket ? step_range : NULL, &step));
    }
    return own && !by_bucket ? step_range(&step, 0, opt->optimizer->n_elems) : DT_OK;
}

double dt_dist_optimizer_update_s(const struct dt_dist_optimizer *opt)
{
    return opt->update_s + opt->step.seconds;
}
