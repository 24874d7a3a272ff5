/* Which of a plan's engines is the fastest on this GPU: each is run a few times, as a recorded step
 * runs it, between two events. Only a GPU knows: the heuristics' first is at times several times
 * slower than the next.
 *
 * Each rank chooses for itself, and asks nobody: what keeps replicas equal is that all take the sum
 * of gradients that one exchange gives them, whoever has computed a part with what. Times are never
 * twice the same, so two runs may choose unlike engines, and end with unlike last bits; where those
 * must be the same again, a plan with one engine, the first, is opened and nothing timed. */
#ifndef DT_CUDA_CUDNN_ENGINE_TRIAL_H
#define DT_CUDA_CUDNN_ENGINE_TRIAL_H

#include <cuda_runtime_api.h>

#include "cuda/cudnn/conv_plan.h"

struct dt_engine_trial_spec {
    cudaStream_t stream; /* the handle's, where nothing is recorded */
    double limit_s;      /* for each thing that the GPU is given */
    bool timed;          /* else the first that will do is kept */
};

/* Keeps the fastest of the plan's engines, on memory of the trial's own, which is given back.
 * Passed over is one that fails, and one behind whose relu a NaN is a number again, with which a
 * training that has diverged would go on: cuDNN takes an attribute for it, and does not say which
 * engines heed it. DT_UNAVAILABLE: none of a plan with relu passes it on, or there is no memory to
 * know; of another, the first is then kept. DT_STALLED once the GPU has been at work for limit_s,
 * and then the GPU must not be waited for any more. */
enum dt_status dt_engine_trial(struct dt_conv_plan *plan, const struct dt_engine_trial_spec *spec);

#endif
