/* Chooses this rank's GPU, and reports the versions of CUDA's libraries. */
#ifndef DT_CUDA_PROBE_H
#define DT_CUDA_PROBE_H

#include "model/device_module.h"

/* Implements `probe` of model/device_module.h; the GPU becomes the thread's current one. */
enum dt_status dt_cuda_probe(int local_rank, struct dt_device_info *out, int *n_devices);

/* Implements `versions` there. */
const char *dt_cuda_versions(void);

#endif
