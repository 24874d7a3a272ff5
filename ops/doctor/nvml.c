/* Names, constants and the order of arguments: NVML API Reference Guide,
 * docs.nvidia.com/deploy/nvml-api. */
#include "ops/doctor/doctor.h"

#include <dlfcn.h>
#include <string.h>

#define LIBRARY "libnvidia-ml.so.1"
#define UNCORRECTED 1
#define SINCE_LOADED 0 /* NVML_VOLATILE_ECC */
#define MOST_NVLINKS 18

typedef struct nvml_device *device_t;
typedef int result_t; /* 0: done */

/* X(field, symbol, arguments) */
#define CALL_LIST(X)                                                                        \
    X(init, "nvmlInit_v2", (void))                                                          \
    X(shutdown, "nvmlShutdown", (void))                                                     \
    X(driver, "nvmlSystemGetDriverVersion", (char *text, unsigned size))                    \
    X(count, "nvmlDeviceGetCount_v2", (unsigned *n))                                        \
    X(by_uuid, "nvmlDeviceGetHandleByUUID", (const char *uuid, device_t *device))           \
    X(ecc_errors, "nvmlDeviceGetTotalEccErrors",                                            \
      (device_t device, int kind, int since, unsigned long long *n))                        \
    X(throttle, "nvmlDeviceGetCurrentClocksThrottleReasons",                                \
      (device_t device, unsigned long long *reasons))                                       \
    X(nvlink, "nvmlDeviceGetNvLinkState", (device_t device, unsigned link, int *up))        \
    X(pcie_generation, "nvmlDeviceGetCurrPcieLinkGeneration",                               \
      (device_t device, unsigned *generation))                                              \
    X(pcie_width, "nvmlDeviceGetCurrPcieLinkWidth", (device_t device, unsigned *lanes))     \
    X(pcie_full_width, "nvmlDeviceGetMaxPcieLinkWidth", (device_t device, unsigned *lanes)) \
    X(mig, "nvmlDeviceGetMigMode", (device_t device, unsigned *now, unsigned *pending))

struct nvml {
    void *library;
#define FIELD(field, symbol, arguments) result_t(*field) arguments;
    CALL_LIST(FIELD)
};

/* False: one of its functions is missing. */
static bool find_calls(struct nvml *n)
{
    const struct {
        const char *symbol;
        void *field;
    } calls[] = {
#define PLACE(field, symbol, arguments) {symbol, &n->field},
        CALL_LIST(PLACE)};
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        void *found = dlsym(n->library, calls[i].symbol);
        if (found == NULL) {
            return false;
        }
        memcpy(calls[i].field, &found, sizeof found);
    }
    return true;
}

static int number_of(result_t (*call)(device_t device, unsigned *value), device_t device)
{
    unsigned value = 0;
    return call(device, &value) == 0 ? (int)value : 0;
}

static void look_at(const struct nvml *n, device_t device, struct dt_gpu_health *out)
{
    unsigned long long n_errors = 0;
    unsigned mig = 0, pending = 0;
    out->known = true;
    out->n_ecc_errors =
        n->ecc_errors(device, UNCORRECTED, SINCE_LOADED, &n_errors) == 0 ? (double)n_errors : -1;
    (void)n->throttle(device, &out->throttle);
    for (unsigned link = 0; link < MOST_NVLINKS; link++) {
        int up = 0;
        out->n_nvlinks += n->nvlink(device, link, &up) == 0 && up != 0;
    }
    out->pcie_generation = number_of(n->pcie_generation, device);
    out->pcie_width = number_of(n->pcie_width, device);
    out->pcie_full_width = number_of(n->pcie_full_width, device);
    out->mig = n->mig(device, &mig, &pending) == 0 && mig != 0;
}

static void ask(const struct nvml *n, const char *uuid, struct dt_gpu_health *out)
{
    unsigned n_gpus = 0;
    device_t device = NULL;
    if (n->driver(out->driver, sizeof out->driver) != 0) {
        out->driver[0] = '\0';
    }
    out->driver[sizeof out->driver - 1] = '\0';
    out->n_on_host = n->count(&n_gpus) == 0 ? (int)n_gpus : 0;
    if (uuid[0] != '\0' && n->by_uuid(uuid, &device) == 0) {
        look_at(n, device, out);
    }
}

void dt_gpu_health_find(const char *uuid, struct dt_gpu_health *out)
{
    struct nvml n = {.library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL)};
    memset(out, 0, sizeof *out);
    if (n.library == NULL) {
        return;
    }
    if (find_calls(&n) && n.init() == 0) {
        ask(&n, uuid, out);
        (void)n.shutdown();
    }
    dlclose(n.library);
}
