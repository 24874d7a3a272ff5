/* Blocks on the cpu backend. A block is a whole unit: it owns its packed weights, masks and scratch
 * memory, and what its forward pass leaves for its backward pass. Images are shared out over the
 * threads; gradients are summed per fixed slice of the batch. */
#ifndef DT_CPU_BLOCK_H
#define DT_CPU_BLOCK_H

#include "cpu/kernels/bf16.h"
#include "cpu/kernels/kernels.h"
#include "cpu/memory.h"
#include "cpu/threads.h"

/* Images whose gradients are summed before they are added to the others': what a thread takes at a
 * time in a convolution's backward pass. A thirty-second of the largest batch, so that many threads
 * find work, but not so many that adding costs much. */
static inline int dt_cpu_slice(int capacity)
{
    return capacity < 128 ? (capacity + 31) / 32 : 4;
}

/* What every part of the backend sees. */
struct dt_cpu {
    struct dt_backend base;
    const struct dt_cpu_kernels *kernels;
    const struct dt_bf16_kernels *bf16; /* NULL: all is f32 */
    struct dt_threads *threads;
    struct dt_metrics metrics;
    char description[64];
    uint32_t subnormals; /* of the thread that opened it: cpu_subnormals.h */
};

enum dt_status dt_cpu_block_open(struct dt_backend *backend, const struct dt_model *model,
                                 int index, int capacity, struct dt_block_state **out);
void dt_cpu_block_close(struct dt_block_state *state);
enum dt_status dt_cpu_block_forward(struct dt_block_state *state, const float *params,
                                    const float *x, float *y, const struct dt_pass *pass);
enum dt_status dt_cpu_block_backward(struct dt_block_state *state, const float *params,
                                     float *grads, const float *x, const float *y, float *dy,
                                     float *dx, const struct dt_pass *pass);
/* Whether the block, when opened, could write dx over x: see struct dt_network_plan. index >= 1. */
bool dt_cpu_block_dx_over_x(const struct dt_cpu *cpu, const struct dt_model *model, int index,
                            int capacity);

#endif
