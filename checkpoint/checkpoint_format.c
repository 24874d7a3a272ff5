#include "checkpoint/checkpoint.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

struct dt_tensor dt_checkpoint_tensor(const struct dt_param *param, int state, const float *arena)
{
    DT_ASSERT(state >= DT_EMA_STATE && state < 2 && param->n_elems > 0);
    struct dt_tensor tensor = {.n_dims = param->n_dims, .n_bytes = param->n_elems * sizeof(float)};
    if (state < 0) {
        snprintf(tensor.name, sizeof tensor.name, "%s%s", state == DT_EMA_STATE ? "ema." : "",
                 param->name);
    } else {
        snprintf(tensor.name, sizeof tensor.name, "optimizer.%d.%s", state, param->name);
    }
    memcpy(tensor.dims, param->dims, sizeof tensor.dims);
    tensor.bytes = arena == NULL ? NULL : (const uint8_t *)(arena + param->offset);
    return tensor;
}

struct dt_tensor dt_residuals_tensor(const struct dt_model *model, uint64_t n_workers,
                                     const float *residuals)
{
    DT_ASSERT(n_workers > 0 || residuals == NULL);
    return (struct dt_tensor){.name = DT_RESIDUALS_NAME,
                              .n_dims = 2,
                              .dims = {n_workers, model->arena_elems},
                              .bytes = (const uint8_t *)residuals,
                              .n_bytes = n_workers * model->arena_elems * sizeof(float)};
}

uint32_t dt_crc(const void *bytes, size_t n_bytes)
{
    return (uint32_t)crc32_z(0, bytes, n_bytes);
}

void dt_crc_print(uint32_t crc, char text[DT_CRC_DIGITS + 1])
{
    snprintf(text, DT_CRC_DIGITS + 1, "%08x", (unsigned)crc);
}

void dt_crc_key(const struct dt_tensor *tensor, char key[DT_CRC_KEY_SIZE])
{
    snprintf(key, DT_CRC_KEY_SIZE, "crc32.%s", tensor->name);
}

/* In a JSON string the quotes would be escaped, so this text occurs only once, as the key. */
static const char header_crc_field[] = "\"header_crc\":\"";

const char *dt_header_crc_find(const char *header, size_t n_header)
{
    const size_t n_field = strlen(header_crc_field);
    const char *field = memmem(header, n_header, header_crc_field, n_field);
    if (field == NULL || (size_t)(header + n_header - field) < n_field + DT_CRC_DIGITS) {
        return NULL;
    }
    return field + n_field;
}

uint32_t dt_header_crc(const char *start, size_t n_bytes, const char *digits)
{
    DT_ASSERT(start < digits && digits + DT_CRC_DIGITS <= start + n_bytes);
    static const char zeros[] = "00000000";
    const char *rest = digits + DT_CRC_DIGITS;
    uLong crc = crc32_z(0, (const Bytef *)start, (size_t)(digits - start));
    crc = crc32_z(crc, (const Bytef *)zeros, DT_CRC_DIGITS);
    return (uint32_t)crc32_z(crc, (const Bytef *)rest, (size_t)(start + n_bytes - rest));
}

/* ---- tensors whose order in the arena is not PyTorch's: of a dense layer or a normalization after
 * a flatten */

/* (n_columns, n_rows) from (n_rows, n_columns) */
static void transpose(size_t n_rows, size_t n_columns, const float *from, float *to)
{
    for (size_t column = 0; column < n_columns; column++) {
        for (size_t row = 0; row < n_rows; row++) {
            *to++ = from[row * n_columns + column];
        }
    }
}

static enum dt_status reorder_param(const struct dt_param *param, bool to_file, float *tensor)
{
    const size_t n_c = (size_t)param->image.c,
                 n_places = (size_t)param->image.h * (size_t)param->image.w, n = n_c * n_places;
    DT_ASSERT(n > 0 && param->n_elems % n == 0);
    float *reordered = malloc(n * sizeof *reordered);
    if (reordered == NULL) {
        return dt_error(DT_NO_MEMORY, "out of memory for the weights' order in a checkpoint");
    }
    for (size_t row = 0; row < param->n_elems / n; row++, tensor += n) {
        transpose(to_file ? n_places : n_c, to_file ? n_c : n_places, tensor, reordered);
        memcpy(tensor, reordered, n * sizeof *reordered);
    }
    free(reordered);
    return DT_OK;
}

static enum dt_status reorder(int n, const struct dt_param *params, bool to_file, float *arena)
{
    for (int p = 0; p < n; p++) {
        if (params[p].image.c > 0) {
            DT_TRY(reorder_param(&params[p], to_file, arena + params[p].offset));
        }
    }
    return DT_OK;
}

enum dt_status dt_model_reorder(const struct dt_model *model, bool to_file, float *arena)
{
    return reorder(model->n_params, model->params, to_file, arena);
}

enum dt_status dt_buffers_reorder(const struct dt_model *model, bool to_file, float *buffers)
{
    return reorder(model->n_buffers, model->buffers, to_file, buffers);
}
