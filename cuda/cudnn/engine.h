/* Engines of cuDNN: the ways in which it can run an operation graph, whichever that is. cuDNN's
 * heuristics name them in the order of the speed that they expect; which may be used depends on the
 * precision, and on the workspace that they want.
 *
 * Never one that adds with atomics, so that the same engine gives the same bits each time, nor one
 * that sums in less than float. */
#ifndef DT_CUDA_CUDNN_ENGINE_H
#define DT_CUDA_CUDNN_ENGINE_H

#include <cudnn.h>

#include "model/backend.h"

/* What is looked for. `graph` and `device` are the caller's descriptors. */
struct dt_engine_search {
    cudnnHandle_t handle;
    cudnnBackendDescriptor_t graph,
        device; /* device NULL: the handle's; else that of a described one, and handle is NULL */
    enum dt_precision precision;
    size_t workspace_limit; /* bytes */
};

#define DT_MAX_ENGINES                                                                         \
    8 /* of a graph that are timed; the fastest of all is seldom far behind in the heuristics' \
         order */

struct dt_engine {
    cudnnBackendDescriptor_t config, execution;
    int64_t number; /* by which cuDNN knows it, for this kind of graph; the same with other tiles
                       has the same */
    int place;      /* in the heuristics' list, from 1 */
    size_t workspace_bytes; /* that a run wants */
    double us;              /* that a run took (cuda/cudnn/engine_trial.h); 0: it was not timed */
};

/* Engines, at most `capacity`, that may be used and that can be finalized: first one of each
 * number, then the same with other tiles, both in the heuristics' order, which often begins with
 * one engine several times. 0 with the reason of the last refusal in *why, which may be
 * CUDNN_STATUS_SUCCESS. They are the caller's to close, before the search's descriptors. */
int dt_engines_find(const struct dt_engine_search *search, int capacity, struct dt_engine *out,
                    cudnnStatus_t *why);
void dt_engine_close(struct dt_engine *engine); /* zeroed is fine */

#endif
