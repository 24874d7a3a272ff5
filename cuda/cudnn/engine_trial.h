/* Times a plan's engines to find the fastest on this GPU: each runs a few times, as a recorded step
 * runs it, between two events. Only a measurement can tell: the heuristics' first is at times
 * several times slower than the next. Each rank chooses alone: replicas stay equal because all take
 * the sum of gradients from one exchange, whichever engine computed a part. Times vary, so two runs
 * may choose different engines, and end with different last bits; where bits must repeat, the plan
 * is opened with one engine, the first, and nothing is timed. Whether a graph can have an engine is
 * tried in any case. */
#ifndef DT_CUDA_CUDNN_ENGINE_TRIAL_H
#define DT_CUDA_CUDNN_ENGINE_TRIAL_H

#include <cuda_runtime_api.h>

#include "cuda/cudnn/conv_plan.h"
#include "cuda/kernels/kernels.h"

struct dt_engine_trial_spec {
    cudaStream_t stream;            /* the handle's; it must not be recording */
    double limit_s;                 /* for each wait on the GPU */
    bool timed;                     /* false: keep the first that works */
    struct dt_alive alive;          /* shown after each engine */
    const struct dt_gpu_tail *tail; /* of the plan's results, in place: timed with it; or NULL */
};

/* Keeps the fastest of the plan's engines; the trial allocates its own memory and frees it. It
 * rejects an engine that fails, and of a plan with relu two kinds: one that turns a NaN into a
 * number, which would let a diverged training continue (cuDNN has an attribute for NaNs, but does
 * not say which engines obey it); and number 0, the plain implicit product, which is several times
 * slower than the others, obeys it, and so would be what is left. DT_UNAVAILABLE: no engine of a
 * plan with relu passes NaN on, or memory to test it is lacking; a plan without relu then keeps the
 * first. DT_STALLED when the GPU has worked for limit_s; then nothing may wait for the GPU any
 * more. */
enum dt_status dt_engine_trial(struct dt_conv_plan *plan, const struct dt_engine_trial_spec *spec);

#endif
