/* What NVIDIA's management library says of a GPU. It belongs to the driver, and is loaded where it
 * is, without its header. */
#ifndef DT_OPS_DOCTOR_NVML_H
#define DT_OPS_DOCTOR_NVML_H

#include <stdbool.h>

/* X(constant, bit of nvmlClocksThrottleReasons, what it is called): clocks that are low for a
 * reason that somebody has to mend; an idle GPU's are low, too. */
#define DT_THROTTLE_LIST(X)                                         \
    X(DT_THROTTLE_HW, 0x8, "hardware slowdown")                     \
    X(DT_THROTTLE_SW_THERMAL, 0x20, "temperature, by the driver")   \
    X(DT_THROTTLE_HW_THERMAL, 0x40, "temperature, by the hardware") \
    X(DT_THROTTLE_POWER_BRAKE, 0x80, "the power supply's brake")

struct dt_gpu_health {
    int n_on_host;       /* GPUs that the library sees; 0: no library, or none */
    char driver[32];     /* its version */
    bool known;          /* what follows is of the rank's GPU */
    double n_ecc_errors; /* that were not corrected since the driver was loaded; negative: it has no
                            ECC */
    unsigned long long throttle; /* reasons */
    int n_nvlinks;               /* that are up */
    int pcie_generation, pcie_width,
        pcie_full_width; /* as it is now, and lanes at most; 0: not known */
    bool mig;            /* it is in instances */
};

/* uuid: of the rank's GPU ("GPU-..."), or "" where it uses none. What cannot be found stays 0. */
void dt_gpu_health_find(const char *uuid, struct dt_gpu_health *out);

#endif
