/* Calls of the system that can fail one at a time, each rank's counted by kind: of memory, of MPI,
 * of files and of the device. With --places each place of the program that makes such a call fails
 * once: a place is the stack of the functions that led to the call. */
#include <execinfo.h>
#include <string.h>

#include "model/backend.h"
#include "tests/lib/wrap.h"
#include "tests/simulate/sim.h"
#include "train/device.h"
#include "train/hook.h"
#include "train/trainer.h"

#define MOST_FRAMES 32
#define N_KNOWN ((size_t)1 << 16) /* a power of two */

static const enum sim_fault_kind fault_of[] = {[SIM_CALL_MEMORY] = SIM_NO_MEMORY,
                                               [SIM_CALL_MPI] = SIM_MPI_FAILS,
                                               [SIM_CALL_FILE] = SIM_DISK_FAILS,
                                               [SIM_CALL_DEVICE] = SIM_DEVICE_FAILS,
                                               [SIM_CALL_HOOK] = SIM_HOOK_FAILS};

static bool records;
static uint64_t known[N_KNOWN]; /* hashes of the stacks that were seen; 0: none */
static size_t n_known;
static struct sim_fault places[SIM_MOST_PLACES];
static int n_places;

/* True for a stack that was not seen before. */
static bool is_new(enum sim_call call)
{
    void *frames[MOST_FRAMES];
    const struct sim_rank *rank = sim.now;
    sim.now = NULL; /* backtrace's own calls are not the rank's */
    const int n = backtrace(frames, MOST_FRAMES);
    sim.now = (struct sim_rank *)(uintptr_t)rank;
    uint64_t hash = UINT64_C(14695981039346656037) + (uint64_t)call;
    for (int i = 0; i < n; i++) {
        hash = (hash ^ (uintptr_t)frames[i]) * UINT64_C(1099511628211);
    }
    size_t at = (hash >> 40) & (N_KNOWN - 1);
    while (known[at] != 0 && known[at] != hash) {
        at = (at + 1) & (N_KNOWN - 1);
    }
    const bool seen = known[at] == hash || n_known >= N_KNOWN / 2;
    n_known += known[at] == 0;
    known[at] = seen ? known[at] : hash;
    return !seen;
}

void sim_places_record(bool on)
{
    records = on;
    n_places = on ? 0 : n_places;
}

int sim_places(const struct sim_fault **out)
{
    *out = places;
    return n_places;
}

bool sim_call_fails(enum sim_call call)
{
    struct sim_rank *rank = sim.now;
    if (rank == NULL) {
        return false;
    }
    const uint64_t number = ++rank->n_calls[call];
    if (records && n_places < SIM_MOST_PLACES && is_new(call)) {
        places[n_places++] =
            (struct sim_fault){.kind = fault_of[call], .rank = rank->number, .call = number};
    }
    bool failed = rank->fails_in[call] > 0 && --rank->fails_in[call] == 0;
    for (int i = 0; i < sim.plan->n_faults && sim.faulty; i++) {
        const struct sim_fault *fault = &sim.plan->faults[i];
        if (fault->call == number && fault->kind == fault_of[call] && fault->rank == rank->number &&
            !fault->off && !sim.struck[i]) {
            sim.struck[i] = failed = true;
            sim.struck_ns[i] = rank->time_ns;
        }
    }
    if (failed) {
        char text[128];
        const struct sim_fault fault = {
            .kind = fault_of[call], .rank = rank->number, .call = number};
        sim_trace("%s", sim_fault_text(&fault, text, sizeof text));
    }
    return failed;
}

/* ---- the reference backend, whose operations fail */

static enum dt_status device_call(void)
{
    return sim_call_fails(SIM_CALL_DEVICE)
               ? dt_error(DT_UNAVAILABLE, "the simulated device has failed")
               : DT_OK;
}

static struct dt_backend_ops failing; /* dt_ref_backend, but for what follows */

static enum dt_status device_open(const struct dt_backend_options *options, struct dt_backend **out)
{
    DT_TRY(device_call());
    DT_TRY(dt_ref_backend.open(options, out));
    (*out)->ops = &failing;
    (*out)->host_memory = !sim.plan->own_memory;
    return DT_OK;
}

#define OPERATION(name, parameters, arguments)                           \
    static enum dt_status device_##name parameters                       \
    {                                                                    \
        const enum dt_status status = device_call();                     \
        return status != DT_OK ? status : dt_ref_backend.name arguments; \
    }
OPERATION(alloc, (struct dt_backend * b, size_t n, void **out), (b, n, out))
OPERATION(copy_in, (struct dt_backend * b, void *to, const void *from, size_t n), (b, to, from, n))
OPERATION(copy_out, (struct dt_backend * b, void *to, const void *from, size_t n), (b, to, from, n))
OPERATION(sync, (struct dt_backend * b), (b))
OPERATION(samples_open,
          (struct dt_backend * b, const struct dt_samples *s, struct dt_bound_samples **out),
          (b, s, out))
OPERATION(gather,
          (struct dt_backend * b, struct dt_bound_samples *bound, const struct dt_batch *batch,
           float *x),
          (b, bound, batch, x))
OPERATION(block_open,
          (struct dt_backend * b, const struct dt_model *model, int block, int capacity,
           struct dt_block_state **out),
          (b, model, block, capacity, out))
OPERATION(block_forward,
          (struct dt_block_state * state, const float *params, const float *x, float *y,
           const struct dt_pass *pass),
          (state, params, x, y, pass))
OPERATION(block_backward,
          (struct dt_block_state * state, const float *params, float *grads, const float *x,
           const float *y, float *dy, float *dx, const struct dt_pass *pass),
          (state, params, grads, x, y, dy, dx, pass))
OPERATION(loss,
          (struct dt_backend * b, const struct dt_model_spec *spec, struct dt_bound_samples *bound,
           const struct dt_batch *batch, int n_outputs, const float *logits, float *dlogits),
          (b, spec, bound, batch, n_outputs, logits, dlogits))
OPERATION(metrics_take, (struct dt_backend * b, struct dt_metrics *out), (b, out))
OPERATION(optimizer_step,
          (struct dt_backend * b, const struct dt_update *update, size_t n, float *params,
           const float *grads, float *state1, float *state2),
          (b, update, n, params, grads, state1, state2))
OPERATION(sum_squares, (struct dt_backend * b, size_t n, const float *x, double *out),
          (b, n, x, out))

WRAP(enum dt_status, dt_device_choose, struct dt_world *world, const struct dt_config *config,
     struct dt_device_choice *out)
{
    failing = dt_ref_backend;
    failing.open = device_open;
    failing.alloc = device_alloc;
    failing.copy_in = device_copy_in;
    failing.copy_out = device_copy_out;
    failing.sync = device_sync;
    failing.samples_open = device_samples_open;
    failing.gather = device_gather;
    failing.block_open = device_block_open;
    failing.block_forward = device_block_forward;
    failing.block_backward = device_block_backward;
    failing.loss = device_loss;
    failing.metrics_take = device_metrics_take;
    failing.optimizer_step = device_optimizer_step;
    failing.sum_squares = device_sum_squares;
    const enum dt_status s = __real_dt_device_choose(world, config, out);
    out->backend = &failing;
    return s;
}

/* ---- a hook, which observes spans too */

enum dt_status sim_hook_call(void)
{
    return sim_call_fails(SIM_CALL_HOOK) ? dt_error(DT_FAILED, "the simulated hook has failed")
                                         : DT_OK;
}

static enum dt_status span(struct dt_trace *trace, const struct dt_span *span)
{
    (void)trace, (void)span;
    return sim_hook_call();
}
static struct dt_trace spans = {.begin = span, .end = span};

static enum dt_status run_begin(struct dt_hook *h, struct dt_trainer *t, struct dt_run_event *e)
{
    (void)h, (void)e;
    if (t->config.trace_first == 0) {
        dt_trainer_trace(t, &spans);
    }
    return sim_hook_call();
}

static enum dt_status after_loss(struct dt_hook *h, struct dt_trainer *t)
{
    (void)h, (void)t;
    return sim_hook_call();
}

static enum dt_status steps(struct dt_hook *h, struct dt_trainer *t, uint64_t first, uint64_t last)
{
    (void)h, (void)t, (void)first, (void)last;
    return sim_hook_call();
}

static enum dt_status epoch_end(struct dt_hook *h, struct dt_trainer *t, struct dt_epoch_event *e)
{
    (void)h, (void)t, (void)e;
    return sim_hook_call();
}

static enum dt_status run_end(struct dt_hook *h, struct dt_trainer *t, enum dt_status status,
                              struct dt_end_event *e)
{
    (void)h, (void)t, (void)status, (void)e;
    return sim_hook_call();
}

static const struct dt_hook_ops hook_ops = {.run_begin = run_begin,
                                            .run_begun = after_loss,
                                            .step_begin = steps,
                                            .after_loss = after_loss,
                                            .step_end = steps,
                                            .epoch_end = epoch_end,
                                            .run_end = run_end};

enum dt_status sim_hook_open(struct dt_trainer *trainer)
{
    struct dt_hook *hook;
    return dt_hook_open(trainer, &hook_ops, sizeof *hook, "the simulated hook", (void **)&hook);
}
