/* The ways in which the cpu backend computes on this machine: each instruction set, and products of
 * bf16 numbers where there is AMX.
 */
#ifndef DT_TESTS_MODES_H
#define DT_TESTS_MODES_H

#include "cpu/isa.h"
#include "model/backend.h"
#include "tests/lib/check.h"

#define MAX_MODES (DT_CPU_MAX_ISAS + 1)

struct mode {
    const char *isa, *text;
    enum dt_precision precision;
};

static const struct dt_cpu_kernels *kernels; /* of the instruction set that is being checked */

/* On every instruction set of this machine, one after the other. */
static inline void on_every_isa(void (*check)(void))
{
    const char *isas[DT_CPU_MAX_ISAS];
    const int n_isas = dt_cpu_isa_list(isas);
    CHECK(n_isas >= 1);
    for (int i = 0; i < n_isas; i++) {
        setenv("DTRAIN_ISA", isas[i], 1);
        CHECK_OK(dt_cpu_isa_choose(&kernels));
        check();
    }
}

/* Backends that are opened from now on compute so. */
static inline struct dt_backend_options use_mode(const struct mode *mode, int n_threads)
{
    setenv("DTRAIN_ISA", mode->isa, 1);
    return (struct dt_backend_options){.n_threads = n_threads, .precision = mode->precision};
}

/* Returns how many; bf16 is the last. */
static inline int list_modes(struct mode modes[MAX_MODES])
{
    const char *isas[DT_CPU_MAX_ISAS];
    const int n = dt_cpu_isa_list(isas);
    CHECK(n >= 1);
    for (int i = 0; i < n; i++) {
        modes[i] = (struct mode){isas[i], isas[i], DT_PRECISION_F32};
    }
    modes[n] = (struct mode){isas[0], "bf16", DT_PRECISION_BF16};
    struct dt_backend *backend;
    const struct dt_backend_options options = use_mode(&modes[n], 1);
    if (dt_cpu_backend.open(&options, &backend) != DT_OK) {
        printf("without bf16: %s\n", dt_error_text());
        dt_error_clear();
        return n;
    }
    dt_cpu_backend.close(backend);
    return n + 1;
}

#endif
