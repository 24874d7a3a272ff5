#include "checkpoint/checkpoint.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/text.h"

struct content {
    uint8_t *bytes; /* owned, or NULL if the caller of the parse owns them */
    char name[DT_CHECKPOINT_PATH_SIZE];
    struct dt_safetensors tensors;
};

static enum dt_status check_header_crc(const char *name, const uint8_t *bytes, const char *header,
                                       size_t n_header)
{
    const char *digits = dt_header_crc_find(header, n_header);
    DT_ASSERT(digits == NULL || (digits > header && digits + DT_CRC_DIGITS <= header + n_header));
    if (digits == NULL) {
        return dt_error(DT_BAD_DATA,
                        "%s: not a checkpoint of dtrain, or damaged (no header_crc in its header)",
                        name);
    }
    char actual[DT_CRC_DIGITS + 1];
    dt_crc_print(dt_header_crc((const char *)bytes,
                               (size_t)(header + n_header - (const char *)bytes), digits),
                 actual);
    if (memcmp(actual, digits, DT_CRC_DIGITS) != 0) {
        return dt_error(DT_BAD_DATA, "%s: damaged (header crc %s, expected %.8s)", name, actual,
                        digits);
    }
    return DT_OK;
}

/* Fetches a mandatory string. */
static enum dt_status get_text(const struct content *content, const char *key, const char **text)
{
    *text = dt_safetensors_metadata(&content->tensors, key);
    if (*text == NULL) {
        return dt_error(DT_BAD_DATA, "%s: invalid header: no '%s' in its metadata", content->name,
                        key);
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
        return dt_error(DT_BAD_DATA, "%s: invalid header: metadata '%s' is '%.40s', not a counter",
                        content->name, key, text);
    }
    return DT_OK;
}

static enum dt_status get_later_counter(const struct content *content, const char *key,
                                        uint64_t absent, uint64_t *value)
{
    *value = absent;
    return dt_safetensors_metadata(&content->tensors, key) == NULL
               ? DT_OK
               : get_counter(content, key, value);
}

static enum dt_status get_sum(const struct content *content, const char *key, double *value)
{
    const char *text;
    DT_TRY(get_text(content, key, &text));
    char *end;
    *value = strtod(text, &end);
    if (end == text || *end != '\0' || !(*value - *value == 0)) {
        return dt_error(DT_BAD_DATA,
                        "%s: invalid header: metadata '%s' is '%.40s', not a finite number",
                        content->name, key, text);
    }
    return DT_OK;
}

/* A sum that was added later: 0 if missing. */
static enum dt_status get_later_sum(const struct content *content, const char *key, double *value)
{
    *value = 0;
    return dt_safetensors_metadata(&content->tensors, key) == NULL ? DT_OK
                                                                   : get_sum(content, key, value);
}

static enum dt_status check_format(const struct content *content)
{
    const char *format;
    DT_TRY(get_text(content, "format", &format));
    if (strcmp(format, DT_CHECKPOINT_FORMAT) != 0) {
        return dt_error(DT_BAD_DATA, "%s: not a checkpoint of dtrain (format '%.40s')",
                        content->name, format);
    }
    uint64_t version;
    DT_TRY(get_counter(content, "version", &version));
    if (version != DT_CHECKPOINT_VERSION) {
        return dt_error(DT_BAD_DATA, "%s: format version %llu, this dtrain reads %d", content->name,
                        (unsigned long long)version, DT_CHECKPOINT_VERSION);
    }
    return DT_OK;
}

static enum dt_status get_state(const struct content *content, struct dt_checkpoint_state *state)
{
#define GET_FIELD(field) DT_TRY(get_counter(content, #field, &state->field));
    DT_CHECKPOINT_COUNTER_LIST(GET_FIELD)
#undef GET_FIELD
#define GET_FIELD(field, absent) DT_TRY(get_later_counter(content, #field, absent, &state->field));
    DT_CHECKPOINT_LATER_LIST(GET_FIELD)
#undef GET_FIELD
#define GET_FIELD(field) DT_TRY(get_sum(content, #field, &state->field));
    DT_CHECKPOINT_SUM_LIST(GET_FIELD)
#undef GET_FIELD
#define GET_FIELD(field) DT_TRY(get_later_sum(content, #field, &state->field));
    DT_CHECKPOINT_BEST_LIST(GET_FIELD)
#undef GET_FIELD
    return DT_OK;
}

static enum dt_status check_crc(const struct content *content, const struct dt_tensor *tensor)
{
    DT_ASSERT(tensor->n_bytes > 0 && tensor->n_bytes % sizeof(float) == 0);
    char key[DT_CRC_KEY_SIZE], actual[DT_CRC_DIGITS + 1];
    const char *expected;
    dt_crc_key(tensor, key);
    DT_TRY(get_text(content, key, &expected));
    dt_crc_print(dt_crc(tensor->bytes, tensor->n_bytes), actual);
    if (strcmp(actual, expected) != 0) {
        return dt_error(DT_BAD_DATA, "%s: damaged (tensor '%s' crc %s, expected %.8s)",
                        content->name, tensor->name, actual, expected);
    }
    return DT_OK;
}

static enum dt_status check_finite(const struct content *content)
{
    for (int i = 0; i < content->tensors.n_tensors; i++) {
        const struct dt_tensor *tensor = &content->tensors.tensors[i];
        const size_t n = dt_tensor_count_non_finite(tensor);
        if (n > 0) {
            return dt_error(DT_BAD_DATA, "%s: tensor '%s' contains %zu non-finite values",
                            content->name, tensor->name, n);
        }
    }
    return DT_OK;
}

/* Reads the metadata that only dtrain's checkpoints have. */
static enum dt_status read_content(const struct content *content, struct dt_checkpoint_file *out)
{
    DT_TRY(check_format(content));
    DT_TRY(get_state(content, &out->state));
    DT_TRY(get_text(content, "config", &out->config));
    out->class_names = dt_safetensors_metadata(&content->tensors, "class_names");
    if (out->class_names != NULL && strlen(out->class_names) > DT_CLASS_NAMES_MOST) {
        return dt_error(DT_BAD_DATA, "%s: invalid header: more than %zu bytes of class names",
                        content->name, DT_CLASS_NAMES_MOST);
    }
    for (int i = 0; i < content->tensors.n_tensors; i++) {
        DT_TRY(check_crc(content, &content->tensors.tensors[i]));
    }
    return DT_OK;
}

/* `foreign`: accept a file without a header CRC, which is not dtrain's, for its weights. */
static enum dt_status parse(const char *name, const uint8_t *bytes, size_t n_bytes, bool foreign,
                            struct dt_checkpoint_file *out)
{
    const char *header;
    size_t n_header;
    memset(out, 0, sizeof *out);
    DT_TRY(dt_safetensors_find_header(name, bytes, n_bytes, &header, &n_header));
    const bool ours = !foreign || dt_header_crc_find(header, n_header) != NULL;
    if (ours) {
        DT_TRY(check_header_crc(name, bytes, header, n_header));
    }
    struct content *content = calloc(1, sizeof *content);
    if (content == NULL) {
        return dt_error(DT_NO_MEMORY, "%s: out of memory", name);
    }
    out->content = content;
    snprintf(content->name, sizeof content->name, "%s", name);
    enum dt_status status;
    DT_TRY_GOTO(status,
                dt_safetensors_parse(name, header, n_header, bytes + n_bytes, &content->tensors),
                failed);
    if (ours) {
        DT_TRY_GOTO(status, read_content(content, out), failed);
    }
    DT_TRY_GOTO(status, check_finite(content), failed);
    DT_ASSERT(!ours || out->config != NULL);
    return DT_OK;
failed:
    dt_checkpoint_close(out);
    return status;
}

enum dt_status dt_checkpoint_parse(const char *name, const uint8_t *bytes, size_t n_bytes,
                                   struct dt_checkpoint_file *out)
{
    return parse(name, bytes, n_bytes, false, out);
}

enum dt_status dt_weights_parse(const char *name, const uint8_t *bytes, size_t n_bytes,
                                struct dt_checkpoint_file *out)
{
    return parse(name, bytes, n_bytes, true, out);
}

static enum dt_status open_file(const char *path, bool foreign, struct dt_checkpoint_file *out)
{
    uint8_t *bytes;
    size_t n_bytes;
    memset(out, 0, sizeof *out);
    DT_TRY(dt_file_read(path, DT_CHECKPOINT_MAX_BYTES, &bytes, &n_bytes));
    const enum dt_status status = parse(path, bytes, n_bytes, foreign, out);
    if (status != DT_OK) {
        free(bytes);
        return status;
    }
    DT_ASSERT(((struct content *)out->content)->bytes == NULL);
    ((struct content *)out->content)->bytes = bytes;
    return DT_OK;
}

enum dt_status dt_checkpoint_open(const char *path, struct dt_checkpoint_file *out)
{
    return open_file(path, false, out);
}

enum dt_status dt_weights_open(const char *path, struct dt_checkpoint_file *out)
{
    return open_file(path, true, out);
}

void dt_checkpoint_close(struct dt_checkpoint_file *file)
{
    struct content *content = file->content;
    if (content != NULL) {
        dt_safetensors_close(&content->tensors);
        free(content->bytes);
        free(content);
    }
    memset(file, 0, sizeof *file);
}

/* Taking a model's tensors */

static bool same_shape(const struct dt_tensor *a, const struct dt_tensor *b)
{
    DT_ASSERT(a->n_dims <= 4 && b->n_dims <= 4);
    return a->n_dims == b->n_dims &&
           memcmp(a->dims, b->dims, (size_t)a->n_dims * sizeof a->dims[0]) == 0;
}

/* "[32, 1, 3, 3]" */
static const char *shape_text(const struct dt_tensor *tensor, char text[96])
{
    int used = snprintf(text, 96, "[");
    for (int i = 0; i < tensor->n_dims; i++) {
        used +=
            snprintf(text + used, 96 - (size_t)used, "%s%zu", i == 0 ? "" : ", ", tensor->dims[i]);
    }
    snprintf(text + used, 96 - (size_t)used, "]");
    return text;
}

/* Tensor i of those that a model wants in a file: weights, their average with `first_state`
 * DT_EMA_STATE, states of the optimizer, buffers. */
static bool wanted_tensor(const struct dt_model *model, int first_state, int n_optimizer_states,
                          int i, struct dt_tensor *out)
{
    DT_ASSERT(i >= 0 && first_state < 0 && n_optimizer_states >= 0);
    const int n_trained = model->n_params * (n_optimizer_states - first_state);
    if (i >= n_trained + model->n_buffers) {
        return false;
    }
    *out = i >= n_trained ? dt_checkpoint_tensor(&model->buffers[i - n_trained], -1, NULL)
                          : dt_checkpoint_tensor(&model->params[i % model->n_params],
                                                 first_state + i / model->n_params, NULL);
    return true;
}

static bool is_wanted(const char *name, const struct dt_model *model, int n_optimizer_states)
{
    struct dt_tensor wanted;
    for (int i = 0; wanted_tensor(model, DT_EMA_STATE, n_optimizer_states, i, &wanted); i++) {
        if (strcmp(wanted.name, name) == 0) {
            return true;
        }
    }
    return false;
}

/* One tensor of the average is enough: then all have to be there. */
static int first_state(const struct content *content, const struct dt_model *model)
{
    for (int i = 0; i < model->n_params; i++) {
        const struct dt_tensor tensor = dt_checkpoint_tensor(&model->params[i], DT_EMA_STATE, NULL);
        if (dt_safetensors_find(&content->tensors, tensor.name) != NULL) {
            return DT_EMA_STATE;
        }
    }
    return -1;
}

static enum dt_status check_names(const struct content *content, const struct dt_model *model,
                                  int n_optimizer_states)
{
    struct dt_name_list missing = {0}, unknown = {0};
    struct dt_tensor wanted;
    const int first = first_state(content, model);
    for (int i = 0; wanted_tensor(model, first, n_optimizer_states, i, &wanted); i++) {
        if (dt_safetensors_find(&content->tensors, wanted.name) == NULL) {
            dt_name_list_add(&missing, wanted.name, strlen(wanted.name));
        }
    }
    for (int i = 0; i < content->tensors.n_tensors; i++) {
        const char *name = content->tensors.tensors[i].name;
        const bool is_state = strncmp(name, "optimizer.", strlen("optimizer.")) == 0;
        const bool is_known =
            strcmp(name, DT_RESIDUALS_NAME) == 0 || is_wanted(name, model, n_optimizer_states);
        if ((n_optimizer_states > 0 || !is_state) && !is_known) {
            dt_name_list_add(&unknown, name, strlen(name));
        }
    }
    if (missing.n + unknown.n == 0) {
        return DT_OK;
    }
    return dt_error(
        DT_CONFIG,
        "%s: tensors %s%s%s%s%s (it is of another model or optimizer, or has other names for them)",
        content->name, missing.n > 0 ? "missing: " : "", missing.text,
        missing.n > 0 && unknown.n > 0 ? "; " : "", unknown.n > 0 ? "unknown: " : "", unknown.text);
}

/* How many bytes stand before `end`; 0: the text does not end so, or is no longer. */
static size_t bytes_before(const char *text, const char *end)
{
    const size_t n = strlen(text), n_end = strlen(end);
    return n > n_end && strcmp(text + n - n_end, end) == 0 ? n - n_end : 0;
}

void dt_weights_name(struct dt_checkpoint_file *file, const struct dt_model *model)
{
    struct dt_safetensors *tensors = &((struct content *)file->content)->tensors;
    const struct dt_tensor *end = tensors->tensors + tensors->n_tensors;
    const char *prefix = NULL;
    size_t n = 0;
    for (int p = 0; p < model->n_params; p++) {
        const char *wanted = model->params[p].name;
        if (file->config != NULL || dt_safetensors_find(tensors, wanted) != NULL) {
            return;
        }
        for (const struct dt_tensor *t = tensors->tensors; t < end && n == 0; t++) {
            prefix = t->name;
            n = bytes_before(prefix, wanted);
        }
    }
    DT_ASSERT(n < sizeof file->prefix);
    snprintf(file->prefix, sizeof file->prefix, "%.*s", (int)n, n > 0 ? prefix : "");
    for (int i = 0; i < tensors->n_tensors && n > 0; i++) {
        char *at = tensors->tensors[i].name;
        if (strncmp(at, file->prefix, n) == 0 && at[n] != '\0') {
            memmove(at, at + n, strlen(at + n) + 1);
        }
    }
}

static enum dt_status check_shapes(const struct content *content, const struct dt_model *model,
                                   int n_optimizer_states)
{
    struct dt_tensor wanted;
    const int first = first_state(content, model);
    for (int i = 0; wanted_tensor(model, first, n_optimizer_states, i, &wanted); i++) {
        const struct dt_tensor *found = dt_safetensors_find(&content->tensors, wanted.name);
        DT_ASSERT(found != NULL);
        if (!same_shape(found, &wanted)) {
            char theirs[96], ours[96];
            return dt_error(
                DT_CONFIG,
                "%s: tensor '%s' has shape %s, the model has %s (it is of another model)",
                content->name, wanted.name, shape_text(found, theirs), shape_text(&wanted, ours));
        }
    }
    return DT_OK;
}

static const struct dt_tensor *find_residuals(const struct dt_checkpoint_file *file)
{
    const struct content *content = file->content;
    return dt_safetensors_find(&content->tensors, DT_RESIDUALS_NAME);
}

static enum dt_status check_residuals(const struct dt_checkpoint_file *file,
                                      const struct dt_model *model)
{
    DT_ASSERT(find_residuals(file) == NULL || file->config != NULL);
    const struct dt_tensor *found = find_residuals(file),
                           wanted = dt_residuals_tensor(model, file->state.world_size, NULL);
    char theirs[96], ours[96];
    if (found == NULL || same_shape(found, &wanted)) {
        return DT_OK;
    }
    return dt_error(
        DT_CONFIG,
        "%s: tensor '%s' has shape %s, %llu workers of this model have %s (use another checkpoint)",
        ((const struct content *)file->content)->name, found->name, shape_text(found, theirs),
        (unsigned long long)file->state.world_size, shape_text(&wanted, ours));
}

/* A buffer that begins with 1 is a variance. */
static enum dt_status check_variances(const struct content *content, const struct dt_model *model)
{
    for (int i = 0; i < model->n_buffers; i++) {
        const struct dt_param *buffer = &model->buffers[i];
        const struct dt_tensor *found = dt_safetensors_find(&content->tensors, buffer->name);
        DT_ASSERT(found->n_bytes == buffer->n_elems * sizeof(float));
        for (size_t at = 0; buffer->initial > 0 && at < found->n_bytes; at += sizeof(float)) {
            float value;
            memcpy(&value, found->bytes + at, sizeof value);
            if (value < 0) {
                return dt_error(DT_BAD_DATA,
                                "%s: tensor '%s' has %g, a variance below 0 (use another file)",
                                content->name, buffer->name, (double)value);
            }
        }
    }
    return DT_OK;
}

enum dt_status dt_checkpoint_check(const struct dt_checkpoint_file *file,
                                   const struct dt_model *model, int n_optimizer_states)
{
    DT_TRY(check_names(file->content, model, n_optimizer_states));
    DT_TRY(check_shapes(file->content, model, n_optimizer_states));
    DT_TRY(check_variances(file->content, model));
    return check_residuals(file, model);
}

enum dt_status dt_weights_fit(struct dt_checkpoint_file *file, const struct dt_model *model,
                              const float *arena, const float *buffers, char text[DT_FIT_TEXT_SIZE])
{
    struct content *content = file->content;
    struct dt_safetensors *tensors = &content->tensors;
    struct dt_name_list drawn = {0}, unused = {0};
    struct dt_tensor fitting[DT_MAX_TENSORS];
    int n = 0;
    dt_weights_name(file, model);
    for (; wanted_tensor(model, -1, 0, n, &fitting[n]); n++) {
        const struct dt_tensor *found = dt_safetensors_find(tensors, fitting[n].name);
        const int b = n - model->n_params;
        if (found != NULL && same_shape(found, &fitting[n])) {
            fitting[n] = *found;
            continue;
        }
        fitting[n] = b < 0 ? dt_checkpoint_tensor(&model->params[n], -1, arena)
                           : dt_checkpoint_tensor(&model->buffers[b], -1, buffers);
        dt_name_list_add(&drawn, fitting[n].name, strlen(fitting[n].name));
    }
    for (int i = 0; i < tensors->n_tensors; i++) {
        const char *name = tensors->tensors[i].name;
        if (file->config == NULL && !is_wanted(name, model, 0)) {
            dt_name_list_add(&unused, name, strlen(name));
        }
    }
    if (drawn.n == n) {
        return dt_checkpoint_check(file, model, 0);
    }
    memcpy(tensors->tensors, fitting, (size_t)n * sizeof fitting[0]);
    tensors->n_tensors = n;
    const bool prefixed = file->prefix[0] != '\0', all = drawn.n + unused.n == 0 && !prefixed;
    snprintf(text, DT_FIT_TEXT_SIZE, all ? "" : "%.200s: %d of %d tensors taken%s%s%s%s%s%s",
             content->name, n - drawn.n, n, prefixed ? ", whose names begin with " : "",
             file->prefix, drawn.n > 0 ? "; drawn: " : "", drawn.text,
             unused.n > 0 ? "; not used: " : "", unused.text);
    return DT_OK;
}

/* `arena` may be NULL. */
static void get_tensors(const struct content *content, const struct dt_model *model, int state,
                        float *arena)
{
    for (int i = 0; i < model->n_params && arena != NULL; i++) {
        const struct dt_tensor wanted = dt_checkpoint_tensor(&model->params[i], state, NULL);
        const struct dt_tensor *found = dt_safetensors_find(&content->tensors, wanted.name);
        DT_ASSERT(found->n_bytes == model->params[i].n_elems * sizeof *arena);
        DT_ASSERT(model->params[i].offset + model->params[i].n_elems <= model->arena_elems);
        memmove(arena + model->params[i].offset, found->bytes, found->n_bytes); /* or itself */
    }
}

enum dt_status dt_checkpoint_get(const struct dt_checkpoint_file *file,
                                 const struct dt_model *model, float *arena, int n_optimizer_states,
                                 float *const *optimizer)
{
    DT_ASSERT(n_optimizer_states >= 0 && n_optimizer_states <= 2);
    DT_TRY(dt_checkpoint_check(file, model, n_optimizer_states));
    for (int state = -1; state < n_optimizer_states; state++) {
        get_tensors(file->content, model, state, state < 0 ? arena : optimizer[state]);
    }
    return DT_OK;
}

bool dt_checkpoint_has_ema(const struct dt_checkpoint_file *file, const struct dt_model *model)
{
    return first_state(file->content, model) == DT_EMA_STATE;
}

void dt_checkpoint_get_ema(const struct dt_checkpoint_file *file, const struct dt_model *model,
                           float *arena)
{
    DT_ASSERT(dt_checkpoint_has_ema(file, model));
    get_tensors(file->content, model, DT_EMA_STATE, arena);
}

void dt_checkpoint_get_buffers(const struct dt_checkpoint_file *file, const struct dt_model *model,
                               float *buffers)
{
    const struct content *content = file->content;
    for (int i = 0; i < model->n_buffers; i++) {
        const struct dt_tensor *found =
            dt_safetensors_find(&content->tensors, model->buffers[i].name);
        DT_ASSERT(found->n_bytes == model->buffers[i].n_elems * sizeof *buffers);
        memcpy(buffers + model->buffers[i].offset, found->bytes, found->n_bytes);
    }
}

bool dt_checkpoint_has_residuals(const struct dt_checkpoint_file *file)
{
    return find_residuals(file) != NULL;
}

void dt_checkpoint_get_residuals(const struct dt_checkpoint_file *file, size_t n_workers,
                                 float *residuals)
{
    DT_ASSERT(n_workers > 0 && dt_checkpoint_has_residuals(file));
    const struct dt_tensor *found = find_residuals(file);
    const size_t n = found->n_bytes / sizeof *residuals,
                 n_room = n / file->state.world_size * n_workers;
    DT_ASSERT(n % file->state.world_size == 0);
    memcpy(residuals, found->bytes, (n < n_room ? n : n_room) * sizeof *residuals);
    for (size_t i = n_room; i < n; i++) {
        float left;
        memcpy(&left, found->bytes + i * sizeof left, sizeof left);
        residuals[i % n_room] += left;
    }
}
