/* The data format "images": a folder for each class below train/ and test/, with its images as PNG,
 * JPEG, PPM or PGM of model.input's size. Classes are numbered in the order of their names. A rank
 * decodes its own images alone, once. */
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/permutation.h"
#include "base/text.h"
#include "data/formats/labelled.h"
#include "data/formats/picture.h"

#define MOST_BAD 10
#define BAD_TEXT_SIZE 280
#define CURE_SIZE 160
#define MAX_IMAGES ((size_t)INT32_MAX)

/* Names, sorted. */
struct names {
    char **at;
    size_t n;
};

static void close_names(struct names *names)
{
    for (size_t i = 0; i < names->n; i++) {
        free(names->at[i]);
    }
    free(names->at);
    *names = (struct names){0};
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static enum dt_status no_memory(const char *path)
{
    return dt_error(DT_NO_MEMORY, "%s: no memory for the names in it", path);
}

static enum dt_status add_name(const char *path, const char *name, size_t *room, struct names *out)
{
    if (out->n == *room) {
        *room = 2 * *room + 64;
        char **grown = realloc(out->at, *room * sizeof *grown);
        if (grown == NULL) {
            return no_memory(path);
        }
        out->at = grown;
    }
    out->at[out->n] = strdup(name);
    return out->at[out->n++] != NULL ? DT_OK : no_memory(path);
}

/* What is in a folder but for hidden files, whose names begin with a dot. The caller closes the
 * names, also after a failure. */
static enum dt_status list_folder(const char *path, struct names *out)
{
    size_t room = 0;
    DIR *folder = opendir(path);
    *out = (struct names){0};
    if (folder == NULL) {
        return errno == ENOENT || errno == ENOTDIR
                   ? dt_error(DT_NO_INPUT,
                              "%s: no such folder (data.dir has train/CLASS/IMAGE and "
                              "test/CLASS/IMAGE)",
                              path)
                   : dt_error_errno(errno == EACCES ? DT_NO_PERMISSION : DT_IO, "%s", path);
    }
    enum dt_status s = DT_OK;
    for (const struct dirent *entry; s == DT_OK && (entry = readdir(folder)) != NULL;) {
        s = entry->d_name[0] != '.' ? add_name(path, entry->d_name, &room, out) : DT_OK;
    }
    closedir(folder);
    if (s == DT_OK && out->n > 1) {
        qsort(out->at, out->n, sizeof *out->at, by_name);
    }
    return s;
}

/* The folders in it: a file beside them is no class. */
static enum dt_status list_folders(const char *path, struct names *out)
{
    DT_TRY(list_folder(path, out));
    const size_t n_there = out->n;
    out->n = 0;
    for (size_t i = 0; i < n_there; i++) {
        char below[DT_PATH_SIZE];
        struct stat info;
        const int n = snprintf(below, sizeof below, "%s/%s", path, out->at[i]);
        if (n < DT_PATH_SIZE && stat(below, &info) == 0 && S_ISDIR(info.st_mode)) {
            out->at[out->n++] = out->at[i];
        } else {
            free(out->at[i]);
        }
    }
    return DT_OK;
}

/* The images of a split, class by class. */
struct listing {
    char folder[DT_PATH_SIZE]; /* of the split */
    struct names classes, *files;
    size_t n_total, n_kept; /* images that are there, and that are used */
    struct dt_permutation order;
};

static void close_listing(struct listing *l)
{
    for (size_t c = 0; l->files != NULL && c < l->classes.n; c++) {
        close_names(&l->files[c]);
    }
    free(l->files);
    close_names(&l->classes);
}

/* The classes are those of train/, so that a test set without some of them keeps their numbers. */
static enum dt_status list_classes(const struct dt_data_spec *spec, enum dt_split split,
                                   struct listing *l)
{
    char path[DT_PATH_SIZE];
    DT_TRY(dt_labelled_path(spec->dir, "train", path));
    DT_TRY(list_folders(path, &l->classes));
    if (l->classes.n != (size_t)spec->n_classes) {
        return dt_error(DT_BAD_DATA,
                        "%s: %zu class folder%s, %s first, model has %d classes (let the last "
                        "layer have as many units, or move a folder away that is no class)",
                        path, l->classes.n, l->classes.n == 1 ? "" : "s",
                        l->classes.n > 0 ? l->classes.at[0] : "none", spec->n_classes);
    }
    DT_TRY(dt_labelled_path(spec->dir, split == DT_SPLIT_TRAIN ? "train" : "test", l->folder));
    struct names there;
    enum dt_status s = list_folders(l->folder, &there);
    for (size_t i = 0; s == DT_OK && i < there.n; i++) {
        if (bsearch(&there.at[i], l->classes.at, l->classes.n, sizeof *there.at, by_name) == NULL) {
            s = dt_error(DT_BAD_DATA, "%s/%s: no class of that name in train/", l->folder,
                         there.at[i]);
        }
    }
    close_names(&there);
    return s;
}

static enum dt_status list_files(enum dt_split split, struct listing *l)
{
    DT_ASSERT(l->files == NULL);
    char path[DT_PATH_SIZE];
    bool exists;
    l->files = calloc(l->classes.n + 1, sizeof *l->files);
    if (l->files == NULL) {
        return no_memory(l->folder);
    }
    for (size_t c = 0; c < l->classes.n; c++) {
        DT_TRY(dt_labelled_path(l->folder, l->classes.at[c], path));
        DT_TRY(dt_file_exists(path, &exists));
        DT_TRY(exists || split == DT_SPLIT_TRAIN ? list_folder(path, &l->files[c]) : DT_OK);
        if (l->files[c].n == 0 && split == DT_SPLIT_TRAIN) {
            return dt_error(DT_BAD_DATA,
                            "%s: no images of this class (put some into it, or remove it)", path);
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
    DT_TRY(list_files(split, l));
    if (l->n_total == 0 || l->n_total > MAX_IMAGES) {
        return dt_error(DT_BAD_DATA, "%s: %zu images, 1 to %zu can be used", l->folder, l->n_total,
                        MAX_IMAGES);
    }
    l->n_kept = dt_labelled_count(spec, split, l->n_total);
    l->order = dt_permutation_make(0, 0, 0, (uint32_t)l->n_total);
    DT_ASSERT(l->n_kept >= 1 && l->n_kept <= l->n_total);
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
    DT_ASSERT(i < l->n_kept);
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

/* The images that cannot be used, up to MOST_BAD. */
struct bad {
    size_t n, n_text;
    char text[BAD_TEXT_SIZE], mend[CURE_SIZE]; /* mend: what mends them all, in brackets */
};

/* The text without the brackets at its end, which say how to mend it: a name may have others. */
static int length_without_mend(const char *text)
{
    const size_t n = strlen(text);
    size_t at = n > 0 && text[n - 1] == ')' ? n : 0;
    while (at > 0 && strncmp(text + at, " (", 2) != 0) {
        at--;
    }
    DT_ASSERT(at <= n);
    return (int)(at > 0 ? at : n);
}

/* Of cures "(this; or that)" the first one, if they have it in common. */
static void join_cures(const char *other, char cure[CURE_SIZE])
{
    size_t n = 0;
    while (cure[n] != '\0' && cure[n] == other[n]) {
        n++;
    }
    const bool fits = cure[n] == other[n] || (cure[n] == ')' && other[n] == ';');
    while (n > 0 && cure[n] != ';') {
        n--;
    }
    if (!fits) {
        snprintf(n > 0 ? cure + n : cure, n > 0 ? 2 : CURE_SIZE,
                 n > 0 ? ")" : " (mend each of them)");
    }
}

/* Takes the waiting error. */
static void note_bad(struct bad *bad, const char *folder)
{
    DT_ASSERT(dt_error_text()[0] != '\0');
    const char *text = dt_error_text();
    const size_t n_folder = strlen(folder) + 1;
    const int n = length_without_mend(text);
    const bool within = strncmp(text, folder, n_folder - 1) == 0 && (size_t)n > n_folder;
    if (bad->n_text < sizeof bad->text) {
        const size_t skipped = within ? n_folder : 0;
        bad->n_text +=
            (size_t)snprintf(bad->text + bad->n_text, sizeof bad->text - bad->n_text, "%s%.*s",
                             bad->n > 0 ? "; " : "", n - (int)skipped, text + skipped);
    }
    const char *mend = text[n] == '\0' ? " (mend it, or move it away)" : text + n;
    if (bad->n == 0) {
        snprintf(bad->mend, sizeof bad->mend, "%s", mend);
    }
    join_cures(mend, bad->mend);
    bad->n++;
    dt_error_clear();
}

static enum dt_status read_image(const struct dt_data_spec *spec, const struct listing *l,
                                 struct dt_owned owned, size_t i, struct bad *bad,
                                 struct dt_dataset *out)
{
    DT_ASSERT(bad->n < MOST_BAD);
    char path[DT_PATH_SIZE];
    int64_t label = 0;
    uint8_t *row = dt_labelled_row(spec, owned, i, out);
    DT_TRY(name_image(l, i, &label, path));
    DT_TRY(dt_labelled_take(spec, path, owned, i, label, out));
    if (row == NULL) {
        return DT_OK;
    }
    dt_alive_show(&spec->alive);
    struct dt_picture picture = {.resize = spec->resize, .background = dt_background(spec)};
    const enum dt_status s = dt_picture_read(path, spec->shape, &picture, row);
    out->n_flawed += s == DT_OK && picture.flawed;
    if (s == DT_OK || s == DT_NO_MEMORY || s == DT_UNAVAILABLE) {
        return s;
    }
    if (s == DT_NO_INPUT) {
        (void)dt_error_around(s, "", " (only images belong there: move those of a sub-folder up)");
    }
    note_bad(bad, l->folder);
    return DT_OK;
}

static enum dt_status read_images(const struct dt_data_spec *spec, const struct listing *l,
                                  struct dt_owned owned, struct dt_dataset *out)
{
    struct bad bad = {.n = 0};
    DT_TRY(dt_labelled_alloc(spec, l->folder, l->n_kept, owned, out));
    for (size_t i = 0; i < l->n_kept && bad.n < MOST_BAD; i++) {
        DT_TRY(read_image(spec, l, owned, i, &bad, out));
    }
    return bad.n == 0 ? DT_OK
                      : dt_error(DT_BAD_DATA, "%s: %zu%s bad image%s: %s%s", l->folder, bad.n,
                                 bad.n == MOST_BAD ? " or more" : "", bad.n == 1 ? "" : "s",
                                 bad.text, bad.mend);
}

/* A name of a folder has any bytes but "/". */
static enum dt_status join_names(const struct names *classes, char **out)
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
    s = s == DT_OK ? read_images(spec, &l, owned, out) : s;
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
