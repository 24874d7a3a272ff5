#include "model/checkpoint.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "model/checkpoint_dir.h"
#include "model/checkpoint_format.h"
#include "model/safetensors.h"

#define MAX_FILE_BYTES ((size_t)4 << 30)

static const char format_name[] = "dtrain";

static enum dt_status join(const char *dir, const char *name, char path[DT_CHECKPOINT_PATH_SIZE])
{
    if (snprintf(path, DT_CHECKPOINT_PATH_SIZE, "%s/%s", dir, name) >= DT_CHECKPOINT_PATH_SIZE) {
        return dt_error(DT_CANT_CREATE, "%.80s...: the path is too long (at most %d characters)", dir, DT_CHECKPOINT_PATH_SIZE);
    }
    return DT_OK;
}

/* Saving */

struct tensor_list {
    int n;
    struct dt_tensor tensors[DT_MAX_TENSORS];
};

static void list_tensors(const struct dt_model *model, const struct dt_checkpoint *checkpoint, struct tensor_list *list)
{
    list->n = 0;
    for (int state = -1; state < checkpoint->n_optimizer_states; state++) {
        const float *arena = state < 0 ? checkpoint->arena : checkpoint->optimizer[state];
        for (int i = 0; i < model->n_params; i++) {
            list->tensors[list->n++] = dt_checkpoint_tensor(&model->params[i], state, arena);
        }
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
    char key[DT_CRC_KEY_SIZE], text[DT_CRC_DIGITS + 1];
    dt_crc_key(tensor, key);
    dt_crc_print(dt_crc(tensor->bytes, tensor->n_bytes), text);
    return add_text(metadata, key, text);
}

/* Everything but the tensors, as strings; NULL when out of memory. */
static cJSON *make_metadata(const struct dt_checkpoint *checkpoint, const struct tensor_list *list)
{
    cJSON *metadata = cJSON_CreateObject();
    bool ok = add_text(metadata, "format", format_name) && add_counter(metadata, "version", DT_CHECKPOINT_VERSION) &&
              add_text(metadata, "header_crc", "00000000");
#define ADD_FIELD(field) ok = ok && add_counter(metadata, #field, checkpoint->state.field);
    DT_CHECKPOINT_COUNTER_LIST(ADD_FIELD)
#undef ADD_FIELD
#define ADD_FIELD(field) ok = ok && add_sum(metadata, #field, checkpoint->state.field);
    DT_CHECKPOINT_SUM_LIST(ADD_FIELD)
#undef ADD_FIELD
    for (int i = 0; i < list->n; i++) {
        ok = ok && add_tensor_crc(metadata, &list->tensors[i]);
    }
    ok = ok && add_text(metadata, "config", checkpoint->config);
    if (!ok) {
        cJSON_Delete(metadata);
        return NULL;
    }
    return metadata;
}

static enum dt_status make_header(const struct dt_checkpoint *checkpoint, const struct tensor_list *list, char **header,
                                  size_t *n_header)
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
    return DT_OK;
}

/* What cannot be read back must not be written. */
static enum dt_status check_savable(const struct dt_checkpoint *checkpoint, const struct tensor_list *list)
{
    size_t n_bytes = DT_SAFETENSORS_MAX_HEADER + sizeof(uint64_t);
    for (int i = 0; i < list->n; i++) {
        const size_t n = dt_tensor_count_non_finite(&list->tensors[i]);
        if (n > 0) {
            return dt_error(DT_NON_FINITE, "no checkpoint of step %llu: tensor '%s' contains %zu non-finite values",
                            (unsigned long long)checkpoint->state.step, list->tensors[i].name, n);
        }
        n_bytes += list->tensors[i].n_bytes;
    }
    if (n_bytes > MAX_FILE_BYTES) {
        return dt_error(DT_CONFIG, "the model is too large for a checkpoint (%zu bytes, at most %zu)", n_bytes, MAX_FILE_BYTES);
    }
    return DT_OK;
}

static enum dt_status write_and_verify(const char *dir, const struct tensor_list *list, const char *header, size_t n_header,
                                       const char *name, const char *path)
{
    struct dt_file_part *parts = calloc((size_t)list->n + 1, sizeof *parts);
    if (parts == NULL) {
        return dt_error(DT_NO_MEMORY, "out of memory for a checkpoint");
    }
    parts[0] = (struct dt_file_part){header, n_header};
    for (int i = 0; i < list->n; i++) {
        parts[i + 1] = (struct dt_file_part){list->tensors[i].bytes, list->tensors[i].n_bytes};
    }
    enum dt_status status = dt_file_write_atomic(dir, name, parts, (size_t)list->n + 1);
    if (status == DT_OK) {
        status = dt_file_compare(path, parts, (size_t)list->n + 1);
        if (status == DT_BAD_DATA) {
            dt_file_calls.unlinkat(AT_FDCWD, path, 0); /* a file that cannot be trusted must not look like the newest */
        }
        status = status == DT_OK ? DT_OK : DT_IO;
    }
    free(parts);
    return status;
}

enum dt_status dt_checkpoint_save(const char *dir, int keep, const struct dt_model *model, const struct dt_checkpoint *checkpoint,
                                  char path[DT_CHECKPOINT_PATH_SIZE])
{
    char name[DT_CHECKPOINT_NAME_SIZE];
    dt_checkpoint_name(checkpoint->state.step, name);
    DT_TRY(join(dir, name, path));
    struct tensor_list *list = malloc(sizeof *list);
    if (list == NULL) {
        return dt_error(DT_NO_MEMORY, "out of memory for a checkpoint");
    }
    list_tensors(model, checkpoint, list);
    char *header = NULL;
    size_t n_header;
    enum dt_status status;
    dt_checkpoint_sweep(dir);
    DT_TRY_GOTO(status, check_savable(checkpoint, list), done);
    DT_TRY_GOTO(status, make_header(checkpoint, list, &header, &n_header), done);
    DT_TRY_GOTO(status, write_and_verify(dir, list, header, n_header, name, path), done);
    status = dt_checkpoint_prune(dir, checkpoint->state.step, keep);
done:
    free(header);
    free(list);
    return status;
}

/* Reading */

struct content {
    uint8_t *bytes; /* owned, or NULL when the caller of the parse owns them */
    char name[DT_CHECKPOINT_PATH_SIZE];
    struct dt_safetensors tensors;
};

static enum dt_status check_header_crc(const char *name, const uint8_t *bytes, size_t n_bytes)
{
    const char *header;
    size_t n_header;
    DT_TRY(dt_safetensors_find_header(name, bytes, n_bytes, &header, &n_header));
    const char *digits = dt_header_crc_find(header, n_header);
    if (digits == NULL) {
        return dt_error(DT_BAD_DATA, "%s: not a checkpoint of dtrain, or damaged (no header_crc in its header)", name);
    }
    char actual[DT_CRC_DIGITS + 1];
    dt_crc_print(dt_header_crc((const char *)bytes, (size_t)(header + n_header - (const char *)bytes), digits), actual);
    if (memcmp(actual, digits, DT_CRC_DIGITS) != 0) {
        return dt_error(DT_BAD_DATA, "%s: damaged (header crc %s, expected %.8s)", name, actual, digits);
    }
    return DT_OK;
}

/* Fetches a string that must be there. */
static enum dt_status get_text(const struct content *content, const char *key, const char **text)
{
    *text = dt_safetensors_metadata(&content->tensors, key);
    if (*text == NULL) {
        return dt_error(DT_BAD_DATA, "%s: invalid header: no '%s' in its metadata", content->name, key);
    }
    return DT_OK;
}

static enum dt_status get_counter(const struct content *content, const char *key, uint64_t *value)
{
    const char *text;
    DT_TRY(get_text(content, key, &text));
    errno = 0;
    char *end;
    *value = strtoull(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end != '\0' || errno != 0) {
        return dt_error(DT_BAD_DATA, "%s: invalid header: metadata '%s' is '%.40s', not a counter", content->name, key, text);
    }
    return DT_OK;
}

static enum dt_status get_sum(const struct content *content, const char *key, double *value)
{
    const char *text;
    DT_TRY(get_text(content, key, &text));
    char *end;
    *value = strtod(text, &end);
    if (end == text || *end != '\0' || !(*value - *value == 0)) {
        return dt_error(DT_BAD_DATA, "%s: invalid header: metadata '%s' is '%.40s', not a finite number", content->name, key, text);
    }
    return DT_OK;
}

static enum dt_status check_format(const struct content *content)
{
    const char *format;
    DT_TRY(get_text(content, "format", &format));
    if (strcmp(format, format_name) != 0) {
        return dt_error(DT_BAD_DATA, "%s: not a checkpoint of dtrain (format '%.40s')", content->name, format);
    }
    uint64_t version;
    DT_TRY(get_counter(content, "version", &version));
    if (version != DT_CHECKPOINT_VERSION) {
        return dt_error(DT_BAD_DATA, "%s: format version %llu, this dtrain reads %d", content->name, (unsigned long long)version,
                        DT_CHECKPOINT_VERSION);
    }
    return DT_OK;
}

static enum dt_status get_state(const struct content *content, struct dt_checkpoint_state *state)
{
#define GET_FIELD(field) DT_TRY(get_counter(content, #field, &state->field));
    DT_CHECKPOINT_COUNTER_LIST(GET_FIELD)
#undef GET_FIELD
#define GET_FIELD(field) DT_TRY(get_sum(content, #field, &state->field));
    DT_CHECKPOINT_SUM_LIST(GET_FIELD)
#undef GET_FIELD
    return DT_OK;
}

static enum dt_status check_tensor(const struct content *content, const struct dt_tensor *tensor)
{
    char key[DT_CRC_KEY_SIZE], actual[DT_CRC_DIGITS + 1];
    const char *expected;
    dt_crc_key(tensor, key);
    DT_TRY(get_text(content, key, &expected));
    dt_crc_print(dt_crc(tensor->bytes, tensor->n_bytes), actual);
    if (strcmp(actual, expected) != 0) {
        return dt_error(DT_BAD_DATA, "%s: damaged (tensor '%s' crc %s, expected %.8s)", content->name, tensor->name, actual,
                        expected);
    }
    const size_t n = dt_tensor_count_non_finite(tensor);
    if (n > 0) {
        return dt_error(DT_BAD_DATA, "%s: tensor '%s' contains %zu non-finite values", content->name, tensor->name, n);
    }
    return DT_OK;
}

static enum dt_status read_content(const struct content *content, struct dt_checkpoint_file *out)
{
    const char *config;
    DT_TRY(check_format(content));
    DT_TRY(get_state(content, &out->state));
    DT_TRY(get_text(content, "config", &config));
    for (int i = 0; i < content->tensors.n_tensors; i++) {
        DT_TRY(check_tensor(content, &content->tensors.tensors[i]));
    }
    out->config = strdup(config);
    return out->config != NULL ? DT_OK : dt_error(DT_NO_MEMORY, "%s: out of memory", content->name);
}

enum dt_status dt_checkpoint_parse(const char *name, const uint8_t *bytes, size_t n_bytes, struct dt_checkpoint_file *out)
{
    memset(out, 0, sizeof *out);
    DT_TRY(check_header_crc(name, bytes, n_bytes));
    struct content *content = malloc(sizeof *content);
    if (content == NULL) {
        return dt_error(DT_NO_MEMORY, "%s: out of memory", name);
    }
    content->bytes = NULL;
    snprintf(content->name, sizeof content->name, "%s", name);
    enum dt_status status = dt_safetensors_parse(name, bytes, n_bytes, &content->tensors);
    if (status != DT_OK) {
        free(content);
        return status;
    }
    out->content = content;
    status = read_content(content, out);
    if (status != DT_OK) {
        dt_checkpoint_close(out);
    }
    return status;
}

enum dt_status dt_checkpoint_open(const char *path, struct dt_checkpoint_file *out)
{
    uint8_t *bytes;
    size_t n_bytes;
    memset(out, 0, sizeof *out);
    DT_TRY(dt_file_read(path, MAX_FILE_BYTES, &bytes, &n_bytes));
    const enum dt_status status = dt_checkpoint_parse(path, bytes, n_bytes, out);
    if (status != DT_OK) {
        free(bytes);
        return status;
    }
    ((struct content *)out->content)->bytes = bytes;
    return DT_OK;
}

void dt_checkpoint_close(struct dt_checkpoint_file *file)
{
    struct content *content = file->content;
    if (content != NULL) {
        dt_safetensors_close(&content->tensors);
        free(content->bytes);
        free(content);
    }
    free(file->config);
    memset(file, 0, sizeof *file);
}

/* Taking what a model needs */

static bool same_shape(const struct dt_tensor *a, const struct dt_tensor *b)
{
    return a->n_dims == b->n_dims && memcmp(a->dims, b->dims, (size_t)a->n_dims * sizeof a->dims[0]) == 0;
}

/* "[32, 1, 3, 3]" */
static const char *shape_text(const struct dt_tensor *tensor, char text[96])
{
    int used = snprintf(text, 96, "[");
    for (int i = 0; i < tensor->n_dims; i++) {
        used += snprintf(text + used, 96 - (size_t)used, "%s%zu", i == 0 ? "" : ", ", tensor->dims[i]);
    }
    snprintf(text + used, 96 - (size_t)used, "]");
    return text;
}

static enum dt_status get_tensor(const struct content *content, const struct dt_param *param, int state, float *arena)
{
    const struct dt_tensor wanted = dt_checkpoint_tensor(param, state, NULL);
    const struct dt_tensor *found = dt_safetensors_find(&content->tensors, wanted.name);
    if (found == NULL) {
        return dt_error(DT_CONFIG, "%s: tensor '%s' is missing (it was saved by another %s)", content->name, wanted.name,
                        state < 0 ? "model" : "optimizer");
    }
    if (!same_shape(found, &wanted)) {
        char theirs[96], ours[96];
        return dt_error(DT_CONFIG, "%s: tensor '%s' has shape %s, the model has %s (it was saved by another model)", content->name,
                        wanted.name, shape_text(found, theirs), shape_text(&wanted, ours));
    }
    if (arena != NULL) {
        memcpy(arena + param->offset, found->bytes, found->n_bytes);
    }
    return DT_OK;
}

/* Layers or optimizer states that this model or optimizer does not have. */
static enum dt_status check_no_more(const struct content *content, const struct dt_model *model, int n_optimizer_states)
{
    int n_found = 0;
    for (int i = 0; i < content->tensors.n_tensors; i++) {
        const bool is_state = strncmp(content->tensors.tensors[i].name, "optimizer.", strlen("optimizer.")) == 0;
        n_found += n_optimizer_states > 0 || !is_state;
    }
    const int n_wanted = model->n_params * (1 + n_optimizer_states);
    if (n_found > n_wanted) {
        return dt_error(DT_CONFIG, "%s: has %d tensors, expected %d (it was saved by another model or optimizer)", content->name,
                        n_found, n_wanted);
    }
    return DT_OK;
}

enum dt_status dt_checkpoint_get(const struct dt_checkpoint_file *file, const struct dt_model *model, float *arena,
                                 int n_optimizer_states, float *const *optimizer)
{
    const struct content *content = file->content;
    for (int state = -1; state < n_optimizer_states; state++) {
        for (int i = 0; i < model->n_params; i++) {
            DT_TRY(get_tensor(content, &model->params[i], state, state < 0 ? arena : optimizer[state]));
        }
    }
    return check_no_more(content, model, n_optimizer_states);
}

/* The newest one */

/* Damaged, unreadable, or something else under a checkpoint's name: an older one may do. */
static bool is_passed_over(enum dt_status status)
{
    return status == DT_BAD_DATA || status == DT_IO || status == DT_NO_INPUT;
}

enum dt_status dt_checkpoint_newest(const char *dir, char path[DT_CHECKPOINT_PATH_SIZE], struct dt_checkpoint_file *out,
                                    void (*on_damaged)(const char *text))
{
    uint64_t *steps;
    size_t n_steps;
    path[0] = '\0';
    memset(out, 0, sizeof *out);
    DT_TRY(dt_checkpoint_list(dir, &steps, &n_steps));
    enum dt_status status = DT_OK;
    for (size_t i = 0; i < n_steps; i++) {
        char name[DT_CHECKPOINT_NAME_SIZE];
        dt_checkpoint_name(steps[i], name);
        status = join(dir, name, path);
        if (status == DT_OK) {
            status = dt_checkpoint_open(path, out);
        }
        if (!is_passed_over(status)) {
            break;
        }
        on_damaged(dt_error_text());
        dt_error_clear();
        path[0] = '\0';
    }
    free(steps);
    if (is_passed_over(status)) {
        status = dt_error(DT_BAD_DATA, "%s: all %zu checkpoints are damaged (remove them to start afresh)", dir, n_steps);
    }
    return status;
}
