#include "data/dataset.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "base/memory.h"

static const char *split_name(enum dt_split split)
{
    return split == DT_SPLIT_TRAIN ? "train" : "test";
}

/* ---- IDX files ---- */

static const char *const idx_names[2][2] = {
    [DT_SPLIT_TRAIN] = {"train-labels-idx1-ubyte", "train-images-idx3-ubyte"},
    [DT_SPLIT_TEST] = {"t10k-labels-idx1-ubyte", "t10k-images-idx3-ubyte"},
};

enum dt_status dt_dataset_find_file(const char *dir, enum dt_split split, int images,
                                    char path[DT_PATH_SIZE])
{
    const char *name = idx_names[split][images != 0];
    bool exists;
    for (int gz = 0; gz < 2; gz++) {
        if (snprintf(path, DT_PATH_SIZE, "%s/%s%s", dir, name, gz ? ".gz" : "") >= DT_PATH_SIZE) {
            return dt_error(DT_CONFIG, "data.dir: the path is longer than %d bytes",
                            DT_PATH_SIZE - 1);
        }
        DT_TRY(dt_file_exists(path, &exists));
        if (exists) {
            return DT_OK;
        }
    }
    DT_TRY(dt_file_exists(dir, &exists));
    if (!exists) {
        return dt_error(DT_NO_INPUT,
                        "%s: no such folder (name the folder with the four IDX files in data.dir "
                        "or with --data)",
                        dir);
    }
    return dt_error(DT_NO_INPUT,
                    "%s: neither %s nor %s.gz is there (name the folder with the four IDX files in "
                    "data.dir or --data)",
                    dir, name, name);
}

struct idx_paths {
    char images[DT_PATH_SIZE], labels[DT_PATH_SIZE];
};

static size_t limit_of(const struct dt_data_spec *spec, enum dt_split split)
{
    return split == DT_SPLIT_TRAIN ? spec->n_train : spec->n_test;
}

/* The test images have to be as the training images: model.input is not what to change. */
static enum dt_status check_image_shape(const struct dt_data_spec *spec, enum dt_split split,
                                        const char *path, const struct dt_idx *images)
{
    const bool has_channels = images->n_dims == 4;
    const size_t c = has_channels ? images->dims[1] : 1;
    const size_t h = images->dims[images->n_dims - 2], w = images->dims[images->n_dims - 1];
    const struct dt_shape want = spec->shape;
    if (c == (size_t)want.c && h == (size_t)want.h && w == (size_t)want.w) {
        return DT_OK;
    }
    if (split == DT_SPLIT_TEST) {
        return dt_error(DT_BAD_DATA,
                        "%s: test images are %zux%zux%zu, the model is trained on %dx%dx%d (test "
                        "with images of that size)",
                        path, c, h, w, want.c, want.h, want.w);
    }
    return dt_error(
        DT_BAD_DATA,
        "%s: images are %zux%zux%zu, model.input is %dx%dx%d (set model.input to [%zu, %zu, %zu])",
        path, c, h, w, want.c, want.h, want.w, c, h, w);
}

static struct dt_idx_reader reader_of(const struct dt_data_spec *spec)
{
    return (struct dt_idx_reader){.refuse = spec->refuse, .alive = &spec->alive};
}

/* From the headers of both files. */
static enum dt_status count_idx(const struct dt_data_spec *spec, enum dt_split split,
                                struct idx_paths *paths, size_t *n_total)
{
    const struct dt_idx_reader reader = reader_of(spec);
    struct dt_idx images, labels;
    DT_TRY(dt_dataset_find_file(spec->dir, split, 1, paths->images));
    DT_TRY(dt_dataset_find_file(spec->dir, split, 0, paths->labels));
    DT_TRY(dt_idx_peek(paths->images, 3, &reader, &images));
    DT_TRY(dt_idx_peek(paths->labels, 1, &reader, &labels));
    DT_TRY(check_image_shape(spec, split, paths->images, &images));
    if (images.dims[0] != labels.dims[0]) {
        return dt_error(DT_BAD_DATA,
                        "%s: %zu images but %zu labels in %s (do the files belong together?)",
                        paths->images, images.dims[0], labels.dims[0], paths->labels);
    }
    const size_t limit = limit_of(spec, split);
    *n_total = limit > 0 && limit < images.dims[0] ? limit : images.dims[0];
    return DT_OK;
}

static enum dt_status keep_labels(const struct dt_data_spec *spec, const char *path,
                                  const struct dt_idx *all, size_t n_total, struct dt_owned owned,
                                  struct dt_dataset *out)
{
    if (all->n_rows != n_total ||
        (owned.n > 0 && owned.first + (owned.n - 1) * owned.stride >= n_total)) {
        return dt_error(DT_BAD_DATA, "%s: changed during the run", path);
    }
    for (size_t i = 0; i < all->n_rows; i++) {
        if (all->data[i] >= spec->n_classes) {
            return dt_error(DT_BAD_DATA, "%s: label %d at index %zu, model has %d classes (0..%d)",
                            path, all->data[i], i, spec->n_classes, spec->n_classes - 1);
        }
    }
    uint16_t *labels = malloc((owned.n + 1) * sizeof *labels);
    if (labels == NULL) {
        return dt_error(DT_NO_MEMORY, "no memory for %zu labels", owned.n);
    }
    for (size_t i = 0; i < owned.n; i++) {
        labels[i] = all->data[owned.first + i * owned.stride];
    }
    out->answers = labels;
    out->crc = (uint32_t)crc32(0, all->data, (uInt)all->n_rows);
    return DT_OK;
}

/* All labels are read and checked on every rank: they are small, and so all ranks find the same
 * fault. */
static enum dt_status load_labels(const struct dt_data_spec *spec, const char *path, size_t n_total,
                                  struct dt_owned owned, struct dt_dataset *out)
{
    const struct dt_idx_reader reader = reader_of(spec);
    struct dt_idx all;
    DT_TRY(dt_idx_open(path, 1, n_total, 0, 1, &reader, &all));
    const enum dt_status status = keep_labels(spec, path, &all, n_total, owned, out);
    dt_idx_close(&all);
    return status;
}

static enum dt_status load_idx(const struct dt_data_spec *spec, enum dt_split split,
                               struct dt_owned owned, struct dt_dataset *out)
{
    const struct dt_idx_reader reader = reader_of(spec);
    struct idx_paths paths;
    struct dt_idx images;
    size_t n_total = 0;
    DT_TRY(count_idx(spec, split, &paths, &n_total));
    DT_TRY(load_labels(spec, paths.labels, n_total, owned, out));
    DT_TRY(dt_idx_open(paths.images, 3, n_total, owned.first, owned.stride, &reader, &images));
    out->items = images.data;
    DT_TRY(check_image_shape(spec, split, paths.images, &images));
    if (images.n_rows != owned.n) {
        return dt_error(DT_BAD_DATA, "%s: changed during the run", paths.images);
    }
    out->samples.n_total = n_total;
    return DT_OK;
}

/* ---- generated ---- */

static enum dt_status load_generated(const struct dt_data_spec *spec, enum dt_split split,
                                     struct dt_owned owned, struct dt_dataset *out)
{
    const bool images = spec->format == DT_DATA_SYNTHETIC;
    const size_t n_item_bytes = images ? dt_shape_elems(spec->shape) : sizeof(float);
    const size_t n_answer_bytes = images ? sizeof(uint16_t) : sizeof(float);
    out->items = dt_memory_alloc(owned.n * n_item_bytes + 1);
    out->answers = malloc(owned.n * n_answer_bytes + 1);
    if (out->items == NULL || out->answers == NULL) {
        return dt_error(DT_NO_MEMORY,
                        "no memory for %zu generated samples of %zu bytes (lower data.%s_samples)",
                        owned.n, n_item_bytes, split_name(split));
    }
    if (images) {
        dt_synthetic_images(spec, split, owned, out->items, out->answers);
    } else {
        dt_synthetic_line(spec, split, owned, out->items, out->answers);
    }
    char recipe[256];
    const int n = snprintf(
        recipe, sizeof recipe, "%d %d %zu %llu %a %a %a %d %d %d %d", (int)spec->format, (int)split,
        limit_of(spec, split), (unsigned long long)spec->seed, spec->slope, spec->intercept,
        spec->noise, spec->shape.c, spec->shape.h, spec->shape.w, spec->n_classes);
    out->crc = (uint32_t)crc32(0, (const Bytef *)recipe, (uInt)n);
    out->samples.n_total = limit_of(spec, split);
    return DT_OK;
}

static enum dt_status count_generated(const struct dt_data_spec *spec, enum dt_split split,
                                      size_t *n_total)
{
    *n_total = limit_of(spec, split);
    if (*n_total == 0 || *n_total > INT32_MAX) {
        return dt_error(DT_CONFIG, "data.%s_samples: generated data need 1..%d samples, got %zu",
                        split_name(split), INT32_MAX, *n_total);
    }
    return DT_OK;
}

/* ---- the interface ---- */

static enum dt_status check_spec(const struct dt_data_spec *spec)
{
    const bool line = spec->format == DT_DATA_LINEAR;
    if (!line && spec->n_classes < 2) {
        return dt_error(DT_CONFIG,
                        "data.format: labelled images need a model with 2 or more classes "
                        "(use the loss softmax_cross_entropy, or the data format linear)");
    }
    if (line &&
        (spec->n_classes != 0 || spec->n_targets != 1 || dt_shape_elems(spec->shape) != 1)) {
        return dt_error(DT_CONFIG, "data.format: linear is one number in and one out (set "
                                   "model.input to [1], the last layer to "
                                   "1 unit and the loss to mean_squared_error)");
    }
    return DT_OK;
}

enum dt_status dt_dataset_count(const struct dt_data_spec *spec, enum dt_split split,
                                size_t *n_total)
{
    struct idx_paths paths;
    DT_TRY(check_spec(spec));
    return spec->format == DT_DATA_IDX ? count_idx(spec, split, &paths, n_total)
                                       : count_generated(spec, split, n_total);
}

static void describe(const struct dt_data_spec *spec, struct dt_owned owned,
                     struct dt_dataset *dataset)
{
    struct dt_samples *samples = &dataset->samples;
    samples->n = owned.n;
    samples->shape = spec->shape;
    samples->first_id = owned.first;
    samples->id_stride = owned.stride;
    if (spec->format == DT_DATA_LINEAR) {
        samples->values = dataset->items;
        samples->scale = 1.0f;
        samples->targets = dataset->answers;
        samples->n_targets = 1;
    } else {
        samples->pixels = dataset->items;
        samples->scale = 1.0f / 255.0f;
        samples->labels = dataset->answers;
        samples->n_classes = spec->n_classes;
    }
}

enum dt_status dt_dataset_open(const struct dt_data_spec *spec, enum dt_split split,
                               struct dt_owned owned, struct dt_dataset *out)
{
    *out = (struct dt_dataset){0};
    DT_TRY(check_spec(spec));
    const enum dt_status status = spec->format == DT_DATA_IDX
                                      ? load_idx(spec, split, owned, out)
                                      : load_generated(spec, split, owned, out);
    if (status != DT_OK) {
        dt_dataset_close(out);
        return status;
    }
    describe(spec, owned, out);
    return DT_OK;
}

void dt_dataset_close(struct dt_dataset *dataset)
{
    free(dataset->items);
    free(dataset->answers);
    *dataset = (struct dt_dataset){0};
}
