#include "cuda/block_plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_CONV_THREADS 256

#define NAME(constant, name) name,
#define LISTED(constant, name) ", " name
static const char *const fusions[] = {DT_CUDA_FUSION_LIST(NAME)};
#define MOST_WITHOUT 256
#define N_FUSIONS (sizeof fusions / sizeof fusions[0])

/* The variable between commas, too. */
static char *read_without(char list[MOST_WITHOUT])
{
    const char *value = secure_getenv("DTRAIN_CUDA_WITHOUT");
    snprintf(list, MOST_WITHOUT, ",%s,", value != NULL ? value : "");
    return list;
}

bool dt_cuda_without(enum dt_cuda_fusion fusion)
{
    char list[MOST_WITHOUT], name[32];
    snprintf(name, sizeof name, ",%s,", fusions[fusion]);
    return strstr(read_without(list), name) != NULL;
}

enum dt_status dt_cuda_check_without(void)
{
    char list[MOST_WITHOUT], *rest = read_without(list);
    for (const char *name; (name = strsep(&rest, ",")) != NULL;) {
        size_t i = 0;
        while (i < N_FUSIONS && strcmp(name, fusions[i]) != 0) {
            i++;
        }
        if (i == N_FUSIONS && name[0] != '\0') {
            return dt_error(DT_USAGE, "DTRAIN_CUDA_WITHOUT: there is no \"%s\" (choose from: %s)",
                            name, &(DT_CUDA_FUSION_LIST(LISTED))[2]);
        }
    }
    return DT_OK;
}

static bool is_head(const struct dt_model *model, int index)
{
    const struct dt_block *b = &model->blocks[index];
    return !dt_cuda_without(DT_CUDA_HEAD) && index == model->n_blocks - 1 &&
           b->linear == DT_LINEAR_DENSE && b->activation == DT_ACTIVATION_NONE &&
           b->dropout_rate == 0 && dt_shape_elems(b->in) <= DT_CUDA_HEAD_INPUTS &&
           b->linear_out.c <= DT_CUDA_HEAD_OUTPUTS;
}

static bool is_first_conv(const struct dt_model *model, int index)
{
    const struct dt_block *b = &model->blocks[index];
    if (dt_cuda_without(DT_CUDA_FIRST_CONV) || index > 0 || model->is_graph ||
        b->linear != DT_LINEAR_CONV || b->in.c > 4) {
        return false;
    }
    const size_t h = (size_t)(b->linear_out.h - 1) * (size_t)b->stride + (size_t)b->kernel,
                 w = (size_t)(b->linear_out.w - 1) * (size_t)b->stride + (size_t)b->kernel;
    const size_t n_taps = (size_t)b->in.c * (size_t)b->kernel * (size_t)b->kernel,
                 k = (size_t)b->linear_out.c;
    const size_t n_threads =
        (k % 8 == 0 ? k / 8 : k) * ((n_taps + 8) / 9); /* 8 channels and 9 taps each, in backward */
    return n_taps * k <= DT_CUDA_FIRST_CONV_WEIGHTS &&
           (size_t)b->in.c * h * w <= DT_CUDA_FIRST_CONV_IMAGE && n_threads <= FIRST_CONV_THREADS;
}

/* The index in the window takes a byte, with a bit for relu. */
static bool stores_winners(const struct dt_block *b)
{
    return b->pool == DT_POOL_MAX && b->pool_h <= 11 &&
           (b->activation == DT_ACTIVATION_NONE || b->activation == DT_ACTIVATION_RELU);
}

struct dt_cuda_block_plan dt_cuda_plan_block(const struct dt_model *model, int index,
                                             enum dt_precision precision, int capacity)
{
    const struct dt_block *b = &model->blocks[index];
    const bool half = precision == DT_PRECISION_BF16, conv = b->linear == DT_LINEAR_CONV,
               relu = b->activation == DT_ACTIVATION_RELU,
               alone = b->pool == DT_POOL_NONE && b->dropout_rate == 0 && !b->canonical,
               overlap = b->pool != DT_POOL_NONE && b->pool_stride < b->pool_h;
    const size_t each = half ? 2 : sizeof(float), n = (size_t)capacity,
                 n_linear = n * dt_shape_elems(b->linear_out);
    struct dt_cuda_block_plan p = {.is_head = is_head(model, index),
                                   .is_first_conv = is_first_conv(model, index)};
    p.is_plain =
        p.is_first_conv && alone && b->activation != DT_ACTIVATION_GELU; /* its slope needs z */
    p.is_plain_conv = conv && alone && relu && !p.is_first_conv && index < model->n_blocks - 1;
    p.n_bytes[DT_CUDA_WINNERS] = stores_winners(b) ? n * dt_shape_elems(b->pool_out) : 0;
    if (p.is_plain) {
        p.n_bytes[DT_CUDA_SIGNS] = relu && b->linear_out.c % 8 == 0 ? n_linear / 8 : 0;
        return p;
    }
    if (b->linear == DT_LINEAR_NONE || p.is_head) {
        return p;
    }
    p.n_bytes[DT_CUDA_Z] = p.is_plain_conv ? 0 : n_linear * each;
    p.n_bytes[DT_CUDA_DZ] = p.is_plain_conv || (overlap && p.n_bytes[DT_CUDA_WINNERS] == 0)
                                ? n_linear * each
                                : 0; /* z is read again */
    if (!p.is_first_conv) {
        const size_t n_weights = model->params[b->weight].n_elems;
        p.n_bytes[DT_CUDA_WEIGHT] = conv || half ? n_weights * each : 0;
        p.n_bytes[DT_CUDA_DW] = conv ? n_weights * each : 0;
        p.n_bytes[DT_CUDA_BIAS] = conv && half && relu && index < DT_CUDA_BIAS_COPIES
                                      ? (size_t)b->linear_out.c * each
                                      : 0;
    }
    return p;
}
