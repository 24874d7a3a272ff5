#include "cuda/cuda_backend.h"

#include "cuda/cuda_check.h"

_Static_assert(DT_MAX_LAYERS + DT_CUDA_BIAS_COPIES <= DT_GPU_MAX_PACKS,
               "a model's copies fit an optimizer step");

void dt_cuda_packed_open(struct dt_cuda *cuda, struct dt_cuda_packed *packed)
{
    if (packed->weight != NULL) {
        packed->next = cuda->packed;
        cuda->packed = packed;
    }
}

void dt_cuda_packed_close(struct dt_cuda *cuda, struct dt_cuda_packed *packed)
{
    dt_cuda_unpack(cuda);
    struct dt_cuda_packed **at = &cuda->packed;
    while (*at != NULL && *at != packed) {
        at = &(*at)->next;
    }
    *at = *at != NULL ? packed->next : NULL;
}

enum dt_status dt_cuda_pack(struct dt_cuda *cuda, struct dt_cuda_packed *packed,
                            const float *weight)
{
    if (packed->weight != NULL && (packed->weight_of != weight || cuda->unpacked)) {
        DT_CUDA(dt_gpu_repack(cuda->stream, &packed->filter, DT_GPU_PACK, (float *)weight,
                              cuda->type, packed->weight));
        packed->weight_of = weight;
    }
    return DT_OK;
}

enum dt_status dt_cuda_unpack(struct dt_cuda *cuda)
{
    for (struct dt_cuda_packed *p = cuda->packed; p != NULL; p = p->next) {
        if (p->dw_of != NULL) {
            DT_TRY(dt_cuda_fork(cuda, DT_CUDA_GRADIENTS));
            DT_CUDA(dt_gpu_repack(cuda->branches.lanes[DT_CUDA_GRADIENTS].stream, &p->filter,
                                  DT_GPU_UNPACK, p->dw_of, cuda->type, p->dw));
            p->dw_of = NULL;
            p->dw_recorded = cuda->inputs_on_device ? NULL : p->dw_recorded;
        }
    }
    return DT_OK;
}

enum dt_status dt_cuda_unpack_recorded(struct dt_cuda *cuda)
{
    for (struct dt_cuda_packed *p = cuda->packed; p != NULL; p = p->next) {
        p->dw_of = p->dw_recorded != NULL ? p->dw_recorded : p->dw_of;
    }
    return dt_cuda_unpack(cuda);
}

static bool overlaps(const float *elems, size_t n, const void *memory, size_t n_bytes)
{
    const char *begin = (const char *)elems, *other = memory;
    return elems != NULL && begin < other + n_bytes && other < begin + n * sizeof *elems;
}

enum dt_status dt_cuda_packed_written(struct dt_cuda *cuda, const void *memory, size_t n_bytes)
{
    for (struct dt_cuda_packed *p = cuda->packed; p != NULL; p = p->next) {
        const size_t n = dt_gpu_filter_elems(&p->filter);
        const float *weight = p->weight_of;
        if (overlaps(weight, n, memory, n_bytes)) {
            p->weight_of = NULL;
            DT_TRY(dt_cuda_pack(cuda, p, weight));
        }
        if (overlaps(p->dw_of, n, memory, n_bytes)) {
            p->dw_of = NULL;
        }
    }
    return DT_OK;
}

enum dt_status dt_cuda_packed_forget(struct dt_cuda *cuda)
{
    DT_TRY(dt_cuda_unpack(cuda));
    for (struct dt_cuda_packed *p = cuda->packed; p != NULL; p = p->next) {
        p->weight_of = NULL;
    }
    return DT_OK;
}

/* A weight's gradient lies in `grads` where the weight lies in `params`. */
struct dt_gpu_packs dt_cuda_packs(const struct dt_cuda *cuda, size_t n_elems, const float *params,
                                  const float *grads)
{
    struct dt_gpu_packs packs = {.type = cuda->type};
    for (const struct dt_cuda_packed *p = cuda->unpacked ? NULL : cuda->packed;
         p != NULL && packs.n < DT_GPU_MAX_PACKS; p = p->next) {
        const float *weight = p->weight_of;
        if (weight != NULL && weight >= params &&
            weight + dt_gpu_filter_elems(&p->filter) <= params + n_elems) {
            const size_t begin = (size_t)(weight - params);
            packs.at[packs.n++] =
                (struct dt_gpu_pack){.filter = p->filter,
                                     .begin = begin,
                                     .weight = p->weight,
                                     .gradient = p->dw_of == grads + begin ? p->dw : NULL};
        }
    }
    return packs;
}

enum dt_status dt_cuda_record_gradients(struct dt_cuda *cuda, cudaEvent_t event)
{
    DT_TRY(dt_cuda_unpack(cuda));
    DT_TRY(dt_cuda_fork(cuda, DT_CUDA_GRADIENTS));
    DT_CUDA(cudaEventRecord(event, cuda->branches.lanes[DT_CUDA_GRADIENTS].stream));
    return DT_OK;
}
