/* Spans: who asks is told before and after each part of a step, what a rank does when. They end in
 * the order in which they nest, but for buckets, which travel beside all else. Where nobody asks,
 * the pointer is NULL, and a span costs a branch. Work may only be enqueued when a span ends; who
 * wants its time syncs the backend. */
#ifndef DT_MODEL_TRACE_H
#define DT_MODEL_TRACE_H

#include "base/status.h"
#include "model/spec.h"

/* X(constant, name) */
#define DT_SPAN_LIST(X)                                                                         \
    X(DT_SPAN_GATHER, "gather")                                                                 \
    X(DT_SPAN_FORWARD, "forward") /* of a block */                                              \
    X(DT_SPAN_LOSS, "loss")                                                                     \
    X(DT_SPAN_RECOMPUTE, "recompute") /* of a block forward again, on the way back */           \
    X(DT_SPAN_BACKWARD, "backward")   /* of a block */                                          \
    X(DT_SPAN_UPDATE, "update")       /* of the weights, or of a range of them */               \
    X(DT_SPAN_BUCKET, "bucket")       /* of gradients, from its start until its sum is there */ \
    X(DT_SPAN_WAIT, "wait")           /* for sums, and the updates in it */                     \
    X(DT_SPAN_GPU, "gpu")             /* steps that a GPU takes on its own */
enum dt_span_kind { DT_SPAN_LIST(DT_NAMED_ENUM) DT_N_SPANS };

struct dt_span {
    enum dt_span_kind kind;
    int block; /* or the number of the bucket */
    int n_samples;
    const float *y, *dy; /* of a backward pass, at its begin: what the block left, and what comes
                            back to it; device memory */
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
