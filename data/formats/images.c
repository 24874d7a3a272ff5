/* The data format "images": a folder for each class below train/ and test/, with its images as PNG,
 * JPEG, PPM or PGM. Classes are numbered in the order of their names. A rank decodes its own images
 * alone, once. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/permutation.h"
#include "base/text.h"
#include "data/bad_images.h"
#include "data/formats/folder.h"
#include "data/formats/labelled.h"
#include "data/formats/picture.h"

#define MAX_IMAGES ((size_t)INT32_MAX)
#define MOST_DEPTH 8          /* of folders in a class */
#define STREAM_TEST 0xFFFFFEu /* of the permutation that holds test images out */

/* The images of a split, class by class. */
struct listing {
    char folder[DT_PATH_SIZE]; /* of the split */
    struct dt_names classes, *files;
    double held_out; /* the share that is the test set, if both splits have one folder */
    size_t n_total, n_kept, n_passed; /* images that are there, and that are used; other files */
    struct dt_permutation order;
};

static void close_listing(struct listing *l)
{
    for (size_t c = 0; l->files != NULL && c < l->classes.n; c++) {
        dt_names_close(&l->files[c]);
    }
    free(l->files);
    dt_names_close(&l->classes);
}

/* ---- which folders

 * The first of the split's names that is there; "": none. */
static enum dt_status find_split(const char *dir, enum dt_split split, char path[DT_PATH_SIZE])
{
    static const char *const names[2][9] = {
        [DT_SPLIT_TRAIN] = {"train", "Train", "training", "Training"},
        [DT_SPLIT_TEST] = {"test", "Test", "testing", "Testing", "val", "Val", "valid",
                           "validation"}};
    for (int i = 0; names[split][i] != NULL; i++) {
        DT_TRY(dt_labelled_path(dir, names[split][i], path));
        if (dt_folder_is_there(path)) {
            return DT_OK;
        }
    }
    path[0] = '\0';
    return DT_OK;
}

static bool has_train(const char *dir)
{
    char path[DT_PATH_SIZE];
    return find_split(dir, DT_SPLIT_TRAIN, path) == DT_OK && path[0] != '\0';
}

static enum dt_status refuse_folder(const struct dt_data_spec *spec, enum dt_split split)
{
    struct dt_names folders = {0};
    const bool is_test = split == DT_SPLIT_TEST && has_train(spec->dir);
    if (dt_folder_list(spec->dir, NULL, &folders) != DT_OK) {
        dt_error_clear();
    }
    const bool classes = folders.n == (size_t)spec->n_classes;
    dt_names_close(&folders);
    return is_test ? dt_error(DT_NO_INPUT,
                              "%s: no test/ or val/ beside train/ (hold test images out of it: "
                              "data.test, such as 0.2)",
                              spec->dir)
                   : dt_folder_refuse(spec->dir, "no train/ is there", has_train,
                                      classes ? "if these are the classes, hold test images out of "
                                                "them: data.test, such as 0.2"
                                              : "data.dir has train/CLASS/IMAGE and "
                                                "test/CLASS/IMAGE");
}

/* Finds the folder of the classes, and the folder of the split (l->folder). */
static enum dt_status find_folders(const struct dt_data_spec *spec, enum dt_split split,
                                   struct listing *l, char classes[DT_PATH_SIZE])
{
    char test[DT_PATH_SIZE];
    DT_TRY(find_split(spec->dir, DT_SPLIT_TRAIN, classes));
    DT_TRY(find_split(spec->dir, DT_SPLIT_TEST, test));
    if (classes[0] == '\0' && test[0] == '\0' && spec->test > 0) {
        memcpy(classes, spec->dir, DT_PATH_SIZE);
    }
    if (test[0] != '\0' && spec->test > 0 && split == DT_SPLIT_TRAIN) {
        return dt_error(DT_CONFIG, "data.test: %s has test images already (leave it out)", test);
    }
    const bool shared = test[0] == '\0' && spec->test > 0;
    l->held_out = shared ? spec->test : 0;
    memcpy(l->folder, split == DT_SPLIT_TRAIN || shared ? classes : test, DT_PATH_SIZE);
    if (classes[0] == '\0' && split == DT_SPLIT_TEST) {
        memcpy(classes, test, DT_PATH_SIZE);
    }
    return l->folder[0] != '\0' && classes[0] != '\0' ? DT_OK : refuse_folder(spec, split);
}

/* Takes the classes of train/ for both splits: a test set may lack one, and numbers stay. */
static enum dt_status list_classes(const struct dt_data_spec *spec, enum dt_split split,
                                   struct listing *l)
{
    char path[DT_PATH_SIZE], some[DT_SOME_NAMES_SIZE];
    DT_TRY(find_folders(spec, split, l, path));
    DT_TRY(dt_folder_list(path, NULL, &l->classes));
    if (l->classes.n != (size_t)spec->n_classes) {
        dt_names_some(&l->classes, some);
        if (l->classes.n < 2) {
            return dt_error(DT_BAD_DATA,
                            "%s: a folder for each class is wanted, two or more, but %s (move "
                            "images into such folders)",
                            path, some);
        }
        return dt_error(DT_BAD_DATA,
                        "%s: %zu class folder%s, %s; model has %d classes (let the last layer have "
                        "as many units, or move a folder away that is no class)",
                        path, l->classes.n, l->classes.n == 1 ? "" : "s", some, spec->n_classes);
    }
    struct dt_names there = {0};
    enum dt_status s = dt_folder_list(l->folder, NULL, &there);
    for (size_t i = 0, c = 0; s == DT_OK && i < there.n; i++) { /* both are sorted */
        while (c < l->classes.n && strcmp(l->classes.at[c], there.at[i]) < 0) {
            c++;
        }
        if (c == l->classes.n || strcmp(l->classes.at[c], there.at[i]) != 0) {
            s = dt_error(DT_BAD_DATA, "%s/%s: no class of that name in train/", l->folder,
                         there.at[i]);
        }
    }
    dt_names_close(&there);
    return s;
}

/* ---- which files

 * Files that lie beside images everywhere: by their names, whatever is in them. */
static bool is_passed(const char *name)
{
    static const char *const whole[] = {"thumbs.db", "ehthumbs.db", "desktop.ini",
                                        "readme",    "license",     NULL};
    static const char *const ends[] = {".txt",  ".md",  ".csv", ".json", ".xml",
                                       ".html", ".ini", ".db",  NULL};
    const char *end = strrchr(name, '.');
    for (int i = 0; whole[i] != NULL; i++) {
        if (strcasecmp(name, whole[i]) == 0) {
            return true;
        }
    }
    for (int i = 0; end != NULL && ends[i] != NULL; i++) {
        if (strcasecmp(end, ends[i]) == 0) {
            return true;
        }
    }
    return false;
}

static enum dt_status too_deep(const struct listing *l, size_t c, const char *below)
{
    return dt_error(DT_BAD_DATA,
                    "%s/%s/%.*s: more than %d folders deep, or a path above %d bytes (move its "
                    "images up, or remove a link that leads back)",
                    l->folder, l->classes.at[c], (int)strcspn(below, "/"), below, MOST_DEPTH,
                    DT_PATH_SIZE - 1);
}

/* The images in a folder of class c and in its folders; `below`: "" or its path in the class. */
static enum dt_status list_images(struct listing *l, size_t c, const char *below, int depth)
{
    char path[DT_PATH_SIZE];
    struct dt_names files = {0}, folders = {0};
    if (snprintf(path, sizeof path, "%s/%s/%s", l->folder, l->classes.at[c], below) >=
            DT_PATH_SIZE ||
        depth > MOST_DEPTH) {
        return too_deep(l, c, below);
    }
    enum dt_status s = dt_folder_list(path, &files, &folders);
    for (size_t i = 0; s == DT_OK && i < files.n; i++) {
        const bool passed = is_passed(files.at[i]);
        l->n_passed += passed;
        if (!passed) {
            s = snprintf(path, sizeof path, "%s%s", below, files.at[i]) < DT_PATH_SIZE
                    ? dt_names_add(l->folder, path, &l->files[c])
                    : too_deep(l, c, below);
        }
    }
    for (size_t i = 0; s == DT_OK && i < folders.n; i++) {
        s = snprintf(path, sizeof path, "%s%s/", below, folders.at[i]) < DT_PATH_SIZE
                ? list_images(l, c, path, depth + 1)
                : too_deep(l, c, below);
    }
    dt_names_close(&files);
    dt_names_close(&folders);
    return s;
}

/* Of every class the same share, as whole images, is held out for the test: drawn by the seed. */
static enum dt_status keep_split(const struct dt_data_spec *spec, enum dt_split split,
                                 struct listing *l, size_t c)
{
    struct dt_names *all = &l->files[c], kept = {0};
    if (all->n == 0) {
        return DT_OK;
    }
    const size_t n_held = (size_t)(l->held_out * (double)all->n + 0.5), n_train = all->n - n_held;
    const struct dt_permutation order =
        dt_permutation_make(spec->split_seed, STREAM_TEST, (uint32_t)c, (uint32_t)all->n);
    kept.at = calloc(all->n + 1, sizeof *kept.at);
    for (size_t i = 0; kept.at != NULL && i < all->n; i++) {
        char **name = &all->at[dt_permutation_at(&order, (uint32_t)i)];
        if ((i >= n_train) == (split == DT_SPLIT_TEST)) {
            kept.at[kept.n++] = *name;
            *name = NULL;
        }
    }
    const bool done = kept.at != NULL;
    dt_names_close(all);
    dt_names_sort(&kept);
    *all = kept;
    return done ? DT_OK : dt_error(DT_NO_MEMORY, "%s: no memory for the names in it", l->folder);
}

static enum dt_status list_files(const struct dt_data_spec *spec, enum dt_split split,
                                 struct listing *l)
{
    DT_ASSERT(l->files == NULL);
    char path[DT_PATH_SIZE];
    l->files = calloc(l->classes.n + 1, sizeof *l->files);
    if (l->files == NULL) {
        return dt_error(DT_NO_MEMORY, "%s: no memory for the names in it", l->folder);
    }
    for (size_t c = 0; c < l->classes.n; c++) {
        DT_TRY(dt_labelled_path(l->folder, l->classes.at[c], path));
        DT_TRY(dt_folder_is_there(path) || split == DT_SPLIT_TRAIN ? list_images(l, c, "", 1)
                                                                   : DT_OK);
        dt_names_sort(&l->files[c]);
        DT_TRY(l->held_out > 0 ? keep_split(spec, split, l, c) : DT_OK);
        if (l->files[c].n == 0 && split == DT_SPLIT_TRAIN) {
            return dt_error(DT_BAD_DATA,
                            "%s: no images of this class (put some into it, or move it away)",
                            path);
        }
        l->n_total += l->files[c].n;
    }
    return DT_OK;
}

/* Classes are mixed, so that the first n images are of all of them. */
static enum dt_status find_images(const struct dt_data_spec *spec, enum dt_split split,
                                  struct listing *l)
{
    DT_TRY(list_classes(spec, split, l));
    DT_TRY(list_files(spec, split, l));
    if (l->n_total == 0 || l->n_total > MAX_IMAGES) {
        return dt_error(DT_BAD_DATA, "%s: %zu images, 1 to %zu can be used", l->folder, l->n_total,
                        MAX_IMAGES);
    }
    const size_t n_bad = spec->bad != NULL ? spec->bad->n_skipped[split] : 0;
    l->n_kept = dt_labelled_count(spec, split, l->n_total);
    if (n_bad >= l->n_kept) {
        return dt_error(DT_BAD_DATA, "%s: none of %zu images can be read", l->folder, l->n_kept);
    }
    l->n_kept -= n_bad;
    l->order = dt_permutation_make(0, 0, 0, (uint32_t)l->n_total);
    return DT_OK;
}

static enum dt_status images_count(const struct dt_data_spec *spec, enum dt_split split,
                                   size_t *n_total)
{
    struct listing l = {.n_total = 0};
    const enum dt_status s = find_images(spec, split, &l);
    *n_total = l.n_kept;
    close_listing(&l);
    return s;
}

/* Image i of the data set: its class, and its name within the split's folder. */
static enum dt_status name_image(const struct listing *l, size_t i, int64_t *label,
                                 char path[DT_PATH_SIZE])
{
    size_t at = dt_permutation_at(&l->order, (uint32_t)i), c = 0;
    while (at >= l->files[c].n) {
        DT_ASSERT(c + 1 < l->classes.n);
        at -= l->files[c++].n;
    }
    *label = (int64_t)c;
    return snprintf(path, DT_PATH_SIZE, "%s/%s/%s", l->folder, l->classes.at[c],
                    l->files[c].at[at]) < DT_PATH_SIZE
               ? DT_OK
               : dt_error(DT_BAD_DATA, "%s/%s: a name is too long", l->folder, l->classes.at[c]);
}

/* A split that is read: its bad images go to `bad`. */
struct reading {
    const struct dt_data_spec *spec;
    enum dt_split split;
    struct dt_owned owned;
    struct dt_bad_images *bad;
};

static enum dt_status read_image(const struct reading *r, const struct listing *l, size_t i,
                                 struct dt_dataset *out)
{
    char path[DT_PATH_SIZE];
    int64_t label = 0;
    const struct dt_data_spec *spec = r->spec;
    const size_t id = dt_bad_pass(r->bad, r->split, i);
    uint8_t *row = dt_labelled_row(spec, r->owned, i, out);
    DT_TRY(name_image(l, id, &label, path));
    DT_TRY(dt_labelled_take(spec, path, r->owned, i, label, out));
    if (row == NULL) {
        return DT_OK;
    }
    dt_alive_show(&spec->alive);
    struct dt_picture picture = {.resize = spec->resize, .background = dt_background(spec)};
    const enum dt_status s = dt_picture_read(path, spec->shape, &picture, row);
    out->n_flawed += s == DT_OK && picture.flawed;
    return s == DT_OK || s == DT_NO_MEMORY || s == DT_UNAVAILABLE
               ? s
               : dt_bad_note(r->bad, r->split, id, l->folder, path + strlen(l->folder) + 1);
}

/* Whoever has no list for bad images gets an error of them. */
static enum dt_status read_images(const struct dt_data_spec *spec, enum dt_split split,
                                  const struct listing *l, struct dt_owned owned,
                                  struct dt_dataset *out)
{
    struct dt_bad_images own = {.lines = NULL};
    const struct reading r = {spec, split, owned, spec->bad != NULL ? spec->bad : &own};
    DT_TRY(dt_labelled_alloc(spec, l->folder, l->n_kept, false, owned, out));
    out->n_passed = l->n_passed;
    enum dt_status s = DT_OK;
    for (size_t i = 0; i < l->n_kept && s == DT_OK; i++) {
        s = read_image(&r, l, i, out);
    }
    s = s == DT_OK ? dt_bad_decide(&own, 0) : s;
    dt_bad_close(&own);
    return s;
}

/* A name of a folder has any bytes but "/". */
static enum dt_status join_names(const struct dt_names *classes, char **out)
{
    char name[4 * NAME_MAX + 1];
    size_t n = 0;
    FILE *text = open_memstream(out, &n);
    for (size_t c = 0; text != NULL && c < classes->n; c++) {
        fprintf(text, "%s%s", c > 0 ? "/" : "", dt_text_escape(classes->at[c], name, sizeof name));
    }
    if (!dt_text_close(text, out)) {
        return dt_error(DT_NO_MEMORY, "no memory for the names of %zu classes", classes->n);
    }
    if (n > DT_CLASS_NAMES_MOST) {
        free(*out);
        *out = NULL;
    }
    return DT_OK;
}

static enum dt_status images_load(const struct dt_data_spec *spec, enum dt_split split,
                                  struct dt_owned owned, struct dt_dataset *out)
{
    struct listing l = {.n_total = 0};
    enum dt_status s = find_images(spec, split, &l);
    s = s == DT_OK ? join_names(&l.classes, &out->class_names) : s;
    s = s == DT_OK ? read_images(spec, split, &l, owned, out) : s;
    close_listing(&l);
    return s;
}

static enum dt_status images_check(const struct dt_data_spec *spec)
{
    DT_TRY(dt_dataset_check_labelled(spec));
    return spec->shape.c == 1 || spec->shape.c == 3
               ? DT_OK
               : dt_error(DT_CONFIG,
                          "data.format: images are grey or RGB, model.input has %d channels (set "
                          "it to [1, HEIGHT, WIDTH] or [3, HEIGHT, WIDTH])",
                          spec->shape.c);
}

const struct dt_data_reader dt_images_data = {
    .check = images_check, .count = images_count, .load = images_load};
