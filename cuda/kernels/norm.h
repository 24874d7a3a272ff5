/* Kernels of batch_norm (cuda/layers/norm.c); conventions as in kernels.h. */
#ifndef DT_CUDA_KERNELS_NORM_H
#define DT_CUDA_KERNELS_NORM_H

#include "cuda/kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Batch normalization of n_rows rows of n_c channels: an image's places, or samples. */
struct dt_gpu_norm {
    size_t n_rows;
    int n_c;
    bool relu;     /* follows, and is part of it */
    bool training; /* takes the batch's statistics, and follows them with the running ones */
    bool adds;     /* to dx */
    bool accumulate;
    float momentum, epsilon;
    const float *weight, *bias;
    float *running_mean, *running_var;
    float *memory; /* dt_gpu_norm_floats(n_c), kept from forward to backward */
    /* (n_c, 2), then the number of rows: what other ranks add to (model/layers/layers.h); NULL: the
     * statistics are of these rows alone */
    double *shared;
    float *dweight, *dbias;
};

size_t dt_gpu_norm_floats(int n_c);

/* With `shared`, before the two below, in training: mean and biased variance of these rows; then
 * dweight and dbias, and the two sums that dx depends on. */
cudaError_t dt_gpu_norm_measure(cudaStream_t stream, const struct dt_gpu_norm *norm,
                                enum dt_gpu_type type, const void *x);
cudaError_t dt_gpu_norm_sum(cudaStream_t stream, const struct dt_gpu_norm *norm,
                            enum dt_gpu_type type, const void *x, enum dt_gpu_type dy_type,
                            const void *dy);

/* y = (x - mean) / sqrt(variance + epsilon) * weight + bias. y_type may differ from type: the
 * network's output is float. Sums: up to 256 blocks of rows, in float; then over the blocks in
 * double, in order. Bytes: reads x two or three times, writes y. */
cudaError_t dt_gpu_norm_forward(cudaStream_t stream, const struct dt_gpu_norm *norm,
                                enum dt_gpu_type type, const void *x, enum dt_gpu_type y_type,
                                void *y);

/* dweight and dbias, unless dt_gpu_norm_sum has; dx unless NULL. Bytes: reads x and dy twice,
 * writes dx. */
cudaError_t dt_gpu_norm_backward(cudaStream_t stream, const struct dt_gpu_norm *norm,
                                 enum dt_gpu_type type, const void *x, enum dt_gpu_type dy_type,
                                 const void *dy, void *dx);

#ifdef __cplusplus
}
#endif

#endif
