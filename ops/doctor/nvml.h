/* A GPU's health as NVIDIA's management library reports it. The library belongs to the driver; it
 * is loaded if present, without its header. */
#ifndef DT_OPS_DOCTOR_NVML_H
#define DT_OPS_DOCTOR_NVML_H

#include <stdbool.h>

/* X(constant, bit of nvmlClocksThrottleReasons, name): reasons for low clocks that somebody must
 * fix; an idle GPU's clocks are low, too. */
#define DT_THROTTLE_LIST(X)                                         \
    X(DT_THROTTLE_HW, 0x8, "hardware slowdown")                     \
    X(DT_THROTTLE_SW_THERMAL, 0x20, "temperature, by the driver")   \
    X(DT_THROTTLE_HW_THERMAL, 0x40, "temperature, by the hardware") \
    X(DT_THROTTLE_POWER_BRAKE, 0x80, "the power supply's brake")

struct dt_gpu_health {
    int n_on_host;       /* GPUs that the library sees; 0: no library, or no GPU */
    char driver[32];     /* the driver's version */
    bool known;          /* the fields below are valid, for the rank's GPU */
    double n_ecc_errors; /* uncorrected ones since the driver was loaded; negative: it has no ECC */
    unsigned long long throttle; /* reasons */
    int n_nvlinks;               /* that are up */
    int pcie_generation, pcie_width,
        pcie_full_width; /* the current link, and its maximum number of lanes; 0: unknown */
    bool mig;            /* divided into instances */
};

/* uuid: of the rank's GPU ("GPU-..."), or "" if it uses none. Unknown values stay 0. */
void dt_gpu_health_find(const char *uuid, struct dt_gpu_health *out);

#endif
