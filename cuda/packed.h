/* Weights in the libraries' layout and type, and gradients of filters that the libraries write in
 * it. A block copies its weight once, at its first use; from then on every optimizer step writes
 * the copy along with the weight. A filter's gradient stays where cuDNN wrote it until something
 * other than an optimizer step needs it: an optimizer step reads it there. So neither costs an
 * extra kernel in a step of one rank. */
#ifndef DT_CUDA_PACKED_H
#define DT_CUDA_PACKED_H

#include <cuda_runtime_api.h>

#include "base/status.h"
#include "cuda/kernels/kernels.h"

struct dt_cuda;

/* One block's packed weight and gradient. */
struct dt_cuda_packed {
    struct dt_gpu_filter filter; /* its shape */
    void *weight;                /* the copy; NULL: the library reads the arena */
    const float *weight_of;      /* the weight it is a copy of; NULL: not copied yet */
    void *dw;                    /* conv: the filter's gradient */
    float *dw_of; /* its pending destination, unless an optimizer step reads dw first; NULL: none */
    float *dw_recorded; /* likewise, after each recorded step that does not unpack it; NULL: none */
    struct dt_cuda_packed *next; /* of the open ones */
};

void dt_cuda_packed_open(struct dt_cuda *cuda, struct dt_cuda_packed *packed);
enum dt_status dt_cuda_packed_close(struct dt_cuda *cuda, struct dt_cuda_packed *packed);

/* Afterwards packed->weight is the copy of `weight`. */
enum dt_status dt_cuda_pack(struct dt_cuda *cuda, struct dt_cuda_packed *packed,
                            const float *weight);

/* Writes pending filter gradients to their destination, on the branch of gradients: call it before
 * anything but an optimizer step reads them. */
enum dt_status dt_cuda_unpack(struct dt_cuda *cuda);

/* The same for gradients that the last recorded step has left: for code that reads them between
 * steps. */
enum dt_status dt_cuda_unpack_recorded(struct dt_cuda *cuda);

/* This memory was written: copies of it are refreshed at the next use, and pending gradients to it
 * are dropped. */
enum dt_status dt_cuda_packed_written(struct dt_cuda *cuda, const void *memory, size_t n_bytes);
/* Memory is about to be freed, perhaps a network's. */
enum dt_status dt_cuda_packed_forget(struct dt_cuda *cuda);

/* For an optimizer step over n_elems weights and gradients starting at these. */
struct dt_gpu_packs dt_cuda_packs(const struct dt_cuda *cuda, size_t n_elems, const float *params,
                                  const float *grads);

/* `event` fires when the gradients of all backward calls made so far are complete, in the arena's
 * order. */
enum dt_status dt_cuda_record_gradients(struct dt_cuda *cuda, cudaEvent_t event);

#endif
