#include "cuda/cuda_backend.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/transform.h"
#include "cuda/cuda_check.h"
#include "model/layers/layers.h"

struct dt_bound_samples {
    struct dt_samples gpu; /* with device pointers, owned */
};

static struct dt_cuda *cuda_of(struct dt_backend *backend)
{
    return (struct dt_cuda *)backend;
}

/* ---- memory */

static enum dt_status cuda_alloc(struct dt_backend *backend, size_t n_bytes, void **out)
{
    return dt_cuda_alloc(cuda_of(backend), "it", n_bytes, out);
}

static void cuda_free(struct dt_backend *backend, void *memory)
{
    dt_cuda_drop(cuda_of(backend)); /* deferred work may read `memory`: nobody wants it now */
    dt_cuda_packed_forget(cuda_of(backend));
    dt_cuda_free(cuda_of(backend), memory);
}

/* Waits for the event, or for all work on the main stream if it is NULL. */
static enum dt_status wait_for(struct dt_cuda *cuda, cudaEvent_t event)
{
    const cudaError_t code = dt_cuda_wait(cuda->stream, event, cuda->limit_s);
    if (code == cudaErrorNotReady) {
        cuda->lost = true;
        return dt_error(DT_STALLED,
                        "%s, %s, has not finished its work within %.0f s (look for Xid in dmesg; "
                        "raise DTRAIN_TIMEOUT if the work takes that long)",
                        cuda->gpu.name, cuda->gpu.uuid, cuda->limit_s);
    }
    DT_CUDA(code);
    return DT_OK;
}

static enum dt_status cuda_sync(struct dt_backend *backend)
{
    DT_TRY(dt_cuda_settle(cuda_of(backend)));
    return wait_for(cuda_of(backend), NULL);
}

/* Waits before returning: `host` is the caller's again afterwards. */
static enum dt_status cuda_copy_in(struct dt_backend *backend, void *device, const void *host,
                                   size_t n_bytes)
{
    struct dt_cuda *cuda = cuda_of(backend);
    DT_TRY(cuda_sync(backend)); /* a copy of unpinned memory may wait, without a limit */
    cuda->gathered.in_place = cuda->gathered.in_place && cuda->gathered.x != device;
    DT_CUDA(cudaMemcpyAsync(device, host, n_bytes, cudaMemcpyHostToDevice, cuda->stream));
    DT_TRY(dt_cuda_packed_written(cuda, device, n_bytes));
    return cuda_sync(backend);
}

static enum dt_status cuda_copy_out(struct dt_backend *backend, void *host, const void *device,
                                    size_t n_bytes)
{
    struct dt_cuda *cuda = cuda_of(backend);
    cuda->gathered.pending |=
        cuda->gathered.in_place && cuda->gathered.x == device; /* now x is read */
    DT_TRY(dt_cuda_unpack(cuda));
    DT_TRY(cuda_sync(backend)); /* as above */
    DT_CUDA(cudaMemcpyAsync(host, device, n_bytes, cudaMemcpyDeviceToHost, cuda->stream));
    return cuda_sync(backend);
}

/* ---- open and close */

#define DT_OPERATION(symbol) dt_cuda_##symbol
DT_OPERATION_LIST(DT_OPERATION_DECLARATION)
static const struct dt_layer_ops *const layers[] = {DT_OPERATION_LIST(DT_OPERATION_ENTRY)};

static enum dt_status open_parts(struct dt_cuda *cuda)
{
    DT_TRY(dt_cuda_lanes_open(cuda));
    for (int i = 0; i < DT_CUDA_BATCH_SLOTS; i++) {
        DT_CUDA(cudaEventCreateWithFlags(&cuda->batches.copied[i], cudaEventDisableTiming));
    }
    DT_TRY(dt_cuda_alloc(cuda, "the running sums", sizeof *cuda->sums, (void **)&cuda->sums));
    DT_TRY(dt_cuda_alloc(cuda, "the step under way", sizeof *cuda->step, (void **)&cuda->step));
    DT_CUDA(cudaMallocHost((void **)&cuda->host_metrics, sizeof *cuda->host_metrics));
    return DT_OK;
}

/* Members not opened are NULL, which all of these calls but the destroying ones accept. */
static void cuda_close(struct dt_backend *backend)
{
    struct dt_cuda *cuda = cuda_of(backend);
    if (cuda->lost) {
        return;
    }
    cudaDeviceSynchronize();
    for (int i = 0; i < DT_CUDA_BATCH_SLOTS && cuda->batches.copied[i] != NULL; i++) {
        cudaEventDestroy(cuda->batches.copied[i]);
    }
    dt_cuda_release_scratch(cuda);
    dt_cuda_free(cuda, cuda->batches.device);
    cudaFreeHost(cuda->batches.host);
    dt_cuda_free(cuda, cuda->sums);
    dt_cuda_free(cuda, cuda->step);
    cudaFreeHost(cuda->host_metrics);
    dt_cuda_lanes_close(cuda);
    free(cuda);
}

static enum dt_status cuda_open(const struct dt_backend_options *options, struct dt_backend **out)
{
    static const char *const precisions[] = {DT_PRECISION_LIST(DT_ENUM_NAME)};
    struct dt_device_info gpu;
    int n_gpus;
    DT_TRY(dt_cuda_check_without());
    DT_TRY(dt_cuda_probe(options->local_rank, &gpu, &n_gpus));
    struct dt_cuda *cuda = calloc(1, sizeof *cuda);
    if (cuda == NULL) {
        return dt_error(DT_NO_MEMORY, "out of memory while opening the cuda backend");
    }
    cuda->gpu = gpu;
    cuda->precision = options->precision;
    cuda->deterministic = options->deterministic || dt_cuda_without(DT_CUDA_ENGINE_TRIAL);
    cuda->unpacked = dt_cuda_without(DT_CUDA_PACKED);
    cuda->limit_s = options->limit_s;
    cuda->alive = options->alive;
    cuda->type = options->precision == DT_PRECISION_BF16 ? DT_GPU_BF16 : DT_GPU_F32;
    snprintf(cuda->description, sizeof cuda->description, "%s, %s", gpu.name,
             precisions[options->precision]);
    cuda->base = (struct dt_backend){
        .ops = &dt_cuda_backend, .description = cuda->description, .layers = layers};
    const enum dt_status s = open_parts(cuda);
    if (s != DT_OK) {
        cuda_close(&cuda->base);
        return s;
    }
    *out = &cuda->base;
    return DT_OK;
}

/* ---- samples and batches */

static void cuda_samples_close(struct dt_backend *backend, struct dt_bound_samples *bound)
{
    struct dt_cuda *cuda = cuda_of(backend);
    dt_cuda_free(cuda, (void *)bound->gpu.pixels);
    dt_cuda_free(cuda, (void *)bound->gpu.values);
    dt_cuda_free(cuda, (void *)bound->gpu.labels);
    dt_cuda_free(cuda, (void *)bound->gpu.targets);
    dt_cuda_free(cuda, (void *)bound->gpu.transform);
    free(bound);
}

/* out: a pointer, which stays NULL if `host` is NULL. */
static enum dt_status to_device(struct dt_cuda *cuda, const char *what, const void *host,
                                size_t n_bytes, void *out)
{
    void *memory;
    if (host == NULL) {
        return DT_OK;
    }
    DT_TRY(dt_cuda_alloc(cuda, what, n_bytes, &memory));
    memcpy(out, &memory, sizeof memory);
    return cuda_copy_in(&cuda->base, memory, host, n_bytes);
}

static enum dt_status copy_samples(struct dt_cuda *cuda, const struct dt_samples *from,
                                   struct dt_samples *to)
{
    const size_t n = from->n, n_elems = n * dt_shape_elems(from->shape),
                 n_targets = n * (size_t)from->n_targets;
    to->shape = from->shape;
    to->scale = from->scale;
    to->n_classes = from->n_classes;
    to->n_targets = from->n_targets;
    DT_TRY(to_device(cuda, "the data set", from->pixels, n_elems, &to->pixels));
    DT_TRY(to_device(cuda, "the data set", from->values, n_elems * sizeof(float), &to->values));
    DT_TRY(to_device(cuda, "the data set's labels", from->labels, n * sizeof *from->labels,
                     &to->labels));
    DT_TRY(to_device(cuda, "the data set's targets", from->targets, n_targets * sizeof(float),
                     &to->targets));
    return to_device(cuda, "what is done to images", from->transform,
                     sizeof(struct dt_pixel_transform), &to->transform);
}

static enum dt_status cuda_samples_open(struct dt_backend *backend,
                                        const struct dt_samples *samples,
                                        struct dt_bound_samples **out)
{
    struct dt_bound_samples *bound = calloc(1, sizeof *bound);
    if (bound == NULL) {
        return dt_error(DT_NO_MEMORY, "out of memory while binding the data set");
    }
    const enum dt_status s = copy_samples(cuda_of(backend), samples, &bound->gpu);
    if (s != DT_OK) {
        cuda_samples_close(backend, bound);
        return s;
    }
    *out = bound;
    return DT_OK;
}

/* One copy for all three. The next free slot's last copy is DT_CUDA_BATCH_SLOTS batches old, so it
 * is long done. */
static enum dt_status send_batch(struct dt_cuda *cuda, const struct dt_batch *batch)
{
    struct dt_cuda_batches *batches = &cuda->batches;
    DT_TRY(dt_cuda_reserve_batch(cuda, batch->n)); /* no block may be open, which had done so */
    const size_t n = (size_t)batch->n, capacity = (size_t)batches->capacity;
    const int slot = batches->next;
    uint32_t *host = batches->host + (size_t)slot * (1 + 2 * capacity), *rows = host + 1,
             *ids = rows + n;
    DT_TRY(wait_for(cuda, batches->copied[slot]));
    host[0] = batch->epoch;
    memcpy(rows, batch->rows, n * sizeof *rows);
    memcpy(ids, batch->ids, n * sizeof *ids);
    DT_CUDA(cudaMemcpyAsync(batches->device, host, (1 + 2 * n) * sizeof *host,
                            cudaMemcpyHostToDevice, cuda->stream));
    DT_CUDA(cudaEventRecord(batches->copied[slot], cuda->stream));
    batches->next = (slot + 1) % DT_CUDA_BATCH_SLOTS;
    cuda->batch = (struct dt_gpu_batch){
        .epoch = batches->device, .rows = batches->device + 1, .ids = batches->device + 1 + n};
    return DT_OK;
}

static enum dt_status cuda_gather(struct dt_backend *backend, struct dt_bound_samples *bound,
                                  const struct dt_batch *batch, float *x)
{
    struct dt_cuda *cuda = cuda_of(backend);
    DT_TRY(dt_cuda_settle(cuda));
    cuda->gathered = (struct dt_cuda_gathered){0};
    if (batch->n == 0) {
        return DT_OK;
    }
    if (cuda->inputs_on_device) {
        cuda->batch = (struct dt_gpu_batch){
            .epoch = &cuda->step->epoch, .rows = batch->rows, .ids = batch->ids};
    } else {
        DT_TRY(send_batch(cuda, batch));
    }
    cuda->gathered = (struct dt_cuda_gathered){
        .samples = bound->gpu, .n = batch->n, .x = x, .pending = true, .in_place = true};
    return bound->gpu.transform != NULL
               ? dt_cuda_enqueue_waiting(cuda) /* nothing else reads such samples in place */
               : DT_OK;
}

/* A GPU runs large calls best. */
static struct dt_network_plan cuda_plan(const struct dt_backend *backend,
                                        const struct dt_model *model, int capacity)
{
    (void)backend, (void)model;
    return (struct dt_network_plan){.chunk = capacity};
}

/* ---- loss, sums, update */

/* Runs the deferred forward pass of the head with its loss. */
static enum dt_status head_with_loss(struct dt_cuda *cuda, const struct dt_bound_samples *bound,
                                     double smoothing, float *dlogits)
{
    struct dt_gpu_head head = cuda->waiting;
    head.labels = bound->gpu.labels;
    head.rows = cuda->batch.rows;
    head.smoothing = smoothing;
    head.dlogits = dlogits;
    head.metrics = &cuda->sums->metrics;
    cuda->waiting.n = 0;
    DT_CUDA(dt_gpu_head_forward(cuda->stream, &head));
    return DT_OK;
}

static enum dt_status cuda_loss(struct dt_backend *backend, const struct dt_model_spec *spec,
                                struct dt_bound_samples *bound, const struct dt_batch *batch,
                                int n_outputs, const float *logits, float *dlogits)
{
    struct dt_cuda *cuda = cuda_of(backend);
    if (spec->loss == DT_LOSS_SOFTMAX_CROSS_ENTROPY && cuda->waiting.n > 0 &&
        cuda->waiting.logits == logits) {
        return head_with_loss(cuda, bound, spec->label_smoothing, dlogits);
    }
    DT_TRY(dt_cuda_enqueue_waiting(cuda));
    if (batch->n > 0) {
        DT_CUDA(dt_gpu_loss(cuda->stream, spec, &bound->gpu, cuda->batch.rows, batch->n, n_outputs,
                            logits, dlogits, cuda->scratch[DT_CUDA_SCRATCH_LOSS].memory,
                            &cuda->sums->metrics));
    }
    return DT_OK;
}

static enum dt_status cuda_metrics_take(struct dt_backend *backend, struct dt_metrics *out)
{
    struct dt_cuda *cuda = cuda_of(backend);
    const struct dt_metrics *taken = cuda->host_metrics;
    DT_TRY(dt_cuda_settle(cuda));
    DT_CUDA(cudaMemcpyAsync(cuda->host_metrics, &cuda->sums->metrics, sizeof *taken,
                            cudaMemcpyDeviceToHost, cuda->stream));
    DT_CUDA(cudaMemsetAsync(&cuda->sums->metrics, 0, sizeof *taken, cuda->stream));
    DT_TRY(cuda_sync(backend));
    *out = *taken;
    return DT_OK;
}

/* Runs beside later work: the backward pass continues while the weights of its last blocks are
 * updated. */
static enum dt_status cuda_optimizer_step(struct dt_backend *backend,
                                          const struct dt_update *update, size_t n_elems,
                                          float *params, const float *grads, float *state1,
                                          float *state2)
{
    struct dt_cuda *cuda = cuda_of(backend);
    struct dt_update *numbers = &cuda->step->update;
    DT_TRY(dt_cuda_enqueue_waiting(cuda));
    const cudaStream_t stream = cuda->branches.lanes[DT_CUDA_UPDATES].stream;
    if (!dt_update_is_elementwise(update) || cuda->unpacked) {
        DT_TRY(dt_cuda_unpack(cuda));
    }
    DT_TRY(dt_cuda_fork(cuda, DT_CUDA_UPDATES));
    if (!cuda->inputs_on_device) { /* unpinned memory: read before the call returns */
        DT_CUDA(cudaMemcpyAsync(numbers, update, sizeof *update, cudaMemcpyHostToDevice, stream));
    }
    if (!dt_update_is_elementwise(update)) {
        DT_CUDA(
            dt_gpu_sum_squares(stream, n_elems, grads, cuda->sums->scratch, &cuda->sums->squares));
        DT_CUDA(dt_gpu_clip(stream, &cuda->sums->squares, numbers));
    }
    const struct dt_gpu_packs packs = dt_cuda_packs(cuda, n_elems, params, grads);
    DT_CUDA(dt_gpu_optimizer_step(stream, numbers, n_elems, params, grads, state1, state2, &packs));
    return DT_OK;
}

static enum dt_status cuda_sum_squares(struct dt_backend *backend, size_t n_elems, const float *x,
                                       double *out)
{
    struct dt_cuda *cuda = cuda_of(backend);
    DT_TRY(dt_cuda_unpack_recorded(cuda));
    DT_TRY(dt_cuda_settle(cuda));
    DT_CUDA(
        dt_gpu_sum_squares(cuda->stream, n_elems, x, cuda->sums->scratch, &cuda->sums->squares));
    return cuda_copy_out(backend, out, &cuda->sums->squares, sizeof *out);
}

const struct dt_backend_ops dt_cuda_backend = {
    .name = "cuda",
    .open = cuda_open,
    .close = cuda_close,
    .alloc = cuda_alloc,
    .free = cuda_free,
    .copy_in = cuda_copy_in,
    .copy_out = cuda_copy_out,
    .sync = cuda_sync,
    .samples_open = cuda_samples_open,
    .samples_close = cuda_samples_close,
    .gather = cuda_gather,
    .plan = cuda_plan,
    .block_open = dt_cuda_block_open,
    .block_close = dt_cuda_block_close,
    .block_forward = dt_cuda_block_forward,
    .block_backward = dt_cuda_block_backward,
    .loss = cuda_loss,
    .metrics_take = cuda_metrics_take,
    .optimizer_step = cuda_optimizer_step,
    .sum_squares = cuda_sum_squares,
};

/* The one symbol, which the program loads. */
const struct dt_device_module dt_device_module = {
    .version = DT_DEVICE_MODULE_VERSION,
    .backend = &dt_cuda_backend,
    .probe = dt_cuda_probe,
    .memory = dt_cuda_memory,
    .allreduce_open = dt_nccl_open,
    .graph = &dt_step_graph,
    .engines = dt_cuda_block_engines,
    .versions = dt_cuda_versions,
};
