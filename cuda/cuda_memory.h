/* Device memory of the cuda backend: every piece is counted, so that a run can say how much it took. */
#ifndef DT_CUDA_CUDA_MEMORY_H
#define DT_CUDA_CUDA_MEMORY_H

#include "model/device_module.h"

struct dt_cuda;

struct dt_cuda_memory {
    struct dt_cuda_piece *pieces; /* that are allocated; owned */
    int n_pieces, capacity;
    size_t n_bytes, peak_bytes; /* of all pieces now; at most so far */
};

/* Zeroed device memory for `what`, with 256 bytes behind it. DT_NO_MEMORY says how much was wanted and how much
 * there is; `what` is "conv1", "the data set". */
enum dt_status dt_cuda_alloc(struct dt_cuda *cuda, const char *what, size_t n_bytes, void **out);
void dt_cuda_free(struct dt_cuda *cuda, void *memory); /* NULL is fine; waits for the GPU, unless that is lost */

/* struct dt_device_module's `memory`. */
void dt_cuda_memory(struct dt_backend *backend, struct dt_device_memory *out);

#endif
