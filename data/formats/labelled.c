#include "data/formats/labelled.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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

/* Checks that the set is of the training set's kind, and allocates what measures it. */
static enum dt_status open_found(const struct dt_data_spec *spec, const char *path, bool values,
                                 struct dt_dataset *out)
{
    const int n = values ? spec->shape.c : 0;
    if (values && (spec->augment.n > 0 || spec->normalize.n > 0 || spec->normalize.of_dataset)) {
        return dt_error(DT_CONFIG,
                        "data.%s: is for pixels, unsigned bytes; these are numbers, which the "
                        "training set's mean and deviation normalize (leave it out)",
                        spec->augment.n > 0 ? "augment" : "normalize");
    }
    if ((spec->scale[0].n > 0 && spec->scale[0].n != n) ||
        (spec->scale[1].n > 0 && spec->scale[1].n != spec->n_targets) || n > DT_MOST_SCALED) {
        return dt_error(DT_BAD_DATA,
                        "%s: %d numbers to be scaled, the training set has %d, at most %d (save "
                        "arrays of one type, unsigned bytes or others)",
                        path, n, spec->scale[0].n, DT_MOST_SCALED);
    }
    out->found = out->found != NULL ? out->found : calloc(1, sizeof *out->found);
    return out->found != NULL ? DT_OK : dt_error(DT_NO_MEMORY, "%s: no memory to measure it", path);
}

enum dt_status dt_labelled_alloc(const struct dt_data_spec *spec, const char *path, size_t n_total,
                                 bool values, struct dt_owned owned, struct dt_dataset *out)
{
    if (owned.n > 0 && owned.first + (owned.n - 1) * owned.stride >= n_total) {
        return dt_error(DT_BAD_DATA, "%s: changed during the run", path);
    }
    const bool targets = spec->n_classes == 0;
    const size_t n_item = dt_shape_elems(spec->shape) * (values ? sizeof(float) : 1),
                 n_answer = targets ? (size_t)spec->n_targets * sizeof(float) : sizeof(uint16_t);
    DT_TRY(values || targets ? open_found(spec, path, values, out) : DT_OK);
    out->samples.n_total = n_total;
    out->items = dt_memory_alloc(owned.n * n_item + 1);
    out->answers = calloc(owned.n + 1, n_answer);
    out->samples.values = values ? out->items : NULL;
    out->samples.targets = targets ? out->answers : NULL;
    out->samples.n_targets = spec->n_targets;
    return out->items != NULL && out->answers != NULL
               ? DT_OK
               : dt_error(DT_NO_MEMORY, "%s: no memory for %zu samples of %zu bytes", path, owned.n,
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

/* How many consecutive numbers share a mean: the pixels of a channel. */
static size_t n_alike(const struct dt_data_spec *spec, bool targets)
{
    return targets ? 1 : (size_t)spec->shape.h * (size_t)spec->shape.w;
}

enum dt_status dt_labelled_numbers(const struct dt_data_spec *spec, const char *path,
                                   struct dt_owned owned, size_t i, bool targets, const double *x,
                                   struct dt_dataset *out)
{
    const bool pixels = !targets && out->samples.values == NULL,
               counts = spec->held == NULL || (spec->held[i / 8] >> i % 8 & 1) == spec->counts_held;
    struct dt_tally *tally = pixels ? NULL : &out->found->tally[targets];
    const size_t n = targets ? (size_t)spec->n_targets : dt_shape_elems(spec->shape),
                 row = row_of(owned, i), per = n_alike(spec, targets);
    void *to = targets ? out->answers : out->items;
    for (size_t j = 0; j < n; j++) {
        const size_t k = j / per;
        if (pixels ? !(x[j] >= 0 && x[j] <= 255 && x[j] == floor(x[j])) : !isfinite((float)x[j])) {
            return dt_error(DT_BAD_DATA, "%s: number %zu at index %zu is %g%s", path, j, i, x[j],
                            pixels ? ", no pixel, 0 to 255"
                                   : " (fill it in, or leave the sample out)");
        }
        if (pixels) {
            if (row != SIZE_MAX) {
                ((uint8_t *)to)[row * n + j] = (uint8_t)x[j];
            }
            continue;
        }
        tally->first[k] = i == 0 && j % per == 0 ? x[j] : tally->first[k];
        const double d = x[j] - tally->first[k];
        tally->sum[k] += counts ? d : 0;
        tally->squares[k] += counts ? d * d : 0;
        if (row != SIZE_MAX) {
            ((float *)to)[row * n + j] = (float)d;
        }
    }
    if (!pixels) {
        tally->n = (int)(n / per);
        tally->count += counts ? (double)per : 0;
    }
    return DT_OK;
}

enum dt_status dt_labelled_answer(const struct dt_data_spec *spec, const char *path,
                                  struct dt_owned owned, size_t i, const double *x,
                                  struct dt_dataset *out)
{
    if (spec->unanswered || spec->n_classes > 0) {
        return spec->unanswered ? DT_OK
                                : dt_labelled_take(spec, path, owned, i, (int64_t)x[0], out);
    }
    out->crc =
        (uint32_t)crc32(out->crc, (const Bytef *)x, (uInt)((size_t)spec->n_targets * sizeof *x));
    return dt_labelled_numbers(spec, path, owned, i, true, x, out);
}

/* A number that is constant gets the deviation 1, and so becomes 0. */
static void settle(const struct dt_tally *tally, struct dt_normalize *out)
{
    out->of_dataset = false;
    for (out->n = 0; out->n < tally->n; out->n++) {
        const int k = out->n;
        const double m = tally->sum[k] / tally->count,
                     variance = tally->squares[k] / tally->count - m * m;
        out->mean[k] = tally->first[k] + m;
        out->std[k] = variance > 1e-15 * m * m ? sqrt(variance) : 1;
    }
}

void dt_found_take(const struct dt_found *found, struct dt_data_spec *spec)
{
    for (int targets = 0; targets < 2; targets++) {
        if (spec->scale[targets].n == 0) {
            settle(&found->tally[targets], &spec->scale[targets]);
        }
    }
    spec->features = spec->features.n == 0 ? found->features : spec->features;
    spec->classes = spec->classes.n == 0 ? found->classes : spec->classes;
}

enum dt_status dt_labelled_settle(const struct dt_data_spec *spec, enum dt_split split, size_t n,
                                  struct dt_dataset *out)
{
    struct dt_normalize own;
    const bool part = out->found == NULL || spec->held != NULL; /* validation_split.c does it */
    for (int targets = 0; !part && targets < 2; targets++) {
        const struct dt_tally *t = &out->found->tally[targets];
        settle(t, &own);
        const struct dt_normalize *scale =
            spec->scale[targets].n > 0 ? &spec->scale[targets] : &own;
        const size_t per = n_alike(spec, targets), n_all = n * (size_t)t->n * per;
        float *x = targets ? out->answers : out->items;
        if (n_all > 0 && scale == &own && split == DT_SPLIT_TEST) {
            return dt_error(DT_CONFIG,
                            "%s: numbers, but the training set's mean and deviation are not known "
                            "(name a run in place of --weights; or save all arrays as one type)",
                            spec->dir);
        }
        for (size_t j = 0; j < n_all; j++) {
            const size_t k = j / per % (size_t)t->n;
            x[j] = (float)(((double)x[j] + (t->first[k] - scale->mean[k])) / scale->std[k]);
        }
        for (int k = 0; targets && k < own.n; k++) {
            const double ratio = own.std[k] / scale->std[k];
            out->variance += ratio * ratio / own.n;
        }
    }
    return DT_OK;
}

enum dt_status dt_labelled_check(const struct dt_data_spec *spec)
{
    const bool labels = spec->n_classes > 0, table = spec->format == DT_DATA_CSV;
    DT_TRY(labels ? dt_dataset_check_labelled(spec) : DT_OK);
    return !table || (labels ? spec->label[0] != '\0' : spec->target.n == spec->n_targets) ? DT_OK
           : labels ? dt_error(DT_CONFIG, "data.label: name the column of the classes")
                    : dt_error(DT_CONFIG,
                               "data.target: %d columns, the model has %d outputs (let the last "
                               "layer have as many units)",
                               spec->target.n, spec->n_targets);
}
