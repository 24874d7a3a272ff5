#include "data/formats/labelled.h"

#include <stdio.h>
#include <stdlib.h>
#include <zlib.h>

#include "base/memory.h"

enum dt_status dt_labelled_path(const char *dir, const char *name, char path[DT_PATH_SIZE])
{
    return snprintf(path, DT_PATH_SIZE, "%s/%s", dir, name) < DT_PATH_SIZE
               ? DT_OK
               : dt_error(DT_CONFIG, "data.dir: the path is longer than %d bytes",
                          DT_PATH_SIZE - 1);
}

enum dt_status dt_labelled_find(const char *dir, const char *name, char path[DT_PATH_SIZE])
{
    bool exists;
    DT_TRY(dt_labelled_path(dir, name, path));
    DT_TRY(dt_file_exists(path, &exists));
    if (exists) {
        return DT_OK;
    }
    char packed[256];
    snprintf(packed, sizeof packed, "%s.gz", name);
    DT_TRY(dt_labelled_path(dir, packed, path));
    DT_TRY(dt_file_exists(path, &exists));
    path[0] = exists ? path[0] : '\0';
    return DT_OK;
}

size_t dt_labelled_count(const struct dt_data_spec *spec, enum dt_split split, size_t n_there)
{
    DT_ASSERT(n_there > 0);
    const size_t limit = dt_dataset_limit(spec, split);
    return limit > 0 && limit < n_there ? limit : n_there;
}

/* The row of sample i, or SIZE_MAX. */
static size_t row_of(struct dt_owned owned, size_t i)
{
    DT_ASSERT(owned.n == 0 || owned.stride >= 1);
    const size_t first = owned.first, stride = owned.stride;
    return i >= first && (i - first) % stride == 0 && (i - first) / stride < owned.n
               ? (i - first) / stride
               : SIZE_MAX;
}

enum dt_status dt_labelled_alloc(const struct dt_data_spec *spec, const char *path, size_t n_total,
                                 struct dt_owned owned, struct dt_dataset *out)
{
    if (owned.n > 0 && owned.first + (owned.n - 1) * owned.stride >= n_total) {
        return dt_error(DT_BAD_DATA, "%s: changed during the run", path);
    }
    const size_t n_item = dt_shape_elems(spec->shape);
    out->samples.n_total = n_total;
    out->items = dt_memory_alloc(owned.n * n_item + 1);
    out->answers = malloc((owned.n + 1) * sizeof(uint16_t));
    return out->items != NULL && out->answers != NULL
               ? DT_OK
               : dt_error(DT_NO_MEMORY, "%s: no memory for %zu images of %zu bytes", path, owned.n,
                          n_item);
}

uint8_t *dt_labelled_row(const struct dt_data_spec *spec, struct dt_owned owned, size_t i,
                         struct dt_dataset *out)
{
    const size_t row = row_of(owned, i);
    return row != SIZE_MAX ? (uint8_t *)out->items + row * dt_shape_elems(spec->shape) : NULL;
}

enum dt_status dt_labelled_take(const struct dt_data_spec *spec, const char *path,
                                struct dt_owned owned, size_t i, int64_t label,
                                struct dt_dataset *out)
{
    DT_ASSERT(i < out->samples.n_total);
    const size_t row = row_of(owned, i);
    DT_TRY(dt_label_check(spec, path, i, label));
    DT_ASSERT(label <= UINT16_MAX);
    if (row != SIZE_MAX) {
        ((uint16_t *)out->answers)[row] = (uint16_t)label;
    }
    const uint8_t bytes[] = {(uint8_t)label, (uint8_t)(label >> 8)};
    out->crc = (uint32_t)crc32(out->crc, bytes, spec->n_classes <= 256 ? 1 : 2);
    return DT_OK;
}

enum dt_status dt_labelled_check_count(const char *images, const size_t *dims, int n_dims,
                                       const char *labels, size_t n_labels)
{
    char cure[64] = "do the files belong together?";
    for (int d = n_dims - 1; d > 0; d--) {
        if (dims[d] == n_labels) { /* as MATLAB has them */
            snprintf(cure, sizeof cure, "save numpy.moveaxis(images, %d, 0)", d);
        }
    }
    return dims[0] == n_labels ? DT_OK
                               : dt_error(DT_BAD_DATA, "%s: %zu images but %zu labels in %s (%s)",
                                          images, dims[0], n_labels, labels, cure);
}
