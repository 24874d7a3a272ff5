/* fake.h's interface over the real libraries: options have no effect, and nothing is counted. */
#include <stdio.h>
#include <stdlib.h>

#include "tests/fakecuda/fake.h"

struct fake_options fake_options;
const int fake_is_linked = 0;

struct fake_counts fake_counts(void)
{
    return (struct fake_counts){0};
}

/* Runs before main, so that no test needs to check for a GPU. */
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
