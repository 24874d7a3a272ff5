/* Engines of cuDNN: its alternative implementations of an operation graph. cuDNN's heuristics list
 * them by expected speed; dtrain admits them by precision and workspace. It never uses one that
 * adds with atomics, so that the same engine gives the same bits each time, nor one that sums in
 * less than float. */
#ifndef DT_CUDA_CUDNN_ENGINE_H
#define DT_CUDA_CUDNN_ENGINE_H

#include <cudnn.h>

#include "model/backend.h"

/* The search's input. `graph` and `device` are the caller's descriptors. */
struct dt_engine_search {
    cudnnHandle_t handle;
    cudnnBackendDescriptor_t graph,
        device; /* device NULL: the handle's; else a described one, and handle is NULL */
    enum dt_precision precision;
    size_t workspace_limit; /* bytes */
};

#define DT_FIRST_ENGINES                                                                         \
    4                     /* that are timed whatever their numbers: often one with several tiles \
                           */
#define DT_MAX_ENGINES 16 /* that are timed in all */

struct dt_engine {
    cudnnBackendDescriptor_t config, execution;
    int64_t number; /* cuDNN's number for it in this kind of graph; variants with other tiles share
                       it */
    int place;      /* in the heuristics' list, from 1 */
    size_t workspace_bytes; /* that a run needs */
    double us;              /* of a run (cuda/cudnn/engine_trial.h); 0: not timed */
    bool unrecorded;        /* a CUDA graph cannot have it, as the trial has found */
};

/* Finds at most `capacity` admissible engines that can be finalized: the first DT_FIRST_ENGINES of
 * the heuristics' list, then the first of each number that is not among them. Returns 0 with the
 * reason of the last refusal in *why, which may be CUDNN_STATUS_SUCCESS. The caller closes them,
 * before the search's descriptors. */
int dt_engines_find(const struct dt_engine_search *search, int capacity, struct dt_engine *out,
                    cudnnStatus_t *why);
void dt_engine_close(struct dt_engine *engine); /* zeroed is fine */

#endif
