/* One convolution on cuDNN as an operation graph: forward (optionally with the bias and relu after
 * it), gradient of the input, or gradient of the filter. One of a few engines runs it:
 * the first, until another is chosen. Engines are cuDNN's alternative implementations of a graph;
 * its heuristics list them by expected speed, and dtrain admits them by precision and workspace. It
 * never uses one that adds with atomics, so that the same engine gives the same bits each time, nor
 * one that sums in less than float. cuDNN 9, "backend" C API. Activations are N H W C, filters K R
 * S C. Everything has the precision's type, the filter gradient too: cuDNN has no compiled engine
 * that makes a float one from bfloat16. Sums are in float, in an order that depends on the plan
 * alone. */
#ifndef DT_CUDA_CUDNN_CONV_PLAN_H
#define DT_CUDA_CUDNN_CONV_PLAN_H

#include <cudnn.h>

#include "model/backend.h"

#if CUDNN_VERSION < 90800 /* cuDNN 9.8 added described devices; an older library refuses them */
#define CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR ((cudnnBackendDescriptorType_t)38)
#define CUDNN_ATTR_ENGINEHEUR_DEVICEPROP ((cudnnBackendAttributeName_t)204)
#define CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP ((cudnnBackendAttributeName_t)407)
#define CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION ((cudnnBackendAttributeName_t)2702)
#endif

enum dt_conv_kind {
    DT_CONV_FORWARD,
    DT_CONV_FORWARD_RELU,
    DT_CONV_INPUT_GRADIENT,
    DT_CONV_FILTER_GRADIENT
};
#define DT_CONV_N_KINDS (DT_CONV_FILTER_GRADIENT + 1)

#define DT_CONV_N_OPERANDS 4 /* in, other, out, bias */
#define DT_FIRST_ENGINES 4   /* tried whatever their numbers: often one with several tiles */
#define DT_MAX_ENGINES 16    /* tried in all: then the first of each other number */
#define DT_MAX_DESCRIPTORS 32

struct dt_engine {
    cudnnBackendDescriptor_t config, execution;
    int64_t number;         /* cuDNN's, in this kind of graph; variants with other tiles share it */
    int place;              /* in the heuristics' list, from 1 */
    size_t workspace_bytes; /* that a run needs */
    double us;              /* of a run (cuda/cudnn/engine_trial.h); 0: not timed */
    bool unrecorded;        /* a CUDA graph cannot have it, as the trial has found */
};

struct dt_descriptors {
    cudnnBackendDescriptor_t owned[DT_MAX_DESCRIPTORS];
    int n_owned;
    cudnnStatus_t status; /* of the first failure; all further calls then do nothing */
    const char *call;     /* that failed */
};

/* Owns its descriptors and engines. Others read it; they set `used`. */
struct dt_conv_plan {
    const char *name;                         /* "gradient of the input" */
    bool has_relu;                            /* and a bias before it */
    struct dt_engine engines[DT_MAX_ENGINES]; /* candidates, in the order of the heuristics */
    int n_engines, used;                      /* the engine in use is at first 0 */
    size_t elem_bytes;                        /* 4 of float, 2 of bfloat16 */
    size_t n_bytes[DT_CONV_N_OPERANDS];       /* of a run's operands */
    int64_t ids[DT_CONV_N_OPERANDS];          /* their names in the graph */
    cudnnHandle_t handle;                     /* NULL: made for a described device */
    struct dt_descriptors graph;
    cudnnBackendDescriptor_t operations, device; /* of them; device: NULL: the handle's */
    /* The pointers of the last run, and their descriptor: it cannot be changed, but a block's
     * buffers seldom change. */
    void *pointers[DT_CONV_N_OPERANDS], *workspace;
    cudnnBackendDescriptor_t pack;
};

static inline const struct dt_engine *dt_conv_plan_engine(const struct dt_conv_plan *plan)
{
    return &plan->engines[plan->used];
}

/* A convolution, and the device that its plan is made for: a handle (a GPU is there), or the
 * description of a device in cuDNN's JSON form, which makes a plan that can be examined but not run
 * (tests without a GPU). Exactly one of handle and device_json is set. */
struct dt_conv_spec {
    enum dt_conv_kind kind;
    const struct dt_block *block; /* with DT_LINEAR_CONV */
    int batch;                    /* samples of a call; another number needs another plan */
    enum dt_precision precision;
    cudnnHandle_t handle;
    const char *device_json;
    size_t workspace_limit; /* bytes of a run; a small limit leaves only slow engines for large
                               batches in f32 */
    int n_engines;          /* opens at most this many, to choose from; 1 .. DT_MAX_ENGINES */
};

/* DT_UNAVAILABLE: cuDNN has no engine; the text has the block's name and shapes. */
enum dt_status dt_conv_plan_open(const struct dt_conv_spec *spec, struct dt_conv_plan **out);
void dt_conv_plan_close(struct dt_conv_plan *plan); /* NULL is fine */

/* Closes all engines but the one in use. */
void dt_conv_plan_keep(struct dt_conv_plan *plan);

/* Enqueues the convolution on the handle's stream:
 *   FORWARD          in = x (n, in), other = filter, out = y (n, linear_out)
 *   FORWARD_RELU     the same with y = relu(convolution + bias); bias (linear_out.c) of the
 *                    precision's type; NaN stays NaN if the engine keeps it (engine_trial.h)
 *   INPUT_GRADIENT   in = dy, other = filter, out = dx
 *   FILTER_GRADIENT  in = dy, other = x, out = dfilter (overwritten)
 * bias is NULL for the other kinds. Pointers that differ from the last run's cost a few small
 * allocations; the same ones none. */
enum dt_status dt_conv_plan_run(struct dt_conv_plan *plan, const void *in, const void *other,
                                const void *bias, void *out, void *workspace);

#endif
