/* libnvidia-ml.so.1 without a GPU, for tests of what `dtrain doctor` says of them. FAKE_NVML is
 * "ECC THROTTLE NVLINKS LANES MIG": of every GPU of fake_module.c. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct values {
    unsigned long long ecc, throttle;
    unsigned n_links, lanes, mig;
};

static struct values values(void)
{
    struct values v = {0};
    const char *text = getenv("FAKE_NVML");
    if (text == NULL || sscanf(text, "%llu %llx %u %u %u", &v.ecc, &v.throttle, &v.n_links,
                               &v.lanes, &v.mig) != 5) {
        abort();
    }
    return v;
}

int nvmlInit_v2(void);
int nvmlShutdown(void);
int nvmlSystemGetDriverVersion(char *text, unsigned size);
int nvmlDeviceGetCount_v2(unsigned *n);
int nvmlDeviceGetHandleByUUID(const char *uuid, void **device);
int nvmlDeviceGetTotalEccErrors(void *device, int kind, int since, unsigned long long *n);
int nvmlDeviceGetCurrentClocksThrottleReasons(void *device, unsigned long long *reasons);
int nvmlDeviceGetNvLinkState(void *device, unsigned link, int *up);
int nvmlDeviceGetCurrPcieLinkGeneration(void *device, unsigned *generation);
int nvmlDeviceGetCurrPcieLinkWidth(void *device, unsigned *lanes);
int nvmlDeviceGetMaxPcieLinkWidth(void *device, unsigned *lanes);
int nvmlDeviceGetMigMode(void *device, unsigned *now, unsigned *pending);

static int gpu; /* what a handle points to */

int nvmlInit_v2(void)
{
    return 0;
}

int nvmlShutdown(void)
{
    return 0;
}

int nvmlSystemGetDriverVersion(char *text, unsigned size)
{
    snprintf(text, size, "580.1");
    return 0;
}

int nvmlDeviceGetCount_v2(unsigned *n)
{
    *n = 2;
    return 0;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, void **device)
{
    *device = &gpu;
    return strncmp(uuid, "GPU-", 4) == 0 ? 0 : 2;
}

int nvmlDeviceGetTotalEccErrors(void *device, int kind, int since, unsigned long long *n)
{
    *n = values().ecc;
    return device == &gpu && kind == 1 && since == 0 ? 0 : 2;
}

int nvmlDeviceGetCurrentClocksThrottleReasons(void *device, unsigned long long *reasons)
{
    *reasons = values().throttle;
    return device == &gpu ? 0 : 2;
}

int nvmlDeviceGetNvLinkState(void *device, unsigned link, int *up)
{
    *up = link < values().n_links;
    return device == &gpu && link < 12 ? 0 : 3; /* an A100 has no more */
}

int nvmlDeviceGetCurrPcieLinkGeneration(void *device, unsigned *generation)
{
    *generation = 4;
    return device == &gpu ? 0 : 2;
}

int nvmlDeviceGetCurrPcieLinkWidth(void *device, unsigned *lanes)
{
    *lanes = values().lanes;
    return device == &gpu ? 0 : 2;
}

int nvmlDeviceGetMaxPcieLinkWidth(void *device, unsigned *lanes)
{
    *lanes = 16;
    return device == &gpu ? 0 : 2;
}

int nvmlDeviceGetMigMode(void *device, unsigned *now, unsigned *pending)
{
    *now = values().mig;
    *pending = 0;
    return device == &gpu ? 0 : 2;
}
