/* All ranks of a sum in one process: wires, executors and data of each, for tests of algorithms. */
#ifndef DT_TESTS_EXECUTORS_H
#define DT_TESTS_EXECUTORS_H

#include "dist/allreduce/executor.h"
#include "tests/lib/codec_of.h"
#include "tests/lib/guarded.h"

#define MAX_RANKS 17

static struct dt_wire *wires[MAX_RANKS]; /* opened anew for each case */
static struct dt_executor executors[MAX_RANKS];
static struct buffer data[MAX_RANKS];

static inline void close_ranks(int size)
{
    for (int r = 0; r < size; r++) {
        dt_executor_close(&executors[r]);
        dt_wire_close(wires[r]);
        buffer_close(&data[r], "data");
    }
}

/* Numbers whose sums depend on the order of additions. */
static inline void fill_fractions(int size)
{
    for (int r = 0; r < size; r++) {
        for (size_t i = 0; i < data[r].n; i++) {
            data[r].data[i] = 1.0f / (float)(1 + r + (int)(i % 50));
        }
    }
}

#endif
