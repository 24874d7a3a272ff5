/* dtrain on a cluster where something is wrong: what the variable WRONG names, in words; ONE_EACH
 * makes each rank the only one of its host, by name. */
#include <stdlib.h>
#include <string.h>

#include "cli/commands/eval.h"
#include "dist/allreduce/allreduce.h"
#include "dist/launch/launch.h"
#include "dist/strategy/strategy.h"
#include "ops/doctor/doctor.h"
#include "ops/measure.h"
#include "tests/lib/wrap.h"

static bool wrong(const char *what)
{
    const char *named = getenv("WRONG");
    return named != NULL && strstr(named, what) != NULL;
}

static bool is_rank(const char *number)
{
    return dt_launch_number(DT_LAUNCH_RANK) == atoi(number);
}

static void make_busy(struct dt_rank_probe *f)
{
    f->load = 15.24;
    f->n_runnable = 24;
    f->n_host_cpus = 4;
}

WRAP(enum dt_status, dt_probe_gather, struct dt_world *world, const struct dt_doctor_spec *spec,
     struct dt_rank_probe **out)
{
    const enum dt_status s = __real_dt_probe_gather(world, spec, out);
    const int last = world->size - 1;
    for (int r = 0; s == DT_OK && r <= last && getenv("ONE_EACH") != NULL; r++) {
        snprintf((*out)[r].host, sizeof(*out)[r].host, "node%d", r);
    }
    for (int r = 0; s == DT_OK && wrong("busy") && r <= last; r++) {
        make_busy(&(*out)[r]);
    }
    if (s == DT_OK && wrong("version")) {
        (*out)[last].version[0] = '9';
    }
    if (s == DT_OK && wrong("uneven")) {
        strcpy((*out)[last].host, "lonely");
    }
    return s;
}

WRAP(struct dt_update, dt_strategy_next_update, struct dt_strategy *strategy, double lr,
     size_t n_global, size_t n_local)
{
    return __real_dt_strategy_next_update(strategy, wrong("example") ? 1.01 * lr : lr, n_global,
                                          n_local);
}

WRAP(enum dt_status, dt_network_backward, struct dt_network *network, const struct dt_pass *pass,
     dt_grad_ready_fn ready, void *context)
{
    const enum dt_status s = __real_dt_network_backward(network, pass, ready, context);
    for (size_t i = 0;
         ready == NULL && wrong("gradients") && is_rank("1") && i < network->model->arena_elems;
         i++) {
        network->grads[i] *= 1.5f;
    }
    return s;
}

/* The last allreduce that was opened, not one inside it. */
static struct {
    struct dt_allreduce *allreduce;
    struct dt_backend *backend;
} last;

WRAP(enum dt_status, dt_allreduce_open, const struct dt_allreduce_spec *spec,
     struct dt_allreduce **out)
{
    const enum dt_status s = __real_dt_allreduce_open(spec, out);
    last.allreduce = *out;
    last.backend = spec->backend;
    return s;
}

static void add_one(float *x)
{
    float value;
    if (last.backend == &dt_program_memory) {
        *x += 1;
        return;
    }
    (void)last.backend->ops->copy_out(last.backend, &value, x, sizeof value);
    value += 1;
    (void)last.backend->ops->copy_in(last.backend, x, &value, sizeof value);
}

/* By these names the sums of accept and bench, not those of a training. */
WRAP(enum dt_status, dt_allreduce_start, struct dt_allreduce *a, int slot, size_t begin, size_t end,
     const char *name, struct dt_request *request)
{
    const bool ours = strcmp(name, "a sum that is checked") == 0 ||
                      (strncmp(name, "allreduce of ", 13) == 0 && strchr(name, '(') != NULL);
    if (a == last.allreduce && ours && is_rank("1") &&
        (wrong("sums") || (wrong("nccl") && a->type == DT_ALLREDUCE_NCCL))) {
        add_one(&a->part[end - 1]);
    }
    return __real_dt_allreduce_start(a, slot, begin, end, name, request);
}

/* Every rank measures the same, however busy the machine is; node2 measures less if that is what is
 * wrong. */
static double measured(const char *what, double usual, double slow, bool slow_one)
{
    return slow_one && wrong(what) ? slow : usual;
}

WRAP(enum dt_status, dt_comm_allreduce, struct dt_comm *comm, void *buffer, size_t n_elems,
     enum dt_type type, enum dt_reduce op, const char *name)
{
    const enum dt_status s = __real_dt_comm_allreduce(comm, buffer, n_elems, type, op, name);
    const bool latencies = strcmp(name, "exchange of latencies") == 0,
               bandwidths = strcmp(name, "exchange of bandwidths") == 0;
    double *matrix = buffer;
    for (int i = 0; (latencies || bandwidths) && i < comm->size; i++) {
        for (int k = i + 1; k < comm->size; k++) {
            matrix[i * comm->size + k] = latencies
                                             ? measured("latency", 1e-6, 3e-6, i == 2 || k == 2)
                                             : measured("bandwidth", 1e10, 5e9, i == 2 || k == 2);
        }
    }
    return s;
}

WRAP(enum dt_status, dt_comm_allgather, struct dt_comm *comm, const void *mine, void *all,
     size_t n_bytes_each, const char *name)
{
    const enum dt_status s = __real_dt_comm_allgather(comm, mine, all, n_bytes_each, name);
    const bool memory = strcmp(name, "exchange of memory bandwidths") == 0,
               products = strcmp(name, "exchange of rates of products") == 0;
    for (int r = 0; (memory || products) && r < comm->size; r++) {
        ((double *)all)[r] = measured(memory ? "memory" : "compute", 20, 10, r == 2);
    }
    return s;
}

WRAP(enum dt_status, dt_inference_open, struct dt_world *world, const struct dt_trained *from,
     int n_threads, int capacity, struct dt_inference *out)
{
    const struct dt_trained nowhere = {.file = "nowhere"};
    return __real_dt_inference_open(
        world, wrong("checkpoint") && world->rank == 1 ? &nowhere : from, n_threads, capacity, out);
}

WRAP(enum dt_status, dt_comm_wait, struct dt_comm *comm, struct dt_request *request)
{
    const enum dt_status s = __real_dt_comm_wait(comm, request);
    if (s == DT_STALLED && wrong("frozen")) {
        dt_error_clear();
        return dt_error(DT_STALLED, "somebody is late");
    }
    return s;
}
