/* Spans: an observer is called before and after each part of a step, and so learns what a rank does
 * when, or waits for what the part needs (dist/strategy/priority.c). Spans nest, except for
 * buckets, which travel beside all other work. Without an observer the pointer is NULL, and a span
 * costs a branch. When a span ends, its work may only be enqueued; to time it, sync the backend. */
#ifndef DT_MODEL_TRACE_H
#define DT_MODEL_TRACE_H

#include "base/status.h"
#include "model/spec.h"

/* X(constant, name) */
#define DT_SPAN_LIST(X)                                                                         \
    X(DT_SPAN_GATHER, "gather")                                                                 \
    X(DT_SPAN_FORWARD, "forward") /* of a block */                                              \
    X(DT_SPAN_LOSS, "loss")                                                                     \
    X(DT_SPAN_RECOMPUTE, "recompute") /* a block's forward pass again, during backward */       \
    X(DT_SPAN_BACKWARD, "backward")   /* of a block */                                          \
    X(DT_SPAN_UPDATE, "update")       /* of the weights, or of a range of them */               \
    X(DT_SPAN_BUCKET, "bucket")       /* of gradients, from its start until its sum is there */ \
    X(DT_SPAN_WAIT, "wait")           /* for sums, including the updates meanwhile */           \
    X(DT_SPAN_GPU, "gpu")             /* steps that a GPU takes on its own */
enum dt_span_kind { DT_SPAN_LIST(DT_NAMED_ENUM) DT_N_SPANS };

struct dt_span {
    enum dt_span_kind kind;
    int block; /* index of the block, or of the bucket */
    int n_samples;
    const float *y,
        *dy; /* backward, at its begin: the block's output and its gradient; device memory */
};

struct dt_trace {
    enum dt_status (*begin)(struct dt_trace *trace, const struct dt_span *span);
    enum dt_status (*end)(struct dt_trace *trace, const struct dt_span *span);
};

static inline enum dt_status dt_span_begin(struct dt_trace *trace, const struct dt_span *span)
{
    return trace == NULL ? DT_OK : trace->begin(trace, span);
}

static inline enum dt_status dt_span_end(struct dt_trace *trace, const struct dt_span *span)
{
    return trace == NULL ? DT_OK : trace->end(trace, span);
}

#endif
