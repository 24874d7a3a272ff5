/* The module's one symbol, which the program loads. */
#include "cuda/cuda_backend.h"
#include "cuda/cuda_block.h"
#include "cuda/cuda_memory.h"
#include "cuda/nccl_allreduce.h"
#include "cuda/step_graph.h"

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
