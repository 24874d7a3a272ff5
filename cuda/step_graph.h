/* Steps that the GPU takes on its own: all calls of one training step, sums over ranks included,
 * are recorded once as a CUDA graph, which is launched again and again. The inputs that differ from
 * step to step lie in a table on the device, with a counter for the current step: so a step costs
 * the host one launch, and nothing waits between two steps. The rows of all steps of the table are
 * drawn before the first; each step ends by setting up the inputs of the next. A graph holds for
 * one number of samples on every rank; the short last batch of an epoch has its own. The first step
 * of a kind is taken call by call, so that libraries load and connect; the second is recorded: on
 * all ranks alike, as NCCL requires, even if the number changes on some of them only. */
#ifndef DT_CUDA_STEP_GRAPH_H
#define DT_CUDA_STEP_GRAPH_H

#include "model/device_module.h"

extern const struct dt_step_graph_ops dt_step_graph;

#endif
