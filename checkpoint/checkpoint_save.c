/* Implements dt_checkpoint_save of checkpoint/checkpoint.h. */
#include <cjson/cJSON.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/safetensors.h"
#include "model/optimizer.h"

struct tensor_list {
    int n;
    struct dt_tensor tensors[DT_MAX_TENSORS];
};

static void list_tensors(const struct dt_model *model, const struct dt_checkpoint *checkpoint,
                         struct tensor_list *list)
{
    DT_ASSERT(checkpoint->n_optimizer_states >= 0 && checkpoint->n_optimizer_states <= 2);
    DT_ASSERT(checkpoint->buffers != NULL || model->buffer_elems == 0);
    list->n = 0;
    for (int state = checkpoint->ema != NULL ? DT_EMA_STATE : -1;
         state < checkpoint->n_optimizer_states; state++) {
        const float *arena = state == DT_EMA_STATE ? checkpoint->ema
                             : state < 0           ? checkpoint->arena
                                                   : checkpoint->optimizer[state];
        for (int i = 0; i < model->n_params; i++) {
            DT_ASSERT(list->n < DT_MAX_TENSORS && arena != NULL);
            list->tensors[list->n++] = dt_checkpoint_tensor(&model->params[i], state, arena);
        }
    }
    for (int i = 0; i < model->n_buffers; i++) {
        list->tensors[list->n++] =
            dt_checkpoint_tensor(&model->buffers[i], -1, checkpoint->buffers);
    }
    if (checkpoint->residuals != NULL) {
        list->tensors[list->n++] =
            dt_residuals_tensor(model, checkpoint->state.world_size, checkpoint->residuals);
    }
}

static bool add_text(cJSON *metadata, const char *key, const char *text)
{
    return cJSON_AddStringToObject(metadata, key, text) != NULL;
}

static bool add_counter(cJSON *metadata, const char *key, uint64_t value)
{
    char text[24];
    snprintf(text, sizeof text, "%llu", (unsigned long long)value);
    return add_text(metadata, key, text);
}

static bool add_sum(cJSON *metadata, const char *key, double value)
{
    char text[40];
    snprintf(text, sizeof text, "%a", value);
    return add_text(metadata, key, text);
}

static bool add_tensor_crc(cJSON *metadata, const struct dt_tensor *tensor)
{
    DT_ASSERT(tensor->n_bytes > 0 && tensor->n_bytes % sizeof(float) == 0);
    char key[DT_CRC_KEY_SIZE], text[DT_CRC_DIGITS + 1];
    dt_crc_key(tensor, key);
    dt_crc_print(dt_crc(tensor->bytes, tensor->n_bytes), text);
    return add_text(metadata, key, text);
}

/* Everything but the tensors, as strings; NULL when out of memory. */
static cJSON *make_metadata(const struct dt_checkpoint *checkpoint, const struct tensor_list *list)
{
    DT_ASSERT(checkpoint->config != NULL && list->n > 0);
    DT_ASSERT(checkpoint->class_names == NULL ||
              strlen(checkpoint->class_names) <= DT_CLASS_NAMES_MOST);
    cJSON *metadata = cJSON_CreateObject();
    bool ok = add_text(metadata, "format", DT_CHECKPOINT_FORMAT) &&
              add_counter(metadata, "version", DT_CHECKPOINT_VERSION) &&
              add_text(metadata, "header_crc", "00000000");
#define ADD_FIELD(field) ok = ok && add_counter(metadata, #field, checkpoint->state.field);
    DT_CHECKPOINT_COUNTER_LIST(ADD_FIELD)
#undef ADD_FIELD
#define ADD_FIELD(field, absent)                       \
    ok = ok && (checkpoint->state.field == (absent) || \
                add_counter(metadata, #field, checkpoint->state.field));
    DT_CHECKPOINT_LATER_LIST(ADD_FIELD)
#undef ADD_FIELD
#define ADD_FIELD(field) ok = ok && add_sum(metadata, #field, checkpoint->state.field);
    DT_CHECKPOINT_SUM_LIST(ADD_FIELD)
#undef ADD_FIELD
#define ADD_FIELD(field) \
    ok = ok && (checkpoint->state.field == 0 || add_sum(metadata, #field, checkpoint->state.field));
    DT_CHECKPOINT_BEST_LIST(ADD_FIELD)
#undef ADD_FIELD
    for (int i = 0; i < list->n; i++) {
        ok = ok && add_tensor_crc(metadata, &list->tensors[i]);
    }
    ok = ok && (checkpoint->class_names == NULL ||
                add_text(metadata, "class_names", checkpoint->class_names));
    ok = ok && add_text(metadata, "config", checkpoint->config);
    if (!ok) {
        cJSON_Delete(metadata);
        return NULL;
    }
    return metadata;
}

static enum dt_status make_header(const struct dt_checkpoint *checkpoint,
                                  const struct tensor_list *list, char **header, size_t *n_header)
{
    cJSON *metadata = make_metadata(checkpoint, list);
    if (metadata == NULL) {
        return dt_error(DT_NO_MEMORY, "out of memory for a checkpoint's header");
    }
    DT_TRY(dt_safetensors_make_header(list->tensors, list->n, metadata, header, n_header));
    char *digits = *header + (dt_header_crc_find(*header, *n_header) - *header);
    char text[DT_CRC_DIGITS + 1];
    dt_crc_print(dt_header_crc(*header, *n_header, digits), text);
    memcpy(digits, text, DT_CRC_DIGITS);
    DT_ASSERT(dt_header_crc_find(*header, *n_header) == digits);
    return DT_OK;
}

/* Refuses a checkpoint that could not be read back. */
static enum dt_status check_savable(const struct dt_checkpoint *checkpoint,
                                    const struct tensor_list *list)
{
    size_t n_bytes = DT_SAFETENSORS_MAX_HEADER + sizeof(uint64_t);
    for (int i = 0; i < list->n; i++) {
        const size_t n = dt_tensor_count_non_finite(&list->tensors[i]);
        if (n > 0) {
            return dt_error(DT_NON_FINITE,
                            "training diverged at step %llu: tensor '%s' has %zu non-finite "
                            "values, no checkpoint saved (" DT_DIVERGED_HINT ")",
                            (unsigned long long)checkpoint->state.step, list->tensors[i].name, n);
        }
        n_bytes += list->tensors[i].n_bytes;
    }
    if (n_bytes > DT_CHECKPOINT_MAX_BYTES) {
        return dt_error(DT_CONFIG,
                        "the model is too large for a checkpoint (%zu bytes, at most %zu)", n_bytes,
                        DT_CHECKPOINT_MAX_BYTES);
    }
    return DT_OK;
}

static enum dt_status damaged(const char *path)
{
    return dt_error(DT_BAD_DATA, "%s: damaged: what is read back is not what was written", path);
}

static enum dt_status compare_part(int fd, const char *path, const struct dt_file_part *part)
{
    uint8_t piece[1 << 16];
    for (size_t n_done = 0; n_done < part->n_bytes;) {
        const size_t left = part->n_bytes - n_done, n = left < sizeof piece ? left : sizeof piece;
        size_t n_read;
        DT_TRY(dt_file_read_piece(fd, path, piece, n, &n_read));
        if (n_read != n || memcmp(piece, (const uint8_t *)part->bytes + n_done, n) != 0) {
            return damaged(path);
        }
        n_done += n;
        DT_ASSERT(n_done <= part->n_bytes);
    }
    return DT_OK;
}

/* Reads a file back, piece by piece: DT_BAD_DATA unless it is these parts and nothing else. */
static enum dt_status compare(const char *path, const struct dt_file_part *parts, size_t n_parts)
{
    int fd = -1;
    struct stat info = {0};
    size_t n_bytes = 0;
    DT_TRY(dt_file_open(path, &fd, &info));
    enum dt_status status = DT_OK;
    for (size_t i = 0; i < n_parts && status == DT_OK; i++) {
        n_bytes += parts[i].n_bytes;
        status = compare_part(fd, path, &parts[i]);
    }
    close(fd);
    return status == DT_OK && n_bytes != (size_t)info.st_size ? damaged(path) : status;
}

static enum dt_status write_and_verify(const char *dir, const struct tensor_list *list,
                                       const char *header, size_t n_header, const char *name,
                                       const char *path)
{
    struct dt_file_part *parts = calloc((size_t)list->n + 1, sizeof *parts);
    if (parts == NULL) {
        return dt_error(DT_NO_MEMORY, "out of memory for a checkpoint");
    }
    parts[0] = (struct dt_file_part){header, n_header};
    for (int i = 0; i < list->n; i++) {
        parts[i + 1] = (struct dt_file_part){list->tensors[i].bytes, list->tensors[i].n_bytes};
    }
    DT_ASSERT(n_header % DT_SAFETENSORS_ALIGN == 0);
    enum dt_status status = dt_file_write_atomic_real(dir, name, parts, (size_t)list->n + 1);
    if (status == DT_OK) {
        status = compare(path, parts, (size_t)list->n + 1);
        if (status == DT_BAD_DATA) {
            unlinkat(AT_FDCWD, path,
                     0); /* a file that failed verification must not look like the newest */
        }
        status = status == DT_OK ? DT_OK : DT_IO;
    }
    free(parts);
    return status;
}

static enum dt_status save_as(const char *dir, const char *name, const struct dt_model *model,
                              const struct dt_checkpoint *checkpoint, const char *path)
{
    struct tensor_list *list = malloc(sizeof *list);
    if (list == NULL) {
        return dt_error(DT_NO_MEMORY, "out of memory for a checkpoint");
    }
    list_tensors(model, checkpoint, list);
    DT_ASSERT(list->n >= model->n_params && list->n <= DT_MAX_TENSORS);
    char *header = NULL;
    size_t n_header = 0;
    enum dt_status status;
    dt_checkpoint_sweep(dir);
    DT_TRY_GOTO(status, check_savable(checkpoint, list), done);
    DT_TRY_GOTO(status, make_header(checkpoint, list, &header, &n_header), done);
    status = write_and_verify(dir, list, header, n_header, name, path);
done:
    free(header);
    free(list);
    return status;
}

enum dt_status dt_checkpoint_save(const char *dir, int keep, const struct dt_model *model,
                                  const struct dt_checkpoint *checkpoint,
                                  char path[DT_CHECKPOINT_PATH_SIZE])
{
    DT_ASSERT(keep >= 1);
    char name[DT_CHECKPOINT_NAME_SIZE];
    dt_checkpoint_name(checkpoint->state.step, name);
    DT_TRY(dt_checkpoint_path(dir, checkpoint->state.step, path));
    DT_TRY(save_as(dir, name, model, checkpoint, path));
    return dt_checkpoint_prune(dir, checkpoint->state.step, keep);
}

enum dt_status dt_checkpoint_save_best(const char *dir, const struct dt_model *model,
                                       const struct dt_checkpoint *checkpoint,
                                       char path[DT_CHECKPOINT_PATH_SIZE])
{
    DT_TRY(dt_checkpoint_best_path(dir, path));
    return save_as(dir, DT_CHECKPOINT_BEST, model, checkpoint, path);
}
