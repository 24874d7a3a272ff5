/* Small whole numbers for tests of collectives: every order of addition gets their sums right to
 * the bit. */
#ifndef DT_TESTS_COMM_VALUES_H
#define DT_TESTS_COMM_VALUES_H

#include <stdint.h>
#include <string.h>

#include "dist/ranks/comm.h"

/* 0 to 60. */
static inline int value_of(int rank, size_t i)
{
    return (int)((i * 7 + (size_t)rank * 13) % 61);
}

static inline int reduced_value(enum dt_reduce op, int n_ranks, size_t i)
{
    int result = value_of(0, i);
    for (int rank = 1; rank < n_ranks; rank++) {
        const int value = value_of(rank, i);
        result = op == DT_REDUCE_SUM   ? result + value
                 : op == DT_REDUCE_MAX ? (value > result ? value : result)
                                       : (value < result ? value : result);
    }
    return result;
}

/* Element i of `array` becomes `value`; of DT_TYPE_U64 in the highest bits, where sums wrap around.
 */
static inline void put_value(void *array, enum dt_type type, enum dt_reduce op, size_t i, int value)
{
    char *at = (char *)array + i * dt_type_bytes(type);
    switch (type) {
    case DT_TYPE_F32:
        memcpy(at, &(float){(float)value}, sizeof(float));
        return;
    case DT_TYPE_F64:
        memcpy(at, &(double){value}, sizeof(double));
        return;
    case DT_TYPE_I32:
        memcpy(at, &(int32_t){value}, sizeof(int32_t));
        return;
    case DT_TYPE_U64:
        memcpy(at, &(uint64_t){(uint64_t)value << (op == DT_REDUCE_SUM ? 60 : 56)},
               sizeof(uint64_t));
        return;
    }
}

#endif
