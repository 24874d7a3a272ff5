#include "cuda/cudnn/engine_trial.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "base/arithmetic.h"
#include "cuda/cuda_check.h"

#define N_RUNS 8     /* recorded together, so that the host's time per call does not count */
#define N_LAUNCHES 4 /* the first warms up */
#define UNRECORDED_US 1e12
#define NAN_BYTES 0xff
#define N_LOOKED_AT 4096 /* bytes of a result: an engine treats all NaNs alike */

struct trial {
    struct dt_conv_plan *plan;
    const struct dt_engine_trial_spec *spec;
    cudaStream_t stream;
    cudaEvent_t begin, end;
    void *operands[DT_CONV_N_OPERANDS], *workspace;
};

/* ---- one engine, which the plan uses */

static enum dt_status run_once(const struct trial *t)
{
    void *out = t->operands[2];
    DT_TRY(dt_conv_plan_run(t->plan, t->operands[0], t->operands[1], t->operands[3], out,
                            t->workspace));
    if (t->spec->tail != NULL) {
        struct dt_gpu_tail tail = *t->spec->tail;
        tail.z = tail.y = out;
        DT_CUDA(dt_gpu_tail_forward(t->stream, &tail));
    }
    return DT_OK;
}

static bool record(const struct trial *t, cudaGraphExec_t *out)
{
    cudaGraph_t graph = NULL;
    bool works = cudaStreamBeginCapture(t->stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess;
    for (int i = 0; i < N_RUNS && works; i++) {
        works = run_once(t) == DT_OK;
    }
    works = cudaStreamEndCapture(t->stream, &graph) == cudaSuccess && works &&
            cudaGraphInstantiate(out, graph, 0) == cudaSuccess;
    if (graph != NULL) {
        cudaGraphDestroy(graph);
    }
    return works;
}

/* Waits for the enqueued work. The limit starts here: before, the host loads the engine from a
 * file, perhaps across a network. */
static enum dt_status wait_for_end(const struct trial *t)
{
    DT_CUDA(cudaEventRecord(t->end, t->stream));
    const cudaError_t code = dt_cuda_wait(t->stream, t->end, t->spec->limit_s);
    if (code == cudaErrorNotReady) {
        return dt_error(
            DT_STALLED,
            "the GPU does not finish the %s by cuDNN's engine %lld (set cuda.deterministic=true)",
            t->plan->name, (long long)dt_conv_plan_engine(t->plan)->number);
    }
    DT_CUDA(code);
    return DT_OK;
}

static bool is_nan(const uint8_t *element, size_t n_bytes)
{
    uint16_t upper; /* upper half of a float, or all of a bfloat16 */
    memcpy(&upper, element + n_bytes - sizeof upper, sizeof upper);
    return (upper & 0x7fff) > 0x7f80; /* quiet NaNs, as arithmetic makes them */
}

/* Convolves NaNs, and checks that they come out. */
static enum dt_status check_nans(const struct trial *t)
{
    const size_t n_in = t->plan->n_bytes[0], n_out = t->plan->n_bytes[2];
    const size_t n_looked_at = n_out < N_LOOKED_AT ? n_out : N_LOOKED_AT,
                 each = t->plan->elem_bytes;
    uint8_t results[N_LOOKED_AT];
    DT_CUDA(cudaMemsetAsync(t->operands[0], NAN_BYTES, n_in, t->stream));
    DT_TRY(run_once(t));
    DT_CUDA(cudaMemsetAsync(t->operands[0], 0, n_in, t->stream));
    DT_TRY(wait_for_end(t));
    DT_CUDA(
        cudaMemcpyAsync(results, t->operands[2], n_looked_at, cudaMemcpyDeviceToHost, t->stream));
    DT_CUDA(cudaStreamSynchronize(t->stream));
    for (size_t i = 0; i < n_looked_at; i += each) {
        if (!is_nan(results + i, each)) {
            return dt_error(DT_UNAVAILABLE, "cuDNN's engine %lld takes a NaN for a number",
                            (long long)dt_conv_plan_engine(t->plan)->number);
        }
    }
    return DT_OK;
}

/* Returns the shortest of a few times: other load can only add to it. */
static enum dt_status time_graph(const struct trial *t, cudaGraphExec_t graph, double *us)
{
    for (int i = 0; i < N_LAUNCHES; i++) {
        float ms;
        DT_CUDA(cudaEventRecord(t->begin, t->stream));
        DT_CUDA(cudaGraphLaunch(graph, t->stream));
        DT_TRY(wait_for_end(t));
        DT_CUDA(cudaEventElapsedTime(&ms, t->begin, t->end));
        *us = i > 0 ? fmin(*us, 1e3 * (double)ms / N_RUNS) : (double)INFINITY;
    }
    return DT_OK;
}

/* One that cannot be recorded is not timed: it is kept only if no other works. */
static enum dt_status time_engine(const struct trial *t, struct dt_engine *engine)
{
    cudaGraphExec_t graph = NULL;
    engine->unrecorded = !record(t, &graph);
    if (engine->unrecorded) {
        dt_error_clear();
        cudaGetLastError(); /* so that the next call does not report it again */
        return DT_OK;
    }
    const enum dt_status s = t->spec->timed ? time_graph(t, graph, &engine->us) : DT_OK;
    cudaGraphExecDestroy(graph);
    return s;
}

/* Runs once call by call, because cuDNN must not load code during a capture. */
static enum dt_status try_engine(const struct trial *t, struct dt_engine *engine)
{
    if (t->plan->has_relu && engine->number == 0) {
        return dt_error(DT_UNAVAILABLE, "cuDNN's engine 0 is the plain implicit product");
    }
    DT_TRY(t->plan->has_relu ? check_nans(t) : run_once(t));
    DT_TRY(wait_for_end(t));
    return time_engine(t, engine);
}

/* ---- all engines */

/* If none can run, the last one's error stays. */
static enum dt_status try_all(const struct trial *t, int *fastest)
{
    const int n = t->plan->n_engines;
    double best = INFINITY;
    enum dt_status s = DT_OK;
    *fastest = -1;
    for (int i = 0; i < n && (t->spec->timed || *fastest < 0); i++) {
        struct dt_engine *engine = &t->plan->engines[i];
        t->plan->used = i;
        s = try_engine(t, engine);
        dt_alive_show(&t->spec->alive);
        const double us = engine->unrecorded ? UNRECORDED_US : engine->us;
        if (s == DT_OK && us < best) {
            best = us;
            *fastest = i;
        }
        const cudaError_t state = cudaStreamQuery(t->stream); /* of the GPU itself */
        cudaGetLastError();
        if (s == DT_STALLED || (s != DT_OK && state != cudaSuccess && state != cudaErrorNotReady)) {
            return s;
        }
        if (s != DT_OK && (*fastest >= 0 || i + 1 < n)) {
            dt_error_clear();
        }
    }
    return *fastest >= 0 ? DT_OK : s;
}

/* ---- their memory */

static bool has_memory(void **memory, size_t n_bytes, cudaStream_t stream)
{
    const bool has = cudaMalloc(memory, n_bytes > 0 ? n_bytes : 1) == cudaSuccess &&
                     cudaMemsetAsync(*memory, 0, n_bytes, stream) == cudaSuccess;
    if (!has) {
        cudaGetLastError(); /* so that the next call does not report it again */
    }
    return has;
}

static size_t largest_workspace(const struct dt_conv_plan *plan)
{
    size_t largest = 0;
    for (int i = 0; i < plan->n_engines; i++) {
        largest = dt_max_size(largest, plan->engines[i].workspace_bytes);
    }
    return largest;
}

static bool open_memory(struct trial *t)
{
    bool has = has_memory(&t->workspace, largest_workspace(t->plan), t->stream);
    for (int i = 0; i < DT_CONV_N_OPERANDS && has; i++) {
        has = has_memory(&t->operands[i], t->plan->n_bytes[i], t->stream);
    }
    return has;
}

static enum dt_status open_events(struct trial *t)
{
    DT_CUDA(cudaEventCreate(&t->begin));
    DT_CUDA(cudaEventCreate(&t->end));
    return DT_OK;
}

static void close_trial(struct trial *t)
{
    cudaFree(t->workspace);
    for (int i = 0; i < DT_CONV_N_OPERANDS; i++) {
        cudaFree(t->operands[i]);
    }
    if (t->begin != NULL) {
        cudaEventDestroy(t->begin);
    }
    if (t->end != NULL) {
        cudaEventDestroy(t->end);
    }
}

enum dt_status dt_engine_trial(struct dt_conv_plan *plan, const struct dt_engine_trial_spec *spec)
{
    struct trial t = {.plan = plan, .spec = spec, .stream = spec->stream};
    int fastest = 0;
    enum dt_status s = open_events(&t);
    if (s == DT_OK && open_memory(&t)) {
        s = try_all(&t, &fastest);
    } else if (s == DT_OK && plan->has_relu) {
        s = dt_error(DT_UNAVAILABLE, "no memory to try cuDNN's engines");
    }
    if (s == DT_STALLED) {
        return s; /* freeing would wait */
    }
    if (s == DT_OK) {
        plan->used = fastest;
        dt_conv_plan_keep(plan);
    }
    close_trial(&t);
    return s;
}
