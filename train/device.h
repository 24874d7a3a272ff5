/* Which device a run computes on, and how gradients travel between its ranks: one choice of all
 * ranks together.
 *
 * A GPU is taken where every rank has one, else all use the CPU: ranks of different speed would
 * only wait for each other. NCCL sums the gradients where every rank has a GPU of its own; ranks
 * that share one go through host memory. */
#ifndef DT_TRAIN_DEVICE_H
#define DT_TRAIN_DEVICE_H

#include "train/trainer.h"

/* Reads `device`, `precision` and `dist.allreduce` of the configuration. Every rank calls it; all
 * choose alike, or fail alike. DT_UNAVAILABLE: the configuration wants a GPU, or one for each rank,
 * and that is not there; with the reason and the cure. A world of one rank needs no communicator.
 */
enum dt_status dt_device_choose(struct dt_world *world, const struct dt_config *config,
                                struct dt_device_choice *out);

/* The device's module (model/device_module.h), libdtrain_cuda.so: beside the program, or installed
 * in ../lib/dtrain. It is loaded only where there is a GPU driver, and then stays loaded.
 * DTRAIN_CUDA_MODULE names another file, and the driver is then not asked for: for tests. It loads
 * any code, as LD_PRELOAD does, and is refused where the program has more rights than its caller
 * (setuid, capabilities). DT_UNAVAILABLE with the reason: no driver, no module, one that lacks a
 * library, one of another version. */
enum dt_status dt_device_load(const struct dt_device_module **out);

/* Where its libraries are searched, in this order: for people. */
extern const char *const dt_device_libraries;

#endif
