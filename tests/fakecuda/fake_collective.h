/* What ranks ask fake NCCL for, and its reductions. */
#ifndef DT_TESTS_FAKE_COLLECTIVE_H
#define DT_TESTS_FAKE_COLLECTIVE_H

#include <nccl.h>

#include <algorithm>
#include <cstdint>

#include "tests/fakecuda/fake_runtime.h"

namespace {

struct collective {
    bool is_recorded; /* part of a graph */
    bool is_broadcast;
    size_t count;
    ncclDataType_t type;
    ncclRedOp_t op;
    int root;

    bool operator==(const collective &other) const
    {
        return is_broadcast == other.is_broadcast && count == other.count && type == other.type &&
               op == other.op && root == other.root;
    }
};

size_t type_bytes(ncclDataType_t type)
{
    switch (type) {
    case ncclUint8:
        return 1;
    case ncclInt32:
    case ncclFloat32:
        return 4;
    case ncclUint64:
    case ncclFloat64:
        return 8;
    default:
        fake_die("NCCL: data type %d is not in fake NCCL", int(type));
    }
}

template <typename T> void reduce(void *into, const void *from, size_t n, ncclRedOp_t op)
{
    T *x = static_cast<T *>(into);
    const T *y = static_cast<const T *>(from);
    for (size_t i = 0; i < n; i++) {
        x[i] = op == ncclSum   ? T(x[i] + y[i])
               : op == ncclMax ? std::max(x[i], y[i])
                               : std::min(x[i], y[i]);
    }
}

void reduce(void *into, const void *from, const collective &what)
{
    if (what.op != ncclSum && what.op != ncclMax && what.op != ncclMin) {
        fake_die("NCCL: operation %d is not in fake NCCL", int(what.op));
    }
    switch (what.type) {
    case ncclFloat32:
        return reduce<float>(into, from, what.count, what.op);
    case ncclFloat64:
        return reduce<double>(into, from, what.count, what.op);
    case ncclInt32:
        return reduce<int32_t>(into, from, what.count, what.op);
    case ncclUint64:
        return reduce<uint64_t>(into, from, what.count, what.op);
    default:
        fake_die("NCCL: data type %d cannot be reduced", int(what.type));
    }
}

} // namespace

#endif
