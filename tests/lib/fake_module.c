/* A CUDA module without a GPU, for tests of how the program chooses a device: the cpu backend's
 * numbers, but in memory that the program cannot read or write by itself, because each address it
 * is given has a bit that no address has.
 *
 * The variable FAKE_GPUS has one word a local rank: the beginning of its GPU's UUID, or "-" for
 * none; the last word is also for further ranks. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dist/allreduce/allreduce.h"
#include "model/device_module.h"

#define DEVICE_BIT ((uintptr_t)1 << 55)
#define FAKE_BYTES 139000000000

struct fake_backend {
    struct dt_backend base;
    struct dt_backend *cpu;
    char description[64];
};

/* Samples as a device has them: images as they were when they were bound. */
struct fake_bound {
    struct dt_samples samples;
    uint8_t *pixels;
    struct dt_bound_samples *cpu;
};

static struct dt_backend *cpu_of(struct dt_backend *backend)
{
    return ((struct fake_backend *)backend)->cpu;
}

/* Between the program's address and the real one; NULL stays NULL. */
static void *flip(const void *address)
{
    return address == NULL ? NULL : (void *)((uintptr_t)address ^ DEVICE_BIT);
}

static enum dt_status fake_open(const struct dt_backend_options *options, struct dt_backend **out)
{
#define DT_NAME(constant, name) name,
    static const char *const precisions[] = {DT_PRECISION_LIST(DT_NAME)};
    struct dt_backend_options cpu_options = *options;
    struct fake_backend *fake = calloc(1, sizeof *fake);
    if (fake == NULL) {
        return dt_error(DT_NO_MEMORY, "no memory for a fake GPU");
    }
    cpu_options.precision = DT_PRECISION_F32;
    const enum dt_status s = dt_cpu_backend.open(&cpu_options, &fake->cpu);
    if (s != DT_OK) {
        free(fake);
        return s;
    }
    snprintf(fake->description, sizeof fake->description, "Fake GPU, %s",
             precisions[options->precision]);
    fake->base = (struct dt_backend){
        .ops = dt_device_module.backend, .description = fake->description, .host_memory = false};
    *out = &fake->base;
    return DT_OK;
}

static void fake_close(struct dt_backend *backend)
{
    dt_cpu_backend.close(cpu_of(backend));
    free(backend);
}

static enum dt_status fake_alloc(struct dt_backend *backend, size_t n_bytes, void **out)
{
    DT_TRY(dt_cpu_backend.alloc(cpu_of(backend), n_bytes, out));
    *out = flip(*out);
    return DT_OK;
}

static void fake_free(struct dt_backend *backend, void *memory)
{
    dt_cpu_backend.free(cpu_of(backend), flip(memory));
}

static enum dt_status fake_copy_in(struct dt_backend *backend, void *device, const void *host,
                                   size_t n_bytes)
{
    return dt_cpu_backend.copy_in(cpu_of(backend), flip(device), host, n_bytes);
}

static enum dt_status fake_copy_out(struct dt_backend *backend, void *host, const void *device,
                                    size_t n_bytes)
{
    return dt_cpu_backend.copy_out(cpu_of(backend), host, flip(device), n_bytes);
}

static enum dt_status fake_sync(struct dt_backend *backend)
{
    return dt_cpu_backend.sync(cpu_of(backend));
}

static enum dt_status fake_samples_open(struct dt_backend *backend,
                                        const struct dt_samples *samples,
                                        struct dt_bound_samples **out)
{
    struct fake_bound *bound = calloc(1, sizeof *bound);
    if (bound == NULL) {
        return dt_error(DT_NO_MEMORY, "no memory for samples on a fake GPU");
    }
    bound->samples = *samples;
    const size_t n_bytes =
        samples->pixels != NULL ? samples->n * dt_shape_elems(samples->shape) : 0;
    bound->pixels = malloc(n_bytes + 1);
    if (n_bytes > 0 && bound->pixels != NULL) {
        memcpy(bound->pixels, samples->pixels, n_bytes);
        bound->samples.pixels = bound->pixels;
    }
    const enum dt_status s =
        dt_cpu_backend.samples_open(cpu_of(backend), &bound->samples, &bound->cpu);
    *out = (struct dt_bound_samples *)bound;
    return s;
}

static struct dt_bound_samples *bound_of(struct dt_bound_samples *bound)
{
    return ((struct fake_bound *)bound)->cpu;
}

static void fake_samples_close(struct dt_backend *backend, struct dt_bound_samples *bound)
{
    dt_cpu_backend.samples_close(cpu_of(backend), bound_of(bound));
    free(((struct fake_bound *)bound)->pixels);
    free(bound);
}

static enum dt_status fake_gather(struct dt_backend *backend, struct dt_bound_samples *bound,
                                  const struct dt_batch *batch, float *x)
{
    return dt_cpu_backend.gather(cpu_of(backend), bound_of(bound), batch, flip(x));
}

static struct dt_network_plan fake_plan(const struct dt_backend *backend,
                                        const struct dt_model *model, int capacity)
{
    return dt_cpu_backend.plan(((const struct fake_backend *)backend)->cpu, model, capacity);
}

static enum dt_status fake_block_open(struct dt_backend *backend, const struct dt_model *model,
                                      int block, int capacity, struct dt_block_state **out)
{
    return dt_cpu_backend.block_open(cpu_of(backend), model, block, capacity, out);
}

static void fake_block_close(struct dt_block_state *state)
{
    dt_cpu_backend.block_close(state);
}

static enum dt_status fake_block_forward(struct dt_block_state *state, const float *params,
                                         const float *x, float *y, const struct dt_pass *pass)
{
    return dt_cpu_backend.block_forward(state, flip(params), flip(x), flip(y), pass);
}

static enum dt_status fake_block_backward(struct dt_block_state *state, const float *params,
                                          float *grads, const float *x, const float *y, float *dy,
                                          float *dx, const struct dt_pass *pass)
{
    return dt_cpu_backend.block_backward(state, flip(params), flip(grads), flip(x), flip(y),
                                         flip(dy), flip(dx), pass);
}

static enum dt_status fake_loss(struct dt_backend *backend, const struct dt_model_spec *spec,
                                struct dt_bound_samples *bound, const struct dt_batch *batch,
                                int n_outputs, const float *logits, float *dlogits)
{
    return dt_cpu_backend.loss(cpu_of(backend), spec, bound_of(bound), batch, n_outputs,
                               flip(logits), flip(dlogits));
}

static enum dt_status fake_metrics_take(struct dt_backend *backend, struct dt_metrics *out)
{
    return dt_cpu_backend.metrics_take(cpu_of(backend), out);
}

static enum dt_status fake_optimizer_step(struct dt_backend *backend,
                                          const struct dt_update *update, size_t n_elems,
                                          float *params, const float *grads, float *state1,
                                          float *state2)
{
    return dt_cpu_backend.optimizer_step(cpu_of(backend), update, n_elems, flip(params),
                                         flip(grads), flip(state1), flip(state2));
}

static enum dt_status fake_sum_squares(struct dt_backend *backend, size_t n_elems, const float *x,
                                       double *out)
{
    return dt_cpu_backend.sum_squares(cpu_of(backend), n_elems, flip(x), out);
}

static const struct dt_backend_ops fake_ops = {
    .name = "cuda",
    .open = fake_open,
    .close = fake_close,
    .alloc = fake_alloc,
    .free = fake_free,
    .copy_in = fake_copy_in,
    .copy_out = fake_copy_out,
    .sync = fake_sync,
    .samples_open = fake_samples_open,
    .samples_close = fake_samples_close,
    .gather = fake_gather,
    .plan = fake_plan,
    .block_open = fake_block_open,
    .block_close = fake_block_close,
    .block_forward = fake_block_forward,
    .block_backward = fake_block_backward,
    .loss = fake_loss,
    .metrics_take = fake_metrics_take,
    .optimizer_step = fake_optimizer_step,
    .sum_squares = fake_sum_squares,
};

static enum dt_status fake_probe(int local_rank, struct dt_device_info *out, int *n_gpus)
{
    const char *text = getenv("FAKE_GPUS");
    char word[16] = "-";
    for (int i = 0, n = 0;
         text != NULL && i <= local_rank && sscanf(text, " %15s%n", word, &n) == 1; i++) {
        text += n;
    }
    if (strcmp(word, "-") == 0) {
        return dt_error(DT_UNAVAILABLE, "no GPU is visible (the test wants it so)");
    }
    *out =
        (struct dt_device_info){.index = local_rank, .name = "Fake GPU", .total_bytes = FAKE_BYTES};
    snprintf(out->uuid, sizeof out->uuid, "GPU-%s-0000", word);
    *n_gpus = local_rank + 1;
    return DT_OK;
}

/* In place of NCCL. */
static enum dt_status fake_allreduce_open(const struct dt_allreduce_spec *spec,
                                          struct dt_allreduce **out)
{
    struct dt_allreduce_spec staged = *spec;
    staged.type = DT_ALLREDUCE_STAGED;
    staged.device_open = NULL;
    DT_TRY(dt_allreduce_open(&staged, out));
    (*out)->type = DT_ALLREDUCE_NCCL;
    return DT_OK;
}

/* Numbers that the summary of a run must show. */
static void fake_memory(struct dt_backend *backend, struct dt_device_memory *out)
{
    (void)backend;
    *out = (struct dt_device_memory){
        .peak_bytes = 1240000000, .free_bytes = 136900000000, .total_bytes = FAKE_BYTES};
}

static const char *fake_versions(void)
{
    return "fake CUDA";
}

#ifndef FAKE_VERSION /* another one is refused */
#define FAKE_VERSION DT_DEVICE_MODULE_VERSION
#endif

const struct dt_device_module dt_device_module = {.version = FAKE_VERSION,
                                                  .backend = &fake_ops,
                                                  .probe = fake_probe,
                                                  .memory = fake_memory,
                                                  .allreduce_open = fake_allreduce_open,
                                                  .versions = fake_versions};
