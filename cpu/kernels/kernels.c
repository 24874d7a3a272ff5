/* One instruction set's table of kernels. */
#include "cpu/kernels/kernels.h"

#include "cpu/kernels/vector.h"
#include "model/layers/layers.h"

void DT_KERNEL(fma_loop)(size_t n_rounds, float *out)
{
    vf sum[DT_FMA_CHAINS], factor = load(out), term = load(out + VL);
    UNROLLED(i, DT_FMA_CHAINS) {
        sum[i] = term * (float)i;
    }
    for (size_t round = 0; round < n_rounds; round++) {
        UNROLLED(i, DT_FMA_CHAINS) {
            sum[i] = sum[i] * factor + term;
        }
    }
    UNROLLED(i, DT_FMA_CHAINS) {
        store(out, load(out) + sum[i]);
    }
}

#define DT_OPERATION(symbol) DT_KERNEL(symbol)
DT_OPERATION_LIST(DT_OPERATION_DECLARATION)
static const struct dt_layer_ops *const layers[] = {DT_OPERATION_LIST(DT_OPERATION_ENTRY)};

const struct dt_cpu_kernels DT_KERNEL(kernels) = {.isa = DT_CPU_ISA_NAME,
                                                  .vector = VL,
                                                  .layers = layers,
#define DT_KERNEL_ENTRY(result, name, arguments) .name = DT_KERNEL(name),
                                                  DT_CPU_KERNEL_LIST(DT_KERNEL_ENTRY)};
