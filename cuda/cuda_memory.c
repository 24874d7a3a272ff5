#include "cuda/cuda_backend.h"

#include "base/text.h"
#include "cuda/cuda_check.h"

#define READABLE_AFTER 256 /* bytes after each allocation */

static enum dt_status no_memory(const struct dt_cuda *cuda, const char *what, size_t n_bytes)
{
    char wanted[DT_BYTES_TEXT_SIZE], left[DT_BYTES_TEXT_SIZE], all[DT_BYTES_TEXT_SIZE];
    size_t n_free = 0, n_total = 0;
    cudaGetLastError(); /* so that the next call does not report it again */
    cudaMemGetInfo(&n_free, &n_total);
    return dt_error(DT_NO_MEMORY, "out of memory on %s: %s needs %s, %s of %s are free",
                    cuda->gpu.name, what, dt_bytes_text((double)n_bytes, wanted),
                    dt_bytes_text((double)n_free, left), dt_bytes_text((double)n_total, all));
}

enum dt_status dt_cuda_alloc(struct dt_cuda *cuda, const char *what, size_t n_bytes, void **out)
{
    struct dt_cuda_memory *all = &cuda->memory;
    void *memory = NULL;
    *out = NULL;
    if (all->n_pieces == DT_CUDA_MOST_PIECES) {
        return dt_error(DT_NO_MEMORY, "no room for more than %d pieces of device memory",
                        DT_CUDA_MOST_PIECES);
    }
    const cudaError_t code = n_bytes <= SIZE_MAX / 2 ? cudaMalloc(&memory, n_bytes + READABLE_AFTER)
                                                     : cudaErrorMemoryAllocation;
    if (code == cudaErrorMemoryAllocation) {
        return no_memory(cuda, what, n_bytes);
    }
    DT_CUDA(code);
    *out = memory;
    all->pieces[all->n_pieces++] = (struct dt_cuda_piece){memory, n_bytes + READABLE_AFTER};
    all->n_bytes += n_bytes + READABLE_AFTER;
    all->peak_bytes = all->n_bytes > all->peak_bytes ? all->n_bytes : all->peak_bytes;
    DT_CUDA(cudaMemsetAsync(memory, 0, n_bytes + READABLE_AFTER, cuda->stream));
    return DT_OK;
}

void dt_cuda_free(struct dt_cuda *cuda, void *memory)
{
    struct dt_cuda_memory *all = &cuda->memory;
    for (int i = 0; i < all->n_pieces; i++) {
        if (all->pieces[i].memory == memory) {
            all->n_bytes -= all->pieces[i].n_bytes;
            all->pieces[i] = all->pieces[--all->n_pieces];
            break;
        }
    }
    if (!cuda->lost) {
        cudaFree(memory);
    }
}

enum dt_status dt_cuda_reserve_scratch(struct dt_cuda *cuda, enum dt_cuda_scratch_use use,
                                       const char *what, size_t n_bytes)
{
    struct dt_cuda_scratch *scratch = &cuda->scratch[use];
    if (n_bytes <= scratch->n_bytes) {
        return DT_OK;
    }
    void *memory;
    DT_TRY(dt_cuda_alloc(cuda, what, n_bytes, &memory)); /* if it fails, open blocks keep theirs */
    dt_cuda_free(cuda, scratch->memory);
    *scratch = (struct dt_cuda_scratch){memory, n_bytes};
    return DT_OK;
}

void dt_cuda_release_scratch(struct dt_cuda *cuda)
{
    for (int i = 0; i < DT_CUDA_N_SCRATCH; i++) {
        dt_cuda_free(cuda, cuda->scratch[i].memory);
        cuda->scratch[i] = (struct dt_cuda_scratch){0};
    }
}

enum dt_status dt_cuda_reserve_batch(struct dt_cuda *cuda, int capacity)
{
    struct dt_cuda_batches *batches = &cuda->batches;
    const size_t n = (size_t)capacity, n_slot_bytes = (1 + 2 * n) * sizeof(uint32_t);
    DT_TRY(dt_cuda_reserve_scratch(cuda, DT_CUDA_SCRATCH_LOSS, "the loss", 2 * n * sizeof(double)));
    if (capacity <= batches->capacity) {
        return DT_OK;
    }
    void *device;
    DT_TRY(dt_cuda_alloc(cuda, "a batch's sample numbers", n_slot_bytes, &device));
    dt_cuda_free(cuda, batches->device); /* waits until all slots, the host's too, are unused */
    batches->device = device;
    cudaFreeHost(batches->host);
    batches->host = NULL;
    batches->capacity = 0;
    DT_CUDA(cudaMallocHost((void **)&batches->host, DT_CUDA_BATCH_SLOTS * n_slot_bytes));
    batches->capacity = capacity;
    return DT_OK;
}

void dt_cuda_memory(struct dt_backend *backend, struct dt_device_memory *out)
{
    *out = (struct dt_device_memory){.peak_bytes =
                                         ((const struct dt_cuda *)backend)->memory.peak_bytes};
    cudaMemGetInfo(&out->free_bytes, &out->total_bytes); /* zeros if the GPU has failed */
}
