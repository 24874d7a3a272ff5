/* What tests of the double ask of it (fake.h), where the real libraries are in its place: nothing
 * can be set, nothing is counted.
 */
#include <stdio.h>
#include <stdlib.h>

#include "tests/fakecuda/fake.h"
#include "tests/fakecuda/fake_nccl.h"

struct fake_options fake_options;
struct fake_nccl_options fake_nccl_options;
const int fake_is_double = 0;

struct fake_counts fake_counts(void)
{
    return (struct fake_counts){0};
}

long fake_n_descriptors(void)
{
    return 0;
}

/* Before main, because no test knows of it: without a GPU there is nothing to test. */
__attribute__((constructor)) static void skip_without_gpu(void)
{
    int n = 0;
    const cudaError_t error = cudaGetDeviceCount(&n);
    if (error != cudaSuccess || n == 0) {
        printf("skipped: no GPU (%s)\n",
               error != cudaSuccess ? cudaGetErrorString(error) : "none is visible");
        fflush(stdout);
        _Exit(77);
    }
}
