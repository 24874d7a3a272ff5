/* One optimizer step for all ranks of a host, in place of one for each.
 *
 * Ranks whose weights and optimizer state are alike do the same arithmetic on the same numbers, and
 * each goes through all of its memory for it. Here every piece of the arena is stepped by one rank:
 * the one that has just added the piece's gradients (dist/allreduce/host_sum.h), which are then
 * still in its nearest cache. The optimizer's state is there once for the host, as ZeRO's first
 * stage has it once for all GPUs (Rajbhandari et al. 2020, arXiv 1910.02054). Weights stay whole
 * and apart in each rank; the stepping rank writes its new ones into all of them. That is sound
 * because a piece is added only when all ranks have its gradients, and a block whose gradients are
 * final does not read its weights again before the next step.
 *
 * The rule is element by element, so the bits are those of a step for each. Nothing that needs the
 * whole gradient first fits in: no clipping by its norm. */
#include <stdlib.h>
#include <string.h>

#include "base/arithmetic.h"
#include "base/clock.h"
#include "dist/allreduce/host_sum.h"
#include "dist/ranks/host_memory.h"
#include "dist/strategy/mirrored.h"

struct host_step {
    struct dt_host_step base;
    struct dt_strategy *strategy; /* borrowed, with all that it has: mirrored weights */
    struct dt_host_memory memory; /* the ranks' weights, then the optimizer's state */
};

static float *array_of(const struct host_step *self, int index)
{
    char *bytes = self->memory.bytes;
    const size_t n_elems = self->strategy->spec.model->arena_elems;
    return (float *)(void *)(bytes + (size_t)index * dt_host_array_bytes(n_elems));
}

/* A dt_host_sum.use. */
static enum dt_status step_piece(void *context, size_t begin, size_t end, const float *sums)
{
    DT_ASSERT(begin < end && end - begin <= DT_HOST_SUM_PIECE);
    struct host_step *self = context;
    struct dt_strategy *strategy = self->strategy;
    const struct dt_comm *comm = strategy->spec.comm;
    float *params = strategy->memory.params;
    const double start_s = dt_clock_s();
    DT_TRY(dt_optimizer_apply_range(&strategy->optimizer, &dt_mirrored_of(strategy)->update, begin,
                                    end, params, sums));
    for (int rank = 0; rank < comm->local_size; rank++) {
        if (rank != comm->local_rank) {
            memcpy(array_of(self, rank) + begin, params + begin, (end - begin) * sizeof *params);
        }
    }
    strategy->update_s += dt_clock_s() - start_s;
    return DT_OK;
}

/* Sums that were used piece by piece are formed once more. */
static enum dt_status host_step_each_sum(struct dt_host_step *step, size_t begin, size_t end,
                                         dt_sums_fn fn, void *context)
{
    DT_ASSERT(((struct host_step *)step)->strategy->allreduce->shared->use == step_piece);
    const struct dt_host_sum *sum = ((struct host_step *)step)->strategy->allreduce->shared;
    for (size_t at = begin, next; at < end; at = next) {
        next = dt_min_size(end, at + DT_HOST_SUM_PIECE);
        DT_TRY(fn(context, at, next, dt_host_sum_again(sum, at, next)));
    }
    return DT_OK;
}

static void host_step_close(struct dt_host_step *step)
{
    dt_host_memory_close(&((struct host_step *)step)->memory);
    free(step);
}

/* One host, replicas that begin alike, and a rule that looks at one element at a time. */
static bool may_share(const struct dt_strategy *strategy)
{
    const struct dt_strategy_spec *spec = &strategy->spec;
    return strategy->allreduce->shared != NULL && spec->backend->host_memory &&
           spec->comm->n_hosts == 1 && spec->dist.broadcast && spec->elementwise;
}

static enum dt_status open_arrays(struct host_step *self)
{
    DT_ASSERT(self->strategy->spec.elementwise && self->strategy->spec.comm->n_hosts == 1);
    struct dt_strategy *strategy = self->strategy;
    const struct dt_strategy_spec *spec = &strategy->spec;
    const size_t n_elems = spec->model->arena_elems;
    float *states[2] = {0};
    strategy->memory.params = array_of(self, spec->comm->local_rank);
    dt_host_array_settle(strategy->memory.params, n_elems);
    for (int i = 0; i < dt_optimizer_n_states(&spec->optimizer); i++) {
        states[i] = array_of(self, spec->comm->local_size + i);
        if (spec->comm->local_rank == 0) {
            dt_host_array_settle(states[i], n_elems);
        }
    }
    strategy->allreduce->shared->use = step_piece;
    strategy->allreduce->shared->use_context = self;
    return dt_optimizer_open(&spec->optimizer, spec->backend, n_elems, states,
                             &strategy->optimizer);
}

static enum dt_status open_memory(struct host_step *self, const struct dt_strategy_spec *spec)
{
    const int n_arrays = spec->comm->local_size + dt_optimizer_n_states(&spec->optimizer);
    return dt_host_memory_open(spec->comm,
                               (size_t)n_arrays * dt_host_array_bytes(spec->model->arena_elems),
                               &self->memory);
}

enum dt_status dt_host_step_open(struct dt_mirrored *mirrored)
{
    struct dt_strategy *strategy = &mirrored->base;
    struct dt_comm *comm = strategy->spec.comm;
    bool all;
    if (!may_share(strategy)) {
        return DT_OK;
    }
    struct host_step *self = calloc(1, sizeof *self);
    enum dt_status s = dt_comm_all(comm, strategy->spec.shared_step && self != NULL,
                                   "agreement to step together", &all);
    if (s == DT_OK && all) {
        *self =
            (struct host_step){.base = {.each_sum = host_step_each_sum, .close = host_step_close},
                               .strategy = strategy};
        s = open_memory(self, &strategy->spec);
    }
    if (s != DT_OK || !all || self->memory.bytes == NULL) {
        free(self);
        return s;
    }
    mirrored->host_step = &self->base;
    return open_arrays(self);
}
