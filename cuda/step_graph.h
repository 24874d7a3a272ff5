/* Steps that the GPU takes on its own: all calls of one training step, sums over ranks included,
 * are recorded once as a CUDA graph, which is launched again and again. What differs from step to
 * step lies in a table on the device, and a counter beside it says which step it is: so a step
 * costs the host one launch, and nothing waits between two of them. The rows of all steps of the
 * table are drawn before the first; each step ends with handing on what the next one needs.
 *
 * A graph holds for one number of samples on every rank; the last batch of an epoch, which is
 * short, has its own. The first step of a kind is taken call by call, for libraries to load and
 * connect what they need, and the second is recorded: on all ranks alike, as NCCL wants it, also
 * where the number changes on some of them only. */
#ifndef DT_CUDA_STEP_GRAPH_H
#define DT_CUDA_STEP_GRAPH_H

#include "model/device_module.h"

extern const struct dt_step_graph_ops dt_step_graph;

#endif
