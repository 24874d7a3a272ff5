/* Spans: who asks is told before and after each part of a step, what a rank does when. Where nobody does, the pointer is NULL, and
 * a span costs a branch. Work may only be enqueued when a span ends; who wants its time syncs the backend. */
#ifndef DT_MODEL_TRACE_H
#define DT_MODEL_TRACE_H

#include "base/status.h"

enum dt_span_kind {
    DT_SPAN_GATHER,
    DT_SPAN_FORWARD, /* of a block */
    DT_SPAN_LOSS,
    DT_SPAN_RECOMPUTE, /* of a block forward again, on the way back */
    DT_SPAN_BACKWARD,  /* of a block */
    DT_SPAN_UPDATE,    /* of the weights, or of a range of them */
    DT_N_SPANS
};

struct dt_span {
    enum dt_span_kind kind;
    int block;
    int n_samples;
    const float *y, *dy; /* of a backward pass, at its begin: what the block left, and what comes back to it; device memory */
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
