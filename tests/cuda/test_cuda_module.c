/* The real libdtrain_cuda.so loads into a program that exports its symbols, and reports a missing
 * driver clearly. */
#include <dlfcn.h>

#include "base/status.h"
#include "model/device_module.h"
#include "tests/lib/check.h"

int main(void)
{
    void *library = dlopen(DT_CUDA_MODULE_FILE, RTLD_NOW | RTLD_LOCAL);
    CHECK_MESSAGE(library != NULL, "%s", dlerror());
    const struct dt_device_module *module = dlsym(library, DT_DEVICE_MODULE_SYMBOL);
    CHECK(module != NULL);
    CHECK_INT(module->version, DT_DEVICE_MODULE_VERSION);
    CHECK_TEXT(module->backend->name, "cuda");
    CHECK_HAS(module->versions(), "cuDNN 9.");
    if (dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL) != NULL) {
        return 0; /* the rest is for machines without a driver */
    }

    struct dt_device_info gpu;
    int n_gpus = 7;
    CHECK_INT(module->probe(0, &gpu, &n_gpus), DT_UNAVAILABLE);
    CHECK_INT(n_gpus, 0);
    CHECK_HAS(dt_error_text(), "there is no NVIDIA driver");
    const struct dt_backend_options options = {.n_threads = 1};
    struct dt_backend *backend;
    CHECK_FAILS(module->backend->open(&options, &backend), DT_UNAVAILABLE,
                "there is no NVIDIA driver");
    return 0;
}
