/* The data format "npy": arrays of NumPy, images (N, H, W), (N, H, W, C) or (N, C, H, W) of
 * unsigned bytes and labels (N,) of any integers: a pair of files for each split, or an archive
 * with the arrays `images` and `labels` for each. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "data/formats/folder.h"
#include "data/formats/labelled.h"
#include "data/formats/npy.h"
#include "data/formats/zip.h"
#include "data/idx.h"

#define LABELS_AT_ONCE ((size_t)1024)
#define NAME_SIZE (DT_PATH_SIZE + 32)

enum part { IMAGES, LABELS };
static const char *const part_names[] = {"images", "labels"};
static const char *const split_names[] = {[DT_SPLIT_TRAIN] = "train", [DT_SPLIT_TEST] = "test"};

/* An array that is open, in a file of its own or in an archive. */
struct array {
    char path[DT_PATH_SIZE], name[NAME_SIZE]; /* for messages: with the member */
    bool in_archive, open;
    union {
        struct dt_source file;
        struct dt_zip_member member;
    } from;
    struct dt_npy npy;
};

static enum dt_status read_bytes(struct array *a, void *bytes, size_t n)
{
    DT_ASSERT(a->open);
    size_t n_got = 0;
    DT_TRY(a->in_archive ? dt_zip_read(&a->from.member, bytes, n, &n_got)
                         : dt_source_read(&a->from.file, bytes, n, &n_got));
    return n_got == n
               ? DT_OK
               : dt_error(DT_BAD_DATA, "%s: ends too early (write or copy it again)", a->name);
}

static void close_array(struct array *a)
{
    if (a->open && a->in_archive) {
        dt_zip_close(&a->from.member);
    } else if (a->open) {
        gzclose(a->from.file.file);
    }
    a->open = false;
}

/* ---- where the arrays are */

static bool has_arrays(const char *dir)
{
    char path[DT_PATH_SIZE];
    const bool has =
        (dt_labelled_find(dir, "train-images.npy", path) == DT_OK && path[0] != '\0') ||
        (dt_labelled_find(dir, "train.npz", path) == DT_OK && path[0] != '\0');
    dt_error_clear();
    return has;
}

static enum dt_status nothing_there(const char *dir, const char *split)
{
    char lacks[96];
    snprintf(lacks, sizeof lacks, "neither %s-images.npy and %s-labels.npy nor %s.npz is there",
             split, split, split);
    return dt_folder_refuse(dir, lacks, has_arrays,
                            "name the folder of the NumPy arrays in data.dir or with --data");
}

/* The file or the archive of a part; both are one too many. */
static enum dt_status find_array(const char *dir, enum dt_split split, enum part part,
                                 struct array *a)
{
    DT_ASSERT(split == DT_SPLIT_TRAIN || split == DT_SPLIT_TEST);
    char name[32], archive[DT_PATH_SIZE];
    bool has_archive;
    snprintf(name, sizeof name, "%s-%s.npy", split_names[split], part_names[part]);
    DT_TRY(dt_labelled_find(dir, name, a->path));
    snprintf(name, sizeof name, "%s.npz", split_names[split]);
    DT_TRY(dt_labelled_path(dir, name, archive));
    DT_TRY(dt_file_exists(archive, &has_archive));
    if (a->path[0] != '\0' && has_archive) {
        return dt_error(DT_BAD_DATA, "%s: which of it and %s is meant? (keep one)", archive,
                        a->path);
    }
    if (a->path[0] == '\0' && !has_archive) {
        return nothing_there(dir, split_names[split]);
    }
    a->in_archive = has_archive;
    if (has_archive) {
        memcpy(a->path, archive, sizeof archive);
    }
    snprintf(a->name, sizeof a->name, has_archive ? "%s: %s" : "%s", a->path, part_names[part]);
    return DT_OK;
}

/* ---- the header */

/* How many bytes there can be in all. */
static size_t most_bytes(const struct array *a)
{
    const struct dt_source *file = &a->from.file;
    return a->in_archive ? a->from.member.n_bytes
                         : (size_t)file->info.st_size * (file->packed ? DT_MAX_DEFLATE_RATIO : 1);
}

static enum dt_status read_header(struct array *a)
{
    uint8_t prefix[DT_NPY_PREFIX_BYTES];
    char text[DT_NPY_MAX_HEADER], dims[DT_NPY_DIMS_SIZE];
    size_t n_prefix, n_header, n_more, n_bytes;
    const size_t n_file = most_bytes(a);
    DT_TRY(read_bytes(a, prefix, sizeof prefix));
    DT_TRY(dt_npy_prefix(a->name, prefix, &n_prefix, &n_header));
    n_more = sizeof prefix - n_prefix; /* bytes of it that are read */
    if (n_header < n_more) {
        return dt_error(DT_BAD_DATA, "%s: no header (write it with numpy.save)", a->name);
    }
    memcpy(text, prefix + n_prefix, n_more);
    DT_TRY(read_bytes(a, text + n_more, n_header - n_more));
    DT_TRY(dt_npy_parse(a->name, text, n_header, &a->npy));
    const bool fits = !__builtin_mul_overflow(a->npy.n_elems, (size_t)a->npy.n_bytes, &n_bytes) &&
                      n_bytes <= n_file;
    return fits ? DT_OK
                : dt_error(DT_BAD_DATA, "%s: %s elements are impossible for its size", a->name,
                           dt_npy_dims(&a->npy, dims));
}

static enum dt_status open_array(const struct dt_data_spec *spec, enum dt_split split,
                                 enum part part, struct array *a)
{
    const struct dt_idx_reader reader = {.alive = &spec->alive};
    DT_TRY(find_array(spec->dir, split, part, a));
    DT_TRY(a->in_archive
               ? dt_zip_open(a->path, part == IMAGES ? "images.npy" : "labels.npy", &a->from.member)
               : dt_source_open(a->path, &reader, &a->from.file));
    a->open = true;
    return read_header(a);
}

/* ---- what the arrays are */

/* Pixels' order within an image. */
enum layout { CHANNELS_FIRST, CHANNELS_LAST };

static bool has_shape(const size_t *dims, int c, int h, int w)
{
    return dims[0] == (size_t)c && dims[1] == (size_t)h && dims[2] == (size_t)w;
}

static enum dt_status check_pixels(const struct array *a)
{
    const struct dt_npy *npy = &a->npy;
    char text[DT_NPY_DIMS_SIZE];
    if (npy->kind != 'u' || npy->n_bytes != 1) {
        return dt_error(DT_BAD_DATA,
                        "%s: elements of type %c%.0d, images are unsigned bytes, 0 to 255 (%s)",
                        a->name, npy->kind, npy->n_bytes, dt_mend_images(npy->kind, npy->n_bytes));
    }
    return npy->n_dims == 3 || npy->n_dims == 4
               ? DT_OK
               : dt_error(DT_BAD_DATA,
                          "%s: %s, images are (N, H, W), (N, H, W, C) or (N, C, H, W) (reshape "
                          "them)",
                          a->name, dt_npy_dims(npy, text));
}

/* Of four dimensions the model's input decides which are the channels; (N, C, H, W) if both ways
 * fit. */
static enum dt_status check_images(const struct dt_data_spec *spec, enum dt_split split,
                                   const struct array *a, enum layout *out)
{
    const struct dt_shape s = spec->shape;
    const size_t *d = a->npy.dims + 1;
    *out = CHANNELS_FIRST;
    if (a->npy.n_dims == 3) {
        return dt_dataset_check_shape(spec, split, a->name, 1, d[0], d[1]);
    }
    *out = !has_shape(d, s.c, s.h, s.w) && has_shape(d, s.h, s.w, s.c) ? CHANNELS_LAST
                                                                       : CHANNELS_FIRST;
    const bool last = *out == CHANNELS_LAST || (d[2] <= 4 && d[0] > 4); /* likely */
    return last ? dt_dataset_check_shape(spec, split, a->name, d[2], d[0], d[1])
                : dt_dataset_check_shape(spec, split, a->name, d[0], d[1], d[2]);
}

/* Texts of the test set get the numbers that those of the training set have. */
static const char *mend_labels(enum dt_split split, const struct dt_npy *npy)
{
    if (strchr("OSU", npy->kind) != NULL) {
        return split == DT_SPLIT_TRAIN
                   ? "save numpy.unique(labels, return_inverse=True)[1]"
                   : "save numpy.searchsorted(numpy.unique(train_labels), labels)";
    }
    return npy->n_dims == 2 && npy->dims[1] > 1
               ? "save labels.argmax(1) if they are one-hot"
               : "save labels.astype(numpy.int64) if they are whole numbers";
}

static enum dt_status check_labels(enum dt_split split, const struct array *images,
                                   const struct array *a)
{
    const struct dt_npy *npy = &a->npy;
    char text[DT_NPY_DIMS_SIZE];
    const bool whole =
        (npy->kind == 'u' || npy->kind == 'i') && npy->n_bytes >= 1 && npy->n_bytes <= 8;
    if (!whole) {
        return dt_error(DT_BAD_DATA, "%s: elements of type %c%.0d, labels are integers (%s)",
                        a->name, npy->kind, npy->n_bytes, mend_labels(split, npy));
    }
    if (npy->n_dims != 1 && !(npy->n_dims == 2 && npy->dims[1] == 1)) {
        return dt_error(DT_BAD_DATA, "%s: %s, labels are (N,), one for each image (%s)", a->name,
                        dt_npy_dims(npy, text), mend_labels(split, npy));
    }
    if (npy->dims[0] != images->npy.dims[0]) {
        return dt_labelled_check_count(images->name, images->npy.dims, images->npy.n_dims, a->name,
                                       npy->dims[0]);
    }
    return npy->dims[0] > 0 && npy->dims[0] <= INT32_MAX
               ? DT_OK
               : dt_error(DT_BAD_DATA, "%s: %zu images, 1 to %d can be trained with", images->name,
                          npy->dims[0], INT32_MAX);
}

/* Both arrays, their headers read and checked. */
struct pair {
    struct array images, labels;
    enum layout layout;
    size_t n_total;
};

static void close_pair(struct pair *p)
{
    close_array(&p->images);
    close_array(&p->labels);
    free(p);
}

static enum dt_status open_both(const struct dt_data_spec *spec, enum dt_split split,
                                struct pair *p)
{
    DT_TRY(open_array(spec, split, IMAGES, &p->images));
    DT_TRY(open_array(spec, split, LABELS, &p->labels));
    DT_TRY(check_pixels(&p->images));
    DT_TRY(check_labels(split, &p->images, &p->labels));
    DT_TRY(check_images(spec, split, &p->images, &p->layout));
    p->n_total = dt_labelled_count(spec, split, p->images.npy.dims[0]);
    DT_ASSERT(p->n_total >= 1 && p->n_total <= p->images.npy.dims[0]);
    DT_ASSERT(p->images.npy.n_elems == p->images.npy.dims[0] * dt_shape_elems(spec->shape));
    return DT_OK;
}

static enum dt_status open_pair(const struct dt_data_spec *spec, enum dt_split split,
                                struct pair **out)
{
    struct pair *p = calloc(1, sizeof *p);
    if (p == NULL) {
        return dt_error(DT_NO_MEMORY, "%s: no memory to read it", spec->dir);
    }
    const enum dt_status s = open_both(spec, split, p);
    if (s != DT_OK) {
        close_pair(p);
        return s;
    }
    *out = p;
    return DT_OK;
}

static enum dt_status npy_count(const struct dt_data_spec *spec, enum dt_split split,
                                size_t *n_total)
{
    struct pair *p = NULL;
    DT_TRY(open_pair(spec, split, &p));
    *n_total = p->n_total;
    close_pair(p);
    return DT_OK;
}

/* ---- the data */

static enum dt_status read_labels(const struct dt_data_spec *spec, struct pair *p,
                                  struct dt_owned owned, struct dt_dataset *out)
{
    DT_ASSERT(p->labels.npy.n_elems == p->labels.npy.dims[0]);
    uint8_t bytes[LABELS_AT_ONCE * 8];
    const size_t n_there = p->labels.npy.dims[0];
    for (size_t i = 0; i < n_there; i += LABELS_AT_ONCE) {
        const size_t left = n_there - i, n = left < LABELS_AT_ONCE ? left : LABELS_AT_ONCE;
        DT_TRY(read_bytes(&p->labels, bytes, n * (size_t)p->labels.npy.n_bytes));
        for (size_t k = 0; k < n && i + k < p->n_total; k++) {
            DT_TRY(dt_labelled_take(spec, p->labels.name, owned, i + k,
                                    dt_npy_integer(&p->labels.npy, bytes, k), out));
        }
    }
    return DT_OK;
}

/* H W C to C H W. */
static void reorder(struct dt_shape s, const uint8_t *from, uint8_t *to)
{
    const size_t n_c = (size_t)s.c, n_hw = (size_t)s.h * (size_t)s.w;
    for (size_t c = 0; c < n_c; c++) {
        for (size_t i = 0; i < n_hw; i++) {
            to[c * n_hw + i] = from[i * n_c + c];
        }
    }
}

/* All of them are read, also other ranks': the CRC of an archive's member is over all. */
static enum dt_status read_images(const struct dt_data_spec *spec, struct pair *p,
                                  struct dt_owned owned, uint8_t *image, struct dt_dataset *out)
{
    const size_t n = p->images.npy.dims[0], n_item = dt_shape_elems(spec->shape);
    for (size_t i = 0; i < n; i++) {
        uint8_t *row = i < p->n_total ? dt_labelled_row(spec, owned, i, out) : NULL;
        const bool direct = row != NULL && p->layout == CHANNELS_FIRST;
        dt_alive_show(&spec->alive);
        DT_TRY(read_bytes(&p->images, direct ? row : image, n_item));
        if (row != NULL && !direct) {
            reorder(spec->shape, image, row);
        }
    }
    return DT_OK;
}

/* The array is the last thing of its file. */
static enum dt_status check_end(struct array *a)
{
    uint8_t past;
    size_t n_past = 0;
    DT_TRY(a->in_archive ? dt_zip_read(&a->from.member, &past, 1, &n_past)
                         : dt_source_read(&a->from.file, &past, 1, &n_past));
    if (n_past > 0) {
        return dt_error(DT_BAD_DATA, "%s: extra bytes after the array", a->name);
    }
    return a->in_archive ? DT_OK
                         : dt_file_check_unchanged(a->from.file.fd, a->path, &a->from.file.info);
}

static enum dt_status read_pair(const struct dt_data_spec *spec, struct pair *p,
                                struct dt_owned owned, struct dt_dataset *out)
{
    uint8_t *image = malloc(dt_shape_elems(spec->shape));
    enum dt_status s = image != NULL ? DT_OK : dt_error(DT_NO_MEMORY, "no memory for an image");
    DT_TRY_GOTO(s, s, done);
    DT_TRY_GOTO(s, dt_labelled_alloc(spec, p->images.name, p->n_total, owned, out), done);
    DT_TRY_GOTO(s, read_labels(spec, p, owned, out), done);
    DT_TRY_GOTO(s, check_end(&p->labels), done);
    DT_TRY_GOTO(s, read_images(spec, p, owned, image, out), done);
    s = check_end(&p->images);
done:
    free(image);
    return s;
}

static enum dt_status npy_load(const struct dt_data_spec *spec, enum dt_split split,
                               struct dt_owned owned, struct dt_dataset *out)
{
    struct pair *p = NULL;
    DT_TRY(open_pair(spec, split, &p));
    const enum dt_status s = read_pair(spec, p, owned, out);
    close_pair(p);
    return s;
}

const struct dt_data_reader dt_npy_data = {
    .check = dt_dataset_check_labelled, .count = npy_count, .load = npy_load};
