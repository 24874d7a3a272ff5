/* How the cuda backend computes a block, and the memory that it allocates for it beside the
 * network's: a function of the model alone, without CUDA's headers. So `dtrain plan`, which must
 * run where no GPU is, links this file, too. */
#ifndef DT_CUDA_BLOCK_PLAN_H
#define DT_CUDA_BLOCK_PLAN_H

#include "model/backend.h"

/* cuBLAS's advice for sm_90; dtrain allocates it, so that results are repeatable. */
#define DT_CUDA_WORKSPACE_BYTES ((size_t)32 << 20)
#define DT_CUDA_N_WORKSPACES 2 /* concurrent calls cannot share one */
#define DT_CUDA_BIAS_COPIES 32 /* blocks with a copy: an optimizer step has no room for more */
/* The limits of the kernels for a first convolution and for a head. */
#define DT_CUDA_FIRST_CONV_WEIGHTS 2048
#define DT_CUDA_FIRST_CONV_IMAGE 6144 /* elements, with the zeros around it */
#define DT_CUDA_HEAD_INPUTS 1024
#define DT_CUDA_HEAD_OUTPUTS 32

/* What DTRAIN_CUDA_WITHOUT, a list of these names between commas, leaves out, so that anybody can
 * measure what each gains. X(constant, name) */
#define DT_CUDA_FUSION_LIST(X)                                                                \
    X(FIRST_CONV, "first_conv")     /* the first convolution by our own kernels */            \
    X(HEAD, "head")                 /* the last dense layer and the loss in one kernel */     \
    X(PACKED, "packed")             /* packed.c: copies of weights by the optimizer's step */ \
    X(BRANCH, "branch")             /* branch.c: work beside the chain */                     \
    X(ENGINE_TRIAL, "engine_trial") /* cudnn/engine_trial.h: else the first engine */         \
    X(STEPS, "steps")               /* a step is enqueued before the last one is done */
#define DT_CUDA_FUSION(constant, name) DT_CUDA_##constant,
enum dt_cuda_fusion { DT_CUDA_FUSION_LIST(DT_CUDA_FUSION) };
bool dt_cuda_without(enum dt_cuda_fusion fusion);
enum dt_status dt_cuda_check_without(void); /* DT_USAGE: the variable has another name */

enum dt_cuda_buffer {
    DT_CUDA_Z,    /* linear operation's output, or, if kept, relu's result; else y replaces it */
    DT_CUDA_DZ,   /* its gradient; else it overwrites z */
    DT_CUDA_BIAS, /* copy of a convolution's bias in the libraries' type; else the arena's serves */
    DT_CUDA_WEIGHT, /* copy of the weights in the libraries' layout and type; else as of the bias */
    DT_CUDA_DW,     /* a filter's gradient, in the libraries' layout and type */
    DT_CUDA_WINNERS, /* elements that a max pool took, a byte each; else recomputed from z */
    DT_CUDA_SIGNS,   /* one bit per output of a plain first convolution: its relu let it pass; else
                        recomputed from y */
    DT_CUDA_N_BUFFERS
};

struct dt_cuda_block_plan {
    bool is_head; /* the last dense layer, with few enough inputs and outputs for a kernel that
                     also computes the loss, and without activation and dropout */
    bool is_first_conv; /* a convolution of the samples, small enough for kernels that read the
                           images in the data set, one at a time, and use the arena's own weights.
                           In a graph others may read the samples, too */
    bool is_plain;      /* such a convolution, followed by an activation at most: it needs no z */
    bool is_plain_conv; /* another convolution, not in the last block, followed by relu only: the
                           backward pass then needs its output alone */
    size_t n_bytes[DT_CUDA_N_BUFFERS]; /* 0: there is none */
};

struct dt_cuda_block_plan dt_cuda_plan_block(const struct dt_model *model, int index,
                                             enum dt_precision precision, int capacity);

#endif
