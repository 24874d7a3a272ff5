/* The safetensors container (huggingface.co/docs/safetensors): u64 little-endian header length,
 * JSON header, raw tensors. The header maps each tensor's name to { "dtype", "shape",
 * "data_offsets" }, and "__metadata__" to strings. Stricter here than the format: float32 only, at
 * most DT_MAX_TENSORS tensors of at most four dimensions, none empty, a header of at most 1 MiB.
 * Files are untrusted: every value is checked before use, and no arithmetic on their numbers can
 * overflow. */
#ifndef DT_CHECKPOINT_SAFETENSORS_H
#define DT_CHECKPOINT_SAFETENSORS_H

#include "base/status.h"
#include "model/block.h"

#define DT_MAX_TENSORS \
    (5 * DT_MAX_PARAMS + 1) /* weights, their average, two optimizer states, buffers, residuals */
#define DT_SAFETENSORS_MAX_HEADER ((size_t)1 << 20)
#define DT_SAFETENSORS_ALIGN 64 /* the data begins at a multiple of this; spaces pad the header */

struct cJSON;

struct dt_tensor {
    char name[64];
    int n_dims;
    size_t dims[4];
    const uint8_t *bytes; /* little-endian floats; borrowed, and not necessarily aligned */
    size_t n_bytes;
};

struct dt_safetensors {
    int n_tensors;
    struct dt_tensor
        tensors[DT_MAX_TENSORS]; /* in the order of their data; `bytes` points into the file */
    struct cJSON *header;        /* private */
};

/* Finds the JSON header of a file in memory; checks lengths only. DT_BAD_DATA. */
enum dt_status dt_safetensors_find_header(const char *name, const uint8_t *bytes, size_t n_bytes,
                                          const char **header, size_t *n_header);

/* Reads the whole structure, from the header that was found to the end of the file: every byte
 * belongs to the header or to exactly one tensor. Error texts begin with `name`. DT_BAD_DATA,
 * DT_NO_MEMORY. A failed parse owes nothing. */
enum dt_status dt_safetensors_parse(const char *name, const char *header, size_t n_header,
                                    const uint8_t *end, struct dt_safetensors *out);
void dt_safetensors_close(struct dt_safetensors *file);

const char *dt_safetensors_metadata(const struct dt_safetensors *file,
                                    const char *key); /* NULL: no such key */
const struct dt_tensor *dt_safetensors_find(const struct dt_safetensors *file,
                                            const char *name); /* NULL: no such tensor */

/* Makes the start of a file with these tensors in this order: length, JSON and padding. Takes over
 * `metadata`, an object of strings, also on failure. Caller frees. DT_NO_MEMORY; DT_CONFIG: larger
 * than DT_SAFETENSORS_MAX_HEADER. */
enum dt_status dt_safetensors_make_header(const struct dt_tensor *tensors, int n_tensors,
                                          struct cJSON *metadata, char **header, size_t *n_bytes);

/* Counts the tensor's values that are NaN or infinite. */
size_t dt_tensor_count_non_finite(const struct dt_tensor *tensor);

#endif
