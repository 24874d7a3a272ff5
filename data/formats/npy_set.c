/* The data format "npy": arrays of NumPy, images (N, H, W), (N, H, W, C) or (N, C, H, W), or
 * features (N, F), and labels (N,), one-hot (N, classes), or targets (N, outputs): a pair of files
 * for each split, an archive for each, or one for both. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "base/arithmetic.h"
#include "data/formats/labelled.h"
#include "data/formats/npy.h"
#include "data/formats/zip.h"
#include "data/idx.h"

#define NAME_SIZE (DT_PATH_SIZE + 32)
#define N_NAMES 6

enum part { IMAGES, LABELS };
static const char *const split_names[] = {[DT_SPLIT_TRAIN] = "train", [DT_SPLIT_TEST] = "test"};

/* An array that is open, in a file of its own or in an archive. */
struct array {
    char path[DT_PATH_SIZE], name[NAME_SIZE]; /* for messages: with the member */
    char names[N_NAMES][DT_ZIP_NAME_SIZE]; /* of a file or a member; the first only of train.npz */
    bool in_archive, own, open;            /* own: it is train.npz or test.npz */
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

/* train.npz or test.npz (own), or else data.dir itself if it is a file. "": there is none. */
static enum dt_status find_archive(const char *dir, enum dt_split split, bool *own,
                                   char path[DT_PATH_SIZE])
{
    bool is_file = false;
    DT_TRY(dt_labelled_path(dir, split == DT_SPLIT_TRAIN ? "train.npz" : "test.npz", path));
    DT_TRY(dt_file_exists(path, own));
    DT_TRY(*own || dt_folder_is_there(dir) ? DT_OK : dt_file_exists(dir, &is_file));
    if (!*own) {
        snprintf(path, DT_PATH_SIZE, "%s", is_file ? dir : "");
    }
    return DT_OK;
}

static bool has_arrays(const char *dir)
{
    bool own, there;
    char path[DT_PATH_SIZE];
    there = (find_archive(dir, DT_SPLIT_TRAIN, &own, path) == DT_OK && path[0] != '\0') ||
            (dt_labelled_find(dir, "train-images.npy", path) == DT_OK && path[0] != '\0');
    dt_error_clear();
    return there;
}

/* Finds the file or the archive of a part. If both are there, that is an error. */
static enum dt_status find_array(const char *dir, enum dt_split split, enum part part,
                                 struct array *a)
{
    DT_ASSERT(split == DT_SPLIT_TRAIN || split == DT_SPLIT_TEST);
    const char *of = split_names[split], *word = part == IMAGES ? "images" : "labels",
               *letter = part == IMAGES ? "xX" : "yY";
    char archive[DT_PATH_SIZE], lacks[64];
    DT_TRY(find_archive(dir, split, &a->own, archive));
    snprintf(a->names[0], DT_ZIP_NAME_SIZE, "%s.npy", word);
    snprintf(a->names[1], DT_ZIP_NAME_SIZE, "arr_%d.npy",
             (int)part + (a->own ? 0 : 2 * (int)split));
    snprintf(a->names[2], DT_ZIP_NAME_SIZE, "%c_%s.npy", letter[1], of);
    snprintf(a->names[3], DT_ZIP_NAME_SIZE, "%c_%s.npy", letter[0], of);
    snprintf(a->names[4], DT_ZIP_NAME_SIZE, "%s_%s.npy", of, word);
    snprintf(a->names[5], DT_ZIP_NAME_SIZE, "%s-%s.npy", of, word);
    for (int i = N_NAMES - 1; i >= 2 && a->path[0] == '\0'; i--) {
        DT_TRY(dt_labelled_find(dir, a->names[i], a->path));
    }
    if (a->path[0] != '\0' && a->own) {
        return dt_error(DT_BAD_DATA, "%s: which of it and %s is meant? (keep one)", archive,
                        a->path);
    }
    a->in_archive = a->path[0] == '\0';
    snprintf(a->name, sizeof a->name, "%s", a->in_archive ? archive : a->path);
    memcpy(a->path, a->name, DT_PATH_SIZE);
    snprintf(lacks, sizeof lacks, "neither %s nor %s.npz is there", a->names[5], of);
    return a->path[0] != '\0'
               ? DT_OK
               : dt_folder_refuse(dir, lacks, has_arrays,
                                  "name NumPy's archive or folder in data.dir or --data");
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
               ? dt_zip_open(a->path, a->names + !a->own, N_NAMES - !a->own, &a->from.member)
               : dt_source_open(a->path, &reader, &a->from.file));
    a->open = true;
    if (a->in_archive) {
        snprintf(a->name, sizeof a->name, "%s: %.*s", a->path, (int)strlen(a->from.member.name) - 4,
                 a->from.member.name);
    }
    return read_header(a);
}

/* ---- what the arrays are */

/* Both arrays, their headers read and checked. */
struct pair {
    struct array images, labels;
    bool last;        /* (N, H, W, C) */
    bool pixels;      /* unsigned bytes as images; all else is numbers */
    size_t n_answers; /* numbers of a label or of targets */
    size_t n_total;
};

/* The cure for labels of text gives the test set the numbers of the training set. */
static enum dt_status check_type(enum dt_split split, enum part part, const struct array *a)
{
    const char kind = a->npy.kind;
    const bool text = strchr("OSU", kind) != NULL;
    const char *cure =
        !text ? part == IMAGES ? "images.astype(numpy.float32)" : "labels.astype(numpy.float32)"
        : part == IMAGES          ? kind == 'O' ? "numpy.stack(images)" : "numbers"
        : split == DT_SPLIT_TRAIN ? "numpy.unique(labels, return_inverse=True)[1]"
                                  : "numpy.searchsorted(numpy.unique(train_labels), "
                                    "labels)";
    return dt_npy_is_number(&a->npy)
               ? DT_OK
               : dt_error(DT_BAD_DATA,
                          "%s: elements of type %c%.0d, which are no numbers (save %s)", a->name,
                          kind, a->npy.n_bytes, cure);
}

static bool has_shape(const size_t *dims, int c, int h, int w)
{
    return dims[0] == (size_t)c && dims[1] == (size_t)h && dims[2] == (size_t)w;
}

/* With four dimensions, model.input decides which one is the channels; (N, C, H, W) if both ways
 * fit. */
static enum dt_status check_images(const struct dt_data_spec *spec, enum dt_split split,
                                   struct pair *p)
{
    const struct dt_shape s = spec->shape;
    const struct array *a = &p->images;
    const size_t *d = a->npy.dims + 1;
    const int n = a->npy.n_dims;
    const bool features = s.h * s.w == 1;
    char text[DT_NPY_DIMS_SIZE];
    p->pixels = !features && a->npy.kind == 'u' && a->npy.n_bytes == 1;
    if ((n == 2 && d[0] == dt_shape_elems(s)) || (n == 1 && dt_shape_elems(s) == 1)) {
        return DT_OK; /* features, or images flattened from C H W */
    }
    if (n != 3 && n != 4) {
        return dt_error(DT_BAD_DATA, "%s: %s, expected %s (reshape them, or model.input)", a->name,
                        dt_npy_dims(&a->npy, text),
                        features ? "features (N, F) for model.input of [F]"
                                 : "images (N, H, W), (N, H, W, C) or (N, C, H, W)");
    }
    p->last = n == 4 && !has_shape(d, s.c, s.h, s.w) && has_shape(d, s.h, s.w, s.c);
    const bool last = p->last || (n == 4 && d[2] <= 4 && d[0] > 4); /* likely */
    return n == 3 ? dt_dataset_check_shape(spec, split, a->name, 1, d[0], d[1])
           : last ? dt_dataset_check_shape(spec, split, a->name, d[2], d[0], d[1])
                  : dt_dataset_check_shape(spec, split, a->name, d[0], d[1], d[2]);
}

static enum dt_status check_labels(const struct dt_data_spec *spec, struct pair *p)
{
    const struct array *images = &p->images, *a = &p->labels;
    const struct dt_npy *npy = &a->npy;
    const bool classes = spec->n_classes > 0;
    const size_t n_wanted = (size_t)(classes ? spec->n_classes : spec->n_targets);
    char text[DT_NPY_DIMS_SIZE];
    p->n_answers = npy->n_dims == 2 ? npy->dims[1] : 1;
    if (npy->n_dims < 1 || npy->n_dims > 2 ||
        (p->n_answers != n_wanted && !(classes && p->n_answers == 1))) {
        return dt_error(DT_BAD_DATA, "%s: %s, expected %s(N, %zu)", a->name, dt_npy_dims(npy, text),
                        classes ? "labels (N,), or one-hot " : "targets ", n_wanted);
    }
    DT_TRY(dt_labelled_check_count(images->name, images->npy.dims, images->npy.n_dims, a->name,
                                   npy->dims[0]));
    return npy->dims[0] > 0 && npy->dims[0] <= INT32_MAX
               ? DT_OK
               : dt_error(DT_BAD_DATA, "%s: %zu images, 1 to %d can be trained with", images->name,
                          npy->dims[0], INT32_MAX);
}

static enum dt_status open_pair(const struct dt_data_spec *spec, enum dt_split split,
                                struct pair *p)
{
    DT_TRY(open_array(spec, split, IMAGES, &p->images));
    DT_TRY(open_array(spec, split, LABELS, &p->labels));
    DT_TRY(check_type(split, IMAGES, &p->images));
    DT_TRY(check_type(split, LABELS, &p->labels));
    DT_TRY(check_labels(spec, p));
    DT_TRY(check_images(spec, split, p));
    p->n_total = dt_labelled_count(spec, split, p->images.npy.dims[0]);
    DT_ASSERT(p->n_total >= 1 && p->n_total <= p->images.npy.dims[0]);
    DT_ASSERT(p->images.npy.n_elems == p->images.npy.dims[0] * dt_shape_elems(spec->shape));
    return DT_OK;
}

static enum dt_status npy_count(const struct dt_data_spec *spec, enum dt_split split,
                                size_t *n_total)
{
    struct pair p = {.n_total = 0};
    const enum dt_status s = open_pair(spec, split, &p);
    *n_total = p.n_total;
    close_array(&p.images);
    close_array(&p.labels);
    return s;
}

/* ---- the data */

/* Reads the next n numbers, and moves their n_c channels from the last dimension to the first.
 * `numbers` has room for 2 n. */
static enum dt_status read_numbers(struct array *a, size_t n, size_t n_c, double *numbers)
{
    uint8_t *raw = (uint8_t *)(numbers + n);
    DT_TRY(read_bytes(a, raw, n * (size_t)a->npy.n_bytes));
    for (size_t j = 0; j < n; j++) {
        numbers[j % n_c * (n / n_c) + j / n_c] = dt_npy_number(&a->npy, raw, j);
    }
    return DT_OK;
}

/* Takes a class, which is a number or one-hot, or targets. */
static enum dt_status take_answer(const struct dt_data_spec *spec, const struct pair *p,
                                  struct dt_owned owned, size_t i, const double *x,
                                  struct dt_dataset *out)
{
    double label = x[0], sum = 0;
    const bool one_hot = spec->n_classes > 0 && p->n_answers > 1;
    for (size_t k = 0; one_hot && k < p->n_answers; k++) {
        sum += fabs(x[k]);
        label = x[k] == 1 ? (double)k : label;
    }
    if (spec->n_classes > 0 && (!(fabs(label) < 1e15) || label != floor(label) ||
                                (one_hot && (sum != 1 || x[(size_t)label] != 1)))) {
        return dt_error(DT_BAD_DATA, "%s: label %g at index %zu is no class%s", p->labels.name,
                        label, i, one_hot ? ", or not one-hot" : "");
    }
    return dt_labelled_answer(spec, p->labels.name, owned, i, one_hot ? &label : x, out);
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

static enum dt_status take_image(const struct dt_data_spec *spec, struct pair *p,
                                 struct dt_owned owned, size_t i, double *room,
                                 struct dt_dataset *out)
{
    const size_t n = dt_shape_elems(spec->shape);
    if (!p->pixels) {
        DT_TRY(read_numbers(&p->images, n, p->last ? (size_t)spec->shape.c : 1, room));
        return i < p->n_total
                   ? dt_labelled_numbers(spec, p->images.name, owned, i, false, room, out)
                   : DT_OK;
    }
    uint8_t *row = i < p->n_total ? dt_labelled_row(spec, owned, i, out) : NULL;
    const bool direct = row != NULL && !p->last;
    DT_TRY(read_bytes(&p->images, direct ? row : (uint8_t *)room, n));
    if (row != NULL && !direct) {
        reorder(spec->shape, (uint8_t *)room, row);
    }
    return DT_OK;
}

/* Checks that nothing follows the array. */
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

/* Every rank reads all samples: an archive's CRC covers them all. */
static enum dt_status read_pair(const struct dt_data_spec *spec, enum dt_split split,
                                struct pair *p, struct dt_owned owned, double *room,
                                struct dt_dataset *out)
{
    const size_t n = p->images.npy.dims[0];
    DT_TRY(room != NULL ? DT_OK : dt_error(DT_NO_MEMORY, "no memory for an image"));
    DT_TRY(dt_labelled_alloc(spec, p->images.name, p->n_total, !p->pixels, owned, out));
    for (size_t i = 0; i < n; i++) {
        DT_TRY(read_numbers(&p->labels, p->n_answers, 1, room));
        DT_TRY(i < p->n_total ? take_answer(spec, p, owned, i, room, out) : DT_OK);
    }
    DT_TRY(check_end(&p->labels));
    for (size_t i = 0; i < n; i++) {
        dt_alive_show(&spec->alive);
        DT_TRY(take_image(spec, p, owned, i, room, out));
    }
    DT_TRY(check_end(&p->images));
    return dt_labelled_settle(spec, split, owned.n, out);
}

static enum dt_status npy_load(const struct dt_data_spec *spec, enum dt_split split,
                               struct dt_owned owned, struct dt_dataset *out)
{
    struct pair p = {.n_total = 0};
    enum dt_status s = open_pair(spec, split, &p);
    if (s == DT_OK) {
        double *room =
            malloc(2 * sizeof *room * dt_max_size(dt_shape_elems(spec->shape), p.n_answers));
        s = read_pair(spec, split, &p, owned, room, out);
        free(room);
    }
    close_array(&p.images);
    close_array(&p.labels);
    return s;
}

const struct dt_data_reader dt_npy_data = {
    .check = dt_labelled_check, .count = npy_count, .load = npy_load};
