/* Which instruction set's kernels to use: the best this processor has, or the one that the
 * environment variable DTRAIN_ISA names.
 */
#ifndef DT_CPU_ISA_H
#define DT_CPU_ISA_H

#include "cpu/kernels/bf16.h"
#include "cpu/kernels/kernels.h"

#define DT_CPU_MAX_ISAS 3

/* The name of the one that would be chosen now ("x86-64-v4", "x86-64-v3", "baseline"); if
 * DTRAIN_ISA is unusable, that of the best.
 */
const char *dt_cpu_isa(void);

/* Names of those this processor can run, best first; returns how many. */
int dt_cpu_isa_list(const char *names[DT_CPU_MAX_ISAS]);

/* DT_CONFIG: DTRAIN_ISA names no instruction set. DT_UNAVAILABLE: one that this processor or this
 * build does not have. */
enum dt_status dt_cpu_isa_choose(const struct dt_cpu_kernels **out);

/* Kernels of bf16 numbers to go with `kernels`. To be called before threads are started that use
 * them: they inherit the permission. DT_UNAVAILABLE: the processor, the kernel of the system, this
 * build or `kernels` has no AMX. */
enum dt_status dt_cpu_isa_bf16(const struct dt_cpu_kernels *kernels,
                               const struct dt_bf16_kernels **out);

#endif
