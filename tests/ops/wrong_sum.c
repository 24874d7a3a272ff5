/* dtrain, but what rank 1 adds to a checked sum is off by one in its last element. */
#include "ops/bench/bench.h"
#include "tests/lib/wrap.h"

WRAP(void, dt_bench_fill, float *x, size_t n_elems, int rank, unsigned round)
{
    __real_dt_bench_fill(x, n_elems, rank, round);
    if (rank == 1) {
        x[n_elems - 1] += 1;
    }
}
