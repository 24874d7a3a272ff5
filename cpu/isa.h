/* Chooses the instruction set of the kernels: the best this processor has, or the one that the
 * environment variable DTRAIN_ISA names. */
#ifndef DT_CPU_ISA_H
#define DT_CPU_ISA_H

#include "cpu/kernels/bf16.h"
#include "cpu/kernels/kernels.h"

#define DT_CPU_MAX_ISAS 3

/* The name of the instruction set that would be chosen now ("x86-64-v4", "x86-64-v3", "baseline");
 * if DTRAIN_ISA is unusable, that of the best. */
const char *dt_cpu_isa(void);

/* Lists the names of those that this processor can run, best first; returns their number. */
int dt_cpu_isa_list(const char *names[DT_CPU_MAX_ISAS]);

/* DT_CONFIG: DTRAIN_ISA names no instruction set. DT_UNAVAILABLE: one that this processor or this
 * build does not have. */
enum dt_status dt_cpu_isa_choose(const struct dt_cpu_kernels **out);

/* The bf16 kernels that match `kernels`. Call it before starting threads that use them: they
 * inherit the permission. DT_UNAVAILABLE: the processor, the operating system's kernel, this build
 * or `kernels` lacks AMX. */
enum dt_status dt_cpu_isa_bf16(const struct dt_cpu_kernels *kernels,
                               const struct dt_bf16_kernels **out);

#endif
