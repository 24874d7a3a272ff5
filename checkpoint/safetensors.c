#include "checkpoint/safetensors.h"

#include <cjson/cJSON.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "tensors are written as they lie in memory");

static const char metadata_key[] = "__metadata__";

/* Finding the header */

/* Lines of Python that make a safetensors file, where PyTorch wrote the file. */
static enum dt_status refuse_kind(const char *name, const char *kind)
{
    return dt_error(
        DT_BAD_DATA, "%s: not a safetensors file, looks like %s%s", name, kind,
        strstr(kind, "PyTorch") == NULL
            ? ""
            : " (in Python: import torch, safetensors.torch; safetensors.torch.save_file("
              "torch.load(\"FILE\"), \"FILE.safetensors\"), for a state_dict)");
}

enum dt_status dt_safetensors_find_header(const char *name, const uint8_t *bytes, size_t n_bytes,
                                          const char **header, size_t *n_header)
{
    if (n_bytes < sizeof(uint64_t)) {
        return dt_error(DT_BAD_DATA, "%s: truncated: %zu bytes, a safetensors file has at least 8",
                        name, n_bytes);
    }
    uint64_t length;
    memcpy(&length, bytes, sizeof length);
    if (length > DT_SAFETENSORS_MAX_HEADER && dt_file_kind(bytes, n_bytes) != NULL) {
        return refuse_kind(name, dt_file_kind(bytes, n_bytes));
    }
    if (length > DT_SAFETENSORS_MAX_HEADER) {
        return dt_error(
            DT_BAD_DATA,
            "%s: not a safetensors file, or damaged: header length %llu, at most %zu are allowed",
            name, (unsigned long long)length, DT_SAFETENSORS_MAX_HEADER);
    }
    if (length > n_bytes - sizeof length) {
        return dt_error(DT_BAD_DATA,
                        "%s: truncated: header length %llu, but the file has %zu bytes", name,
                        (unsigned long long)length, n_bytes);
    }
    *header = (const char *)bytes + sizeof length;
    *n_header = (size_t)length;
    DT_ASSERT((const uint8_t *)*header + *n_header <= bytes + n_bytes);
    return DT_OK;
}

/* Reading */

/* Reads an integer that a double holds exactly. */
static bool read_size(const cJSON *item, size_t *out)
{
    const double limit = 9007199254740992.0; /* 2^53 */
    if (!cJSON_IsNumber(item) || !(item->valuedouble >= 0 && item->valuedouble <= limit)) {
        return false;
    }
    *out = (size_t)item->valuedouble;
    return (double)*out == item->valuedouble;
}

/* Fills in dims and n_bytes; false if a dimension is no integer or too large. */
static bool read_shape(const cJSON *shape, struct dt_tensor *tensor)
{
    const int n_dims = cJSON_IsArray(shape) ? cJSON_GetArraySize(shape) : -1;
    if (n_dims < 0 || n_dims > 4) {
        return false;
    }
    tensor->n_dims = 0;
    tensor->n_bytes = sizeof(float);
    const cJSON *dim;
    cJSON_ArrayForEach(dim, shape)
    {
        size_t *out = &tensor->dims[tensor->n_dims++];
        if (!read_size(dim, out) || *out == 0 ||
            __builtin_mul_overflow(tensor->n_bytes, *out, &tensor->n_bytes)) {
            return false;
        }
    }
    DT_ASSERT(tensor->n_dims == n_dims && tensor->n_bytes >= sizeof(float));
    return true;
}

/* PyTorch's number of batches that a batch norm has seen, which nothing here depends on. */
static bool is_counter(const struct dt_tensor *tensor)
{
    static const char suffix[] = ".num_batches_tracked";
    const size_t n = strlen(tensor->name), n_suffix = sizeof suffix - 1;
    return n > n_suffix && strcmp(tensor->name + n - n_suffix, suffix) == 0;
}

/* One entry of the header. `data`: the n_data bytes after it. */
static enum dt_status read_tensor(const char *name, const cJSON *entry, const uint8_t *data,
                                  size_t n_data, struct dt_tensor *tensor)
{
    if (strlen(entry->string) >= sizeof tensor->name) {
        return dt_error(DT_BAD_DATA, "%s: invalid header: tensor name '%.40s...' is too long", name,
                        entry->string);
    }
    strcpy(tensor->name, entry->string);
    const cJSON *dtype = cJSON_GetObjectItemCaseSensitive(entry, "dtype");
    const cJSON *shape = cJSON_GetObjectItemCaseSensitive(entry, "shape");
    const cJSON *offsets = cJSON_GetObjectItemCaseSensitive(entry, "data_offsets");
    if (!cJSON_IsObject(entry) || cJSON_GetArraySize(entry) != 3 || !cJSON_IsString(dtype) ||
        !shape || !offsets) {
        return dt_error(
            DT_BAD_DATA,
            "%s: invalid header: tensor '%s' needs dtype, shape and data_offsets, once each", name,
            tensor->name);
    }
    const bool counts = is_counter(tensor) && strcmp(dtype->valuestring, "I64") == 0;
    if (!counts && strcmp(dtype->valuestring, "F32") != 0) {
        return dt_error(
            DT_BAD_DATA,
            "%s: tensor '%s' has dtype '%.20s', only F32 is supported (in PyTorch: .float())", name,
            tensor->name, dtype->valuestring);
    }
    if (!read_shape(shape, tensor)) {
        return dt_error(DT_BAD_DATA, "%s: invalid header: tensor '%s' has an impossible shape",
                        name, tensor->name);
    }
    tensor->n_bytes *= counts ? 2 : 1;
    size_t begin, end;
    if (!cJSON_IsArray(offsets) || cJSON_GetArraySize(offsets) != 2 ||
        !read_size(cJSON_GetArrayItem(offsets, 0), &begin) ||
        !read_size(cJSON_GetArrayItem(offsets, 1), &end)) {
        return dt_error(DT_BAD_DATA, "%s: invalid header: tensor '%s' has invalid data_offsets",
                        name, tensor->name);
    }
    if (begin > end || end - begin != tensor->n_bytes) {
        return dt_error(DT_BAD_DATA,
                        "%s: invalid header: tensor '%s' offsets [%zu, %zu] do not match its "
                        "shape, which takes %zu bytes",
                        name, tensor->name, begin, end, tensor->n_bytes);
    }
    if (end > n_data) {
        return dt_error(DT_BAD_DATA,
                        "%s: truncated: tensor '%s' ends at byte %zu of the data, the file has %zu",
                        name, tensor->name, end, n_data);
    }
    tensor->bytes = data + begin;
    DT_ASSERT(tensor->bytes + tensor->n_bytes <= data + n_data);
    return DT_OK;
}

static int compare_places(const void *a, const void *b)
{
    const struct dt_tensor *x = a, *y = b;
    return x->bytes < y->bytes ? -1 : x->bytes > y->bytes;
}

/* Sorts by offset; then each tensor must begin where the one before it ends, and the last one end
 * the file. */
static enum dt_status check_places(const char *name, struct dt_safetensors *file,
                                   const uint8_t *data, size_t n_data)
{
    qsort(file->tensors, (size_t)file->n_tensors, sizeof file->tensors[0], compare_places);
    const uint8_t *end = data;
    for (int i = 0; i < file->n_tensors; i++) {
        const struct dt_tensor *tensor = &file->tensors[i];
        if (tensor->bytes != end) {
            return dt_error(
                DT_BAD_DATA,
                "%s: invalid header: tensor '%s' begins at byte %td of the data, expected %td (%s)",
                name, tensor->name, tensor->bytes - data, end - data,
                tensor->bytes < end ? "an overlap" : "a hole");
        }
        end += tensor->n_bytes;
    }
    if (end != data + n_data) {
        return dt_error(DT_BAD_DATA, "%s: %td extra bytes after the last tensor", name,
                        data + n_data - end);
    }
    return DT_OK;
}

static void drop_counters(struct dt_safetensors *file)
{
    int n = 0;
    for (int i = 0; i < file->n_tensors; i++) {
        if (!is_counter(&file->tensors[i])) {
            file->tensors[n++] = file->tensors[i];
        }
    }
    DT_ASSERT(n <= file->n_tensors);
    file->n_tensors = n;
}

static enum dt_status read_tensors(const char *name, const uint8_t *data, size_t n_data,
                                   struct dt_safetensors *file)
{
    const bool has_metadata = cJSON_GetObjectItemCaseSensitive(file->header, metadata_key) != NULL;
    const int n = cJSON_GetArraySize(file->header) - has_metadata;
    if (n > DT_MAX_TENSORS) {
        return dt_error(DT_BAD_DATA, "%s: %d tensors in the header, at most %d are supported", name,
                        n, DT_MAX_TENSORS);
    }
    bool metadata_seen = false;
    const cJSON *entry;
    cJSON_ArrayForEach(entry, file->header)
    {
        bool twice = false;
        if (strcmp(entry->string, metadata_key) == 0) {
            twice = metadata_seen;
            metadata_seen = true;
        } else {
            twice = dt_safetensors_find(file, entry->string) != NULL;
            if (!twice) {
                DT_TRY(read_tensor(name, entry, data, n_data, &file->tensors[file->n_tensors]));
                DT_ASSERT(file->n_tensors < DT_MAX_TENSORS);
                file->n_tensors++;
            }
        }
        if (twice) {
            return dt_error(DT_BAD_DATA, "%s: invalid header: '%s' appears twice", name,
                            entry->string);
        }
    }
    DT_TRY(check_places(name, file, data, n_data));
    drop_counters(file);
    return DT_OK;
}

/* Checks the metadata: strings only, each key once. They are few enough to compare all pairs. */
static enum dt_status check_metadata(const char *name, const cJSON *metadata)
{
    const int n_max = DT_MAX_TENSORS + 64;
    if (metadata == NULL) {
        return DT_OK;
    }
    if (!cJSON_IsObject(metadata) || cJSON_GetArraySize(metadata) > n_max) {
        return dt_error(DT_BAD_DATA,
                        "%s: invalid header: __metadata__ must be an object of at most %d strings",
                        name, n_max);
    }
    const cJSON *item, *other;
    cJSON_ArrayForEach(item, metadata)
    {
        if (!cJSON_IsString(item)) {
            return dt_error(DT_BAD_DATA, "%s: invalid header: metadata '%s' is not a string", name,
                            item->string);
        }
        for (other = item->next; other != NULL; other = other->next) {
            if (strcmp(item->string, other->string) == 0) {
                return dt_error(DT_BAD_DATA, "%s: invalid header: metadata '%s' appears twice",
                                name, item->string);
            }
        }
    }
    return DT_OK;
}

static enum dt_status read_header(const char *name, const char *text, size_t n_text, cJSON **header)
{
    struct dt_json_fault fault;
    *header = dt_json_parse(text, n_text, &fault);
    if (*header == NULL) {
        return fault.problem == NULL
                   ? dt_error(DT_NO_MEMORY, "%s: out of memory for its header", name)
                   : dt_error(
                         DT_BAD_DATA,
                         "%s: not a safetensors file, or damaged: its header is not JSON (line "
                         "%zu, column %zu)",
                         name, fault.line, fault.column);
    }
    while (text[n_text - 1] == ' ') { /* the only white space that may follow the object */
        n_text--;
    }
    if (text[0] != '{' || text[n_text - 1] != '}') {
        return dt_error(DT_BAD_DATA,
                        "%s: not a safetensors file, or damaged: its header is not a JSON object",
                        name);
    }
    return DT_OK;
}

enum dt_status dt_safetensors_parse(const char *name, const char *header, size_t n_header,
                                    const uint8_t *end, struct dt_safetensors *out)
{
    const uint8_t *data = (const uint8_t *)header + n_header;
    DT_ASSERT(data <= end);
    out->n_tensors = 0;
    out->header = NULL;
    enum dt_status status;
    DT_TRY_GOTO(status, read_header(name, header, n_header, &out->header), failed);
    DT_TRY_GOTO(status,
                check_metadata(name, cJSON_GetObjectItemCaseSensitive(out->header, metadata_key)),
                failed);
    DT_TRY_GOTO(status, read_tensors(name, data, (size_t)(end - data), out), failed);
    return DT_OK;
failed:
    dt_safetensors_close(out);
    return status;
}

void dt_safetensors_close(struct dt_safetensors *file)
{
    cJSON_Delete(file->header);
    file->header = NULL;
    file->n_tensors = 0;
}

const char *dt_safetensors_metadata(const struct dt_safetensors *file, const char *key)
{
    const cJSON *metadata = cJSON_GetObjectItemCaseSensitive(file->header, metadata_key);
    return cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(metadata, key));
}

const struct dt_tensor *dt_safetensors_find(const struct dt_safetensors *file, const char *name)
{
    for (int i = 0; i < file->n_tensors; i++) {
        if (strcmp(file->tensors[i].name, name) == 0) {
            return &file->tensors[i];
        }
    }
    return NULL;
}

size_t dt_tensor_count_non_finite(const struct dt_tensor *tensor)
{
    DT_ASSERT(tensor->n_bytes % sizeof(float) == 0);
    const uint32_t exponent = 0x7f800000u; /* all ones: NaN or infinity */
    size_t n = 0;
    for (size_t at = 0; at < tensor->n_bytes; at += sizeof(float)) {
        uint32_t bits;
        memcpy(&bits, tensor->bytes + at, sizeof bits);
        n += (bits & exponent) == exponent;
    }
    return n;
}

/* Writing */

static bool add_number(cJSON *array, size_t value)
{
    cJSON *number = cJSON_CreateNumber((double)value);
    if (!cJSON_AddItemToArray(array, number)) {
        cJSON_Delete(number);
        return false;
    }
    return true;
}

static bool add_tensor(cJSON *root, const struct dt_tensor *tensor, size_t begin)
{
    DT_ASSERT(tensor->n_dims >= 1 && tensor->n_dims <= 4);
    DT_ASSERT(tensor->n_bytes > 0 && tensor->n_bytes % sizeof(float) == 0);
    cJSON *entry = cJSON_AddObjectToObject(root, tensor->name);
    bool ok = cJSON_AddStringToObject(entry, "dtype", "F32") != NULL;
    cJSON *shape = cJSON_AddArrayToObject(entry, "shape");
    for (int i = 0; i < tensor->n_dims; i++) {
        ok = add_number(shape, tensor->dims[i]) && ok;
    }
    cJSON *offsets = cJSON_AddArrayToObject(entry, "data_offsets");
    ok = add_number(offsets, begin) && ok;
    return add_number(offsets, begin + tensor->n_bytes) && ok;
}

/* The header's JSON text, from malloc, or NULL. */
static char *print_header(const struct dt_tensor *tensors, int n_tensors, cJSON *metadata)
{
    cJSON *root = cJSON_CreateObject();
    if (!cJSON_AddItemToObject(root, metadata_key, metadata)) {
        cJSON_Delete(root);
        cJSON_Delete(metadata);
        return NULL;
    }
    bool ok = true;
    size_t begin = 0;
    for (int i = 0; i < n_tensors; i++) {
        ok = add_tensor(root, &tensors[i], begin) && ok;
        begin += tensors[i].n_bytes;
    }
    char *text = ok ? cJSON_PrintUnformatted(root) : NULL;
    cJSON_Delete(root);
    return text;
}

enum dt_status dt_safetensors_make_header(const struct dt_tensor *tensors, int n_tensors,
                                          cJSON *metadata, char **header, size_t *n_bytes)
{
    DT_ASSERT(n_tensors >= 0 && n_tensors <= DT_MAX_TENSORS);
    char *text = print_header(tensors, n_tensors, metadata);
    if (text == NULL) {
        return dt_error(DT_NO_MEMORY, "out of memory for a checkpoint's header");
    }
    const size_t n_text = strlen(text);
    const size_t n_prefix = sizeof(uint64_t);
    const size_t n_total = (n_prefix + n_text + DT_SAFETENSORS_ALIGN - 1) / DT_SAFETENSORS_ALIGN *
                           DT_SAFETENSORS_ALIGN;
    if (n_total - n_prefix > DT_SAFETENSORS_MAX_HEADER) {
        cJSON_free(text);
        return dt_error(
            DT_CONFIG,
            "the configuration is too long for a checkpoint's header (%zu bytes, at most %zu)",
            n_text, DT_SAFETENSORS_MAX_HEADER);
    }
    *header = malloc(n_total);
    if (*header == NULL) {
        cJSON_free(text);
        return dt_error(DT_NO_MEMORY, "out of memory for a checkpoint's header");
    }
    const uint64_t length = n_total - n_prefix;
    DT_ASSERT(n_text <= length && n_total % DT_SAFETENSORS_ALIGN == 0);
    memcpy(*header, &length, n_prefix);
    memset(*header + n_prefix, ' ', n_total - n_prefix);
    memcpy(*header + n_prefix, text, n_text);
    cJSON_free(text);
    *n_bytes = n_total;
    return DT_OK;
}
