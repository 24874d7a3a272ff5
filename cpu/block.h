/* Blocks on the cpu backend. A block is self-contained: it owns its packed weights, masks and
 * scratch memory, and the state that its forward pass leaves for its backward pass. Threads share
 * the images; gradients are summed per fixed slice of the batch. */
#ifndef DT_CPU_BLOCK_H
#define DT_CPU_BLOCK_H

#include "base/samples.h"
#include "cpu/kernels/bf16.h"
#include "cpu/kernels/kernels.h"
#include "cpu/threads.h"

#define DT_READABLE_PAST_END 256 /* bytes after memory; kernels load whole vectors */

/* Zeroed, 64-byte aligned, DT_READABLE_PAST_END readable past the end; for free(). NULL: out of
 * memory. */
void *dt_cpu_memory(size_t n_bytes);

/* State shared by all parts of the backend. */
struct dt_cpu {
    struct dt_backend base;
    const struct dt_cpu_kernels *kernels;
    const struct dt_bf16_kernels *bf16; /* NULL: everything is f32 */
    struct dt_threads *threads;
    struct dt_metrics metrics;
    char description[64];
    uint32_t subnormals; /* of the opening thread: backend.c */
    bool deterministic;  /* struct dt_backend_options */
};

/* Images per slice: a convolution's backward pass sums their gradients, in one thread, before
 * adding them to the other slices'. A thirty-second of the largest batch: enough slices for many
 * threads, few enough that adding them costs little. */
static inline int dt_cpu_slice(const struct dt_cpu *cpu, int capacity)
{
    return cpu->deterministic || capacity >= 128 ? 4 : (capacity + 31) / 32;
}

enum dt_status dt_cpu_block_open(struct dt_backend *backend, const struct dt_model *model,
                                 int index, int capacity, struct dt_block_state **out);
void dt_cpu_block_close(struct dt_block_state *state);
enum dt_status dt_cpu_block_forward(struct dt_block_state *state, const float *params,
                                    const float *x, float *y, const struct dt_pass *pass);
enum dt_status dt_cpu_block_backward(struct dt_block_state *state, const float *params,
                                     float *grads, const float *x, const float *y, float *dy,
                                     float *dx, const struct dt_pass *pass);
/* True if the opened block could write dx over x: see struct dt_network_plan. index >= 1. */
bool dt_cpu_block_dx_over_x(const struct dt_cpu *cpu, const struct dt_model *model, int index,
                            int capacity);

#endif
