/* Which GPU this rank gets, and which versions of CUDA's libraries are at work. */
#ifndef DT_CUDA_PROBE_H
#define DT_CUDA_PROBE_H

#include "model/device_module.h"

/* See `probe` in model/device_module.h; the GPU becomes the thread's current one. */
enum dt_status dt_cuda_probe(int local_rank, struct dt_device_info *out, int *n_devices);

/* See `versions` there. */
const char *dt_cuda_versions(void);

#endif
