/* Weights in the order and type that the libraries want, and gradients of filters that come back in
 * it.
 *
 * A copy of a weight is made once, when a block first meets it; from then on every optimizer step
 * writes it along with the weight. A filter's gradient stays where cuDNN left it for as long as
 * nobody but an optimizer step asks for it: that reads it there. So neither costs a kernel of its
 * own in a step of one rank. */
#ifndef DT_CUDA_PACKED_H
#define DT_CUDA_PACKED_H

#include <cuda_runtime_api.h>

#include "base/status.h"
#include "cuda/kernels/kernels.h"

struct dt_cuda;

/* A block's. */
struct dt_cuda_packed {
    struct dt_gpu_filter filter; /* its shape */
    void *weight;                /* the copy; NULL: the arena's own serves */
    const float *weight_of;      /* what it is the copy of; NULL: of nothing yet */
    void *dw;                    /* conv: the filter's gradient */
    float *dw_of; /* where that still has to go, unless an optimizer step reads it first; NULL:
                     nowhere */
    float *dw_recorded; /* where it would go, that each recorded step leaves it unless it unpacks
                           it; NULL: nowhere */
    struct dt_cuda_packed *next; /* of those that are open */
};

void dt_cuda_packed_open(struct dt_cuda *cuda, struct dt_cuda_packed *packed);
enum dt_status dt_cuda_packed_close(struct dt_cuda *cuda, struct dt_cuda_packed *packed);

/* packed->weight is the copy of `weight` when this is done. */
enum dt_status dt_cuda_pack(struct dt_cuda *cuda, struct dt_cuda_packed *packed,
                            const float *weight);

/* Filters' gradients go where they belong, on the branch of gradients: before anybody but an
 * optimizer step looks there. */
enum dt_status dt_cuda_unpack(struct dt_cuda *cuda);

/* The same of gradients that the last recorded step has left: for those who look at them between
 * steps. */
enum dt_status dt_cuda_unpack_recorded(struct dt_cuda *cuda);

/* Somebody has written this memory: what was copied from it is copied again, what had to go there
 * is of no use any more. */
enum dt_status dt_cuda_packed_written(struct dt_cuda *cuda, const void *memory, size_t n_bytes);
/* Memory goes, perhaps a network's. */
enum dt_status dt_cuda_packed_forget(struct dt_cuda *cuda);

/* For an optimizer step over n_elems weights and gradients from these on. */
struct dt_gpu_packs dt_cuda_packs(const struct dt_cuda *cuda, size_t n_elems, const float *params,
                                  const float *grads);

/* `event` comes when all gradients are there, in the arena's order, whose backward calls have been
 * made. */
enum dt_status dt_cuda_record_gradients(struct dt_cuda *cuda, cudaEvent_t event);

#endif
