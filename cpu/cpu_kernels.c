/* One instruction set's table of kernels. */
#include "cpu/cpu_kernels.h"

#include "cpu/cpu_vector.h"

const struct dt_cpu_kernels DT_KERNEL(kernels) = {.isa = DT_CPU_ISA_NAME,
                                                  .vector = VL,
#define DT_KERNEL_ENTRY(result, name, arguments) .name = DT_KERNEL(name),
                                                  DT_CPU_KERNEL_LIST(DT_KERNEL_ENTRY)};
