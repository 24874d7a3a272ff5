#include "train/device_load.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DRIVER "libcuda.so.1"
#define MODULE "libdtrain_cuda.so"

/* The program's folder, with the slash. */
static bool own_folder(char path[PATH_MAX])
{
    const ssize_t n = readlink("/proc/self/exe", path, PATH_MAX - 1);
    if (n <= 0) {
        return false;
    }
    path[n] = '\0';
    strrchr(path, '/')[1] = '\0';
    return true;
}

static bool find_module(char path[PATH_MAX])
{
    static const char *const places[] = {MODULE, "../lib/dtrain/" MODULE};
    char folder[PATH_MAX];
    if (!own_folder(folder)) {
        return false;
    }
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        const int n = snprintf(path, PATH_MAX, "%s%s", folder, places[i]);
        if (n < PATH_MAX && access(path, F_OK) == 0) {
            return true;
        }
    }
    return false;
}

static enum dt_status load(const char *path, const struct dt_device_module **out)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        return dt_error(DT_UNAVAILABLE, "the CUDA module does not load: %s", dlerror());
    }
    const struct dt_device_module *module = dlsym(library, DT_DEVICE_MODULE_SYMBOL);
    if (module == NULL) {
        dlclose(library);
        return dt_error(DT_UNAVAILABLE, "%s is not dtrain's CUDA module", path);
    }
    if (module->version != DT_DEVICE_MODULE_VERSION) {
        const int version = module->version;
        dlclose(library);
        return dt_error(
            DT_UNAVAILABLE,
            "%s has version %d of the interface, this program %d (install both from one build)",
            path, version, DT_DEVICE_MODULE_VERSION);
    }
    *out = module;
    return DT_OK;
}

enum dt_status dt_device_load(const struct dt_device_module **out)
{
    const char *named = getenv("DTRAIN_CUDA_MODULE");
    char path[PATH_MAX];
    if (named != NULL && named[0] != '\0') {
        if (secure_getenv("DTRAIN_CUDA_MODULE") == NULL) {
            return dt_error(DT_UNAVAILABLE, "DTRAIN_CUDA_MODULE names code for a program that has "
                                            "more rights than its caller (unset it)");
        }
        return load(named, out);
    }
    if (dlopen(DRIVER, RTLD_LAZY | RTLD_LOCAL) ==
        NULL) { /* if it is there, the module will need it: it stays */
        return dt_error(DT_UNAVAILABLE, "there is no NVIDIA driver on this host");
    }
    if (!find_module(path)) {
        return dt_error(DT_UNAVAILABLE, "this build of dtrain has no CUDA module, " MODULE);
    }
    return load(path, out);
}
