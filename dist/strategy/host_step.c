#include "dist/strategy/host_step.h"

#include <string.h>

#include "base/clock.h"

static float *array_of(const struct dt_host_step *step, int index)
{
    char *bytes = step->memory.bytes;
    return (float *)(void *)(bytes + (size_t)index * dt_host_array_bytes(step->optimizer->n_elems));
}

static float *params_of(const struct dt_host_step *step, int local_rank)
{
    return array_of(step, local_rank);
}

static float *state_of(const struct dt_host_step *step, int index)
{
    return array_of(step, step->comm->local_size + index);
}

/* A dt_host_sum.use. */
static void step_piece(void *context, size_t begin, size_t end, const float *sums)
{
    struct dt_host_step *step = context;
    float *params = step->network->params + begin;
    const double start_s = dt_clock_s();
    /* No error: the backend is one whose memory is the host's. */
    (void)dt_optimizer_apply_range(step->optimizer, &step->update, begin, end, step->network->params, sums);
    for (int rank = 0; rank < step->comm->local_size; rank++) {
        if (rank != step->comm->local_rank) {
            memcpy(params_of(step, rank) + begin, params, (end - begin) * sizeof *params);
        }
    }
    step->seconds += dt_clock_s() - start_s;
}

/* The numbers move to `to`, if this rank is the one to bring them there, and the memory where they were is given back. */
static void move(const struct dt_host_step *step, float **from, float *to, bool brings)
{
    struct dt_backend *backend = step->network->backend;
    if (brings) {
        dt_host_array_settle(to, step->optimizer->n_elems);
        memcpy(to, *from, step->optimizer->n_elems * sizeof *to);
    }
    backend->ops->free(backend, *from);
    *from = to;
}

enum dt_status dt_host_step_open(struct dt_comm *comm, struct dt_network *network, struct dt_optimizer *optimizer,
                                 struct dt_host_sum *sum, struct dt_host_step *out)
{
    const size_t n_arrays = (size_t)(comm->local_size + optimizer->n_states);
    *out = (struct dt_host_step){.comm = comm, .network = network, .optimizer = optimizer};
    DT_TRY(dt_host_memory_open(comm, n_arrays * dt_host_array_bytes(optimizer->n_elems), &out->memory));
    if (out->memory.bytes == NULL) {
        return DT_OK;
    }
    move(out, &network->params, params_of(out, comm->local_rank), true);
    for (int i = 0; i < optimizer->n_states; i++) {
        move(out, &optimizer->states[i], state_of(out, i), comm->local_rank == 0);
    }
    sum->use = step_piece;
    sum->use_context = out;
    return DT_OK;
}

void dt_host_step_close(struct dt_host_step *step)
{
    if (step->memory.bytes != NULL) {
        step->network->params = NULL;
        step->optimizer->states[0] = step->optimizer->states[1] = NULL;
    }
    dt_host_memory_close(&step->memory);
}
