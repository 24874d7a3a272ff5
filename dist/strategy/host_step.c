#include "dist/strategy/host_step.h"

#include <string.h>

#include "base/clock.h"
#include "dist/allreduce/host_sum.h"

_Static_assert(DT_HOST_STEP_PIECE <= DT_HOST_SUM_PIECE, "a piece is summed again at once");

/* The ranks' weights come first, then the states. */
static float *array_of(const struct dt_host_step *step, int index)
{
    char *bytes = step->memory.bytes;
    return (float *)(void *)(bytes + (size_t)index * dt_host_array_bytes(step->n_elems));
}

/* A dt_host_sum.use. */
static void step_piece(void *context, size_t begin, size_t end, const float *sums)
{
    struct dt_host_step *step = context;
    const double start_s = dt_clock_s();
    /* No error: the backend is one whose memory is the host's. */
    (void)dt_optimizer_apply_range(step->optimizer, &step->update, begin, end, step->params, sums);
    for (int rank = 0; rank < step->comm->local_size; rank++) {
        if (rank != step->comm->local_rank) {
            memcpy(array_of(step, rank) + begin, step->params + begin,
                   (end - begin) * sizeof *step->params);
        }
    }
    step->seconds += dt_clock_s() - start_s;
}

static enum dt_status host_step_open(struct dt_comm *comm, struct dt_optimizer *optimizer,
                                     int n_states, size_t n_elems, struct dt_host_sum *sum,
                                     struct dt_host_step *out)
{
    *out = (struct dt_host_step){.comm = comm, .optimizer = optimizer, .n_elems = n_elems};
    DT_TRY(dt_host_memory_open(
        comm, (size_t)(comm->local_size + n_states) * dt_host_array_bytes(n_elems), &out->memory));
    if (out->memory.bytes == NULL) {
        return DT_OK;
    }
    out->params = array_of(out, comm->local_rank);
    dt_host_array_settle(out->params, n_elems);
    for (int i = 0; i < n_states; i++) {
        out->states[i] = array_of(out, comm->local_size + i);
        if (comm->local_rank == 0) {
            dt_host_array_settle(out->states[i], n_elems);
        }
    }
    sum->use = step_piece;
    sum->use_context = out;
    return DT_OK;
}

static void host_step_close(struct dt_host_step *step)
{
    dt_host_memory_close(&step->memory);
}

const struct dt_host_step_ops dt_host_step = {
    .open = host_step_open, .sums = dt_host_sum_again, .close = host_step_close};
