/* The data format "idx": the four files of a folder. */
#include <stdio.h>
#include <stdlib.h>

#include "data/dataset.h"
#include "data/formats/labelled.h"
#include "data/idx.h"

#define MOST_COLOURS ((size_t)4) /* a last dimension up to this is likely the channels */

/* As published; as in the archives of some, which unpack to a dot; and as Kaggle packs them, each
 * in a folder of its own. */
static const char *const idx_names[2][2][3] = {
    [DT_SPLIT_TRAIN] = {{"train-labels-idx1-ubyte", "train-labels.idx1-ubyte",
                         "train-labels-idx1-ubyte/train-labels-idx1-ubyte"},
                        {"train-images-idx3-ubyte", "train-images.idx3-ubyte",
                         "train-images-idx3-ubyte/train-images-idx3-ubyte"}},
    [DT_SPLIT_TEST] = {{"t10k-labels-idx1-ubyte", "t10k-labels.idx1-ubyte",
                        "t10k-labels-idx1-ubyte/t10k-labels-idx1-ubyte"},
                       {"t10k-images-idx3-ubyte", "t10k-images.idx3-ubyte",
                        "t10k-images-idx3-ubyte/t10k-images-idx3-ubyte"}},
};

/* The first that is there, of each name raw first, then .gz; path "": none. */
static enum dt_status try_names(const char *dir, const char *const names[3],
                                char path[DT_PATH_SIZE])
{
    for (int i = 0; i < 6; i++) {
        bool exists;
        if (snprintf(path, DT_PATH_SIZE, "%s/%s%s", dir, names[i / 2], i % 2 ? ".gz" : "") >=
            DT_PATH_SIZE) {
            return dt_error(DT_CONFIG, "data.dir: the path is longer than %d bytes",
                            DT_PATH_SIZE - 1);
        }
        DT_TRY(dt_file_exists(path, &exists));
        if (exists && !dt_folder_is_there(path)) {
            return DT_OK;
        }
    }
    path[0] = '\0';
    return DT_OK;
}

static bool has_idx(const char *dir)
{
    char path[DT_PATH_SIZE];
    const enum dt_status s = try_names(dir, idx_names[DT_SPLIT_TRAIN][1], path);
    dt_error_clear();
    return s == DT_OK && path[0] != '\0';
}

/* The path of one of the four files. */
static enum dt_status find_file(const char *dir, enum dt_split split, int images,
                                char path[DT_PATH_SIZE])
{
    DT_ASSERT(split == DT_SPLIT_TRAIN || split == DT_SPLIT_TEST);
    const char *const *names = idx_names[split][images != 0];
    char lacks[96];
    bool exists;
    DT_TRY(try_names(dir, names, path));
    if (path[0] != '\0') {
        return DT_OK;
    }
    DT_TRY(dt_file_exists(dir, &exists));
    snprintf(lacks, sizeof lacks, "neither %s nor %s.gz is there", names[0], names[0]);
    return dt_folder_refuse(dir, lacks, has_idx,
                            exists ? "name the folder with the four IDX files in data.dir or --data"
                                   : "scripts/get-data fetches MNIST; or name the folder with the "
                                     "four IDX files: --data DIR");
}

struct idx_paths {
    char images[DT_PATH_SIZE], labels[DT_PATH_SIZE];
};

/* The test images have to be as the training images: model.input is not what to change. */
enum dt_status dt_dataset_check_shape(const struct dt_data_spec *spec, enum dt_split split,
                                      const char *path, size_t c, size_t h, size_t w)
{
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
    if (c > MOST_COLOURS && w <= MOST_COLOURS) {
        return dt_error(DT_BAD_DATA,
                        "%s: images are %zux%zux%zu, channels come first (save "
                        "images.transpose(0, 3, 1, 2))",
                        path, c, h, w);
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
static enum dt_status count(const struct dt_data_spec *spec, enum dt_split split,
                            struct idx_paths *paths, size_t *n_total)
{
    const struct dt_idx_reader reader = reader_of(spec);
    struct dt_idx images, labels;
    DT_TRY(find_file(spec->dir, split, 1, paths->images));
    DT_TRY(find_file(spec->dir, split, 0, paths->labels));
    DT_TRY(dt_idx_peek(paths->images, 3, &reader, &images));
    DT_TRY(dt_idx_peek(paths->labels, 1, &reader, &labels));
    DT_TRY(dt_labelled_check_count(paths->images, images.dims, images.n_dims, paths->labels,
                                   labels.dims[0]));
    DT_TRY(dt_dataset_check_shape(spec, split, paths->images,
                                  images.n_dims == 4 ? images.dims[1] : 1,
                                  images.dims[images.n_dims - 2], images.dims[images.n_dims - 1]));
    *n_total = dt_labelled_count(spec, split, images.dims[0]);
    DT_ASSERT(*n_total >= 1 && *n_total <= images.dims[0]);
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
    enum dt_status s =
        all.n_rows == n_total ? DT_OK : dt_error(DT_BAD_DATA, "%s: changed during the run", path);
    for (size_t i = 0; s == DT_OK && i < n_total; i++) {
        s = dt_labelled_take(spec, path, owned, i, all.data[i], out);
    }
    dt_idx_close(&all);
    return s;
}

static enum dt_status idx_load(const struct dt_data_spec *spec, enum dt_split split,
                               struct dt_owned owned, struct dt_dataset *out)
{
    const struct dt_idx_reader reader = reader_of(spec);
    struct idx_paths paths;
    struct dt_idx images;
    size_t n_total = 0;
    DT_TRY(count(spec, split, &paths, &n_total));
    out->samples.n_total = n_total;
    out->answers = calloc(owned.n + 1, sizeof(uint16_t));
    DT_TRY(out->answers != NULL ? DT_OK
                                : dt_error(DT_NO_MEMORY, "no memory for %zu labels", owned.n));
    DT_TRY(load_labels(spec, paths.labels, n_total, owned, out));
    DT_TRY(dt_idx_open(paths.images, 3, n_total, owned.first, owned.stride, &reader, &images));
    out->items = images.data;
    if (images.n_rows != owned.n || images.n_item_bytes != dt_shape_elems(spec->shape)) {
        return dt_error(DT_BAD_DATA, "%s: changed during the run", paths.images);
    }
    return DT_OK;
}

static enum dt_status idx_count(const struct dt_data_spec *spec, enum dt_split split,
                                size_t *n_total)
{
    struct idx_paths paths;
    return count(spec, split, &paths, n_total);
}

const struct dt_data_reader dt_idx_data = {
    .check = dt_dataset_check_labelled, .count = idx_count, .load = idx_load};
