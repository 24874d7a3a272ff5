/* Where the program finds the device's module (model/device_module.h), libdtrain_cuda.so: beside
 * itself, or installed in
 * ../lib/dtrain. It is loaded only where there is a GPU driver. */
#ifndef DT_TRAIN_DEVICE_LOAD_H
#define DT_TRAIN_DEVICE_LOAD_H

#include "model/device_module.h"

/* The module, which then stays loaded. DTRAIN_CUDA_MODULE names another file, and the driver is
 * then not asked for: for tests. It loads any code, as LD_PRELOAD does, and is refused where the
 * program has more rights than its caller (setuid, capabilities). DT_UNAVAILABLE with the reason:
 * no driver, no module, one that lacks a library, one of another version. */
enum dt_status dt_device_load(const struct dt_device_module **out);

#endif
