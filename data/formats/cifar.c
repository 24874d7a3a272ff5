/* The data format "cifar": the binary files of CIFAR-10 and CIFAR-100. A record is a label, or a
 * coarse and a fine one of which the fine one counts, and 3 x 32 x 32 bytes, C H W. A. Krizhevsky,
 * "Learning multiple layers of features from tiny images", 2009. */
#include <stdio.h>
#include <unistd.h>
#include <zlib.h>

#include "base/file.h"
#include "data/formats/folder.h"
#include "data/formats/labelled.h"
#include "data/idx.h"

#define SIDE 32
#define N_PIXELS ((size_t)3 * SIDE * SIDE)
#define MAX_FILES 5
#define MAX_RECORDS ((size_t)1 << 24)

/* The two data sets: bytes of a record before its pixels, the last of them the label; and files. */
static const struct kind {
    const char *name;
    size_t n_labels;
    const char *files[2][MAX_FILES + 1];
} kinds[] = {
    {"CIFAR-10",
     1,
     {[DT_SPLIT_TRAIN] = {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin",
                          "data_batch_4.bin", "data_batch_5.bin"},
      [DT_SPLIT_TEST] = {"test_batch.bin"}}},
    {"CIFAR-100", 2, {[DT_SPLIT_TRAIN] = {"train.bin"}, [DT_SPLIT_TEST] = {"test.bin"}}},
};

/* The files of a split, and how many records each has. */
struct files {
    const struct kind *kind;
    char paths[MAX_FILES][DT_PATH_SIZE];
    size_t n_records[MAX_FILES], n_total;
    int n;
};

static size_t record_bytes(const struct files *f)
{
    return f->kind->n_labels + N_PIXELS;
}

static bool has_cifar(const char *dir)
{
    char path[DT_PATH_SIZE] = "";
    for (int i = 0; i < 2 && path[0] == '\0'; i++) {
        if (dt_labelled_find(dir, kinds[i].files[DT_SPLIT_TRAIN][0], path) != DT_OK) {
            dt_error_clear();
            path[0] = '\0';
        }
    }
    return path[0] != '\0';
}

static enum dt_status nothing_there(const char *dir, enum dt_split split)
{
    char path[DT_PATH_SIZE], lacks[96];
    bool there, python;
    DT_TRY(dt_file_exists(dir, &there));
    DT_TRY(dt_labelled_path(dir, split == DT_SPLIT_TRAIN ? "data_batch_1" : "test_batch", path));
    DT_TRY(dt_file_exists(path, &python));
    snprintf(lacks, sizeof lacks, "neither %s nor %s is there, raw or .gz",
             kinds[0].files[split][0], kinds[1].files[split][0]);
    return dt_folder_refuse(
        dir, lacks, has_cifar,
        python  ? "the version for Python is: fetch the binary version"
        : there ? "name the folder with CIFAR's binary files in data.dir or --data"
                : "scripts/get-data cifar10 fetches it; or name the folder with CIFAR's binary "
                  "files: --data DIR");
}

/* The data set whose first file is there. */
static enum dt_status find_kind(const char *dir, enum dt_split split, struct files *f)
{
    char path[DT_PATH_SIZE];
    f->kind = NULL;
    for (int i = 0; i < 2; i++) {
        DT_TRY(dt_labelled_find(dir, kinds[i].files[split][0], path));
        if (path[0] != '\0' && f->kind != NULL) {
            return dt_error(DT_BAD_DATA,
                            "%s: holds the files of CIFAR-10 and those of CIFAR-100 (give each a "
                            "folder of its own)",
                            dir);
        }
        f->kind = path[0] != '\0' ? &kinds[i] : f->kind;
    }
    return f->kind != NULL ? DT_OK : nothing_there(dir, split);
}

static enum dt_status find_paths(const char *dir, enum dt_split split, struct files *f)
{
    DT_TRY(find_kind(dir, split, f));
    for (f->n = 0; f->kind->files[split][f->n] != NULL; f->n++) {
        const char *name = f->kind->files[split][f->n];
        DT_ASSERT(f->n < MAX_FILES);
        DT_TRY(dt_labelled_find(dir, name, f->paths[f->n]));
        if (f->paths[f->n][0] == '\0') {
            return dt_error(DT_NO_INPUT, "%s: %s is missing, raw or .gz, beside %s (%s has %d)",
                            dir, name, f->kind->files[split][0], f->kind->name, MAX_FILES);
        }
    }
    return DT_OK;
}

/* Bytes of the data, without reading them: what a gzip file expands to are its last four bytes. */
static enum dt_status data_bytes(const struct dt_source *source, size_t *out)
{
    uint8_t tail[4];
    *out = (size_t)source->info.st_size;
    if (!source->packed) {
        return DT_OK;
    }
    if (pread(source->fd, tail, 4, source->info.st_size - 4) != 4) {
        return dt_error(DT_BAD_DATA, "%s: changed while it was read", source->path);
    }
    *out = tail[0] | (size_t)tail[1] << 8 | (size_t)tail[2] << 16 | (size_t)tail[3] << 24;
    return DT_OK;
}

static enum dt_status check_size(const struct dt_source *source, const struct files *f,
                                 size_t n_bytes)
{
    const size_t n_record = record_bytes(f), n_file = (size_t)source->info.st_size;
    if (n_bytes == 0 || n_bytes % n_record != 0) {
        uint8_t head[32];
        const ssize_t n_head = source->packed ? 0 : pread(source->fd, head, sizeof head, 0);
        const char *kind = dt_file_kind(head, n_head > 0 ? (size_t)n_head : 0);
        if (kind != NULL) {
            return dt_error(DT_BAD_DATA, "%s: no records of CIFAR; looks like %s", source->path,
                            kind);
        }
        return dt_error(DT_BAD_DATA,
                        "%s: damaged, or cut off: no whole number of records of %zu bytes (fetch "
                        "%s's binary version again)",
                        source->path, n_record, f->kind->name);
    }
    if (n_bytes / n_record > MAX_RECORDS ||
        (source->packed && n_bytes > n_file * DT_MAX_DEFLATE_RATIO)) {
        return dt_error(DT_BAD_DATA, "%s: %zu records are impossible for a %zu-byte file",
                        source->path, n_bytes / n_record, n_file);
    }
    return DT_OK;
}

static enum dt_status count_file(const struct dt_data_spec *spec, struct files *f, int i)
{
    const struct dt_idx_reader reader = {.alive = &spec->alive};
    struct dt_source source;
    size_t n_bytes = 0;
    DT_TRY(dt_source_open(f->paths[i], &reader, &source));
    enum dt_status s = data_bytes(&source, &n_bytes);
    s = s == DT_OK ? check_size(&source, f, n_bytes) : s;
    gzclose(source.file);
    f->n_records[i] = n_bytes / record_bytes(f);
    f->n_total += f->n_records[i];
    return s;
}

/* From the sizes of the files. */
static enum dt_status find_files(const struct dt_data_spec *spec, enum dt_split split,
                                 struct files *f)
{
    *f = (struct files){.n_total = 0};
    DT_TRY(find_paths(spec->dir, split, f));
    DT_TRY(dt_dataset_check_shape(spec, split, f->paths[0], 3, SIDE, SIDE));
    for (int i = 0; i < f->n; i++) {
        DT_TRY(count_file(spec, f, i));
    }
    return DT_OK;
}

static enum dt_status cifar_count(const struct dt_data_spec *spec, enum dt_split split,
                                  size_t *n_total)
{
    struct files f;
    DT_TRY(find_files(spec, split, &f));
    *n_total = dt_labelled_count(spec, split, f.n_total);
    return DT_OK;
}

/* A record, and the label in front of it: pixels of another rank's sample are read over. */
static enum dt_status read_record(const struct dt_data_spec *spec, struct dt_source *source,
                                  size_t n_labels, struct dt_owned owned, size_t i,
                                  struct dt_dataset *out)
{
    DT_ASSERT(n_labels >= 1 && n_labels <= 2);
    uint8_t labels[2], other[N_PIXELS], *row = dt_labelled_row(spec, owned, i, out);
    size_t n_head, n_pixels = 0;
    DT_TRY(dt_source_read(source, labels, n_labels, &n_head));
    DT_TRY(dt_source_read(source, row != NULL ? row : other, N_PIXELS, &n_pixels));
    if (n_head != n_labels || n_pixels != N_PIXELS) {
        return dt_error(DT_BAD_DATA, "%s: ends within record %zu (fetch or copy it again)",
                        source->path, i);
    }
    return dt_labelled_take(spec, source->path, owned, i, labels[n_labels - 1], out);
}

/* Behind its last record that counts a file is read to its end only if all its records count. */
static enum dt_status check_end(struct dt_source *source, bool whole)
{
    uint8_t past;
    size_t n_past = 0;
    DT_TRY(whole ? dt_source_read(source, &past, 1, &n_past) : DT_OK);
    return n_past == 0
               ? dt_file_check_unchanged(source->fd, source->path, &source->info)
               : dt_error(DT_BAD_DATA, "%s: expands past the size at its end", source->path);
}

/* Records `from` .. of the data set that are in file k, up to n_total. */
static enum dt_status read_file(const struct dt_data_spec *spec, const struct files *f, int k,
                                size_t from, struct dt_owned owned, struct dt_dataset *out)
{
    DT_ASSERT(from < out->samples.n_total);
    const struct dt_idx_reader reader = {.alive = &spec->alive};
    const size_t end = from + f->n_records[k], n_total = out->samples.n_total;
    struct dt_source source;
    DT_TRY(dt_source_open(f->paths[k], &reader, &source));
    enum dt_status s = DT_OK;
    for (size_t i = from; s == DT_OK && i < end && i < n_total; i++) {
        dt_alive_show(&spec->alive);
        s = read_record(spec, &source, f->kind->n_labels, owned, i, out);
    }
    s = s == DT_OK ? check_end(&source, end <= n_total) : s;
    gzclose(source.file);
    return s;
}

static enum dt_status cifar_load(const struct dt_data_spec *spec, enum dt_split split,
                                 struct dt_owned owned, struct dt_dataset *out)
{
    DT_ASSERT(split == DT_SPLIT_TRAIN || split == DT_SPLIT_TEST);
    struct files f;
    DT_TRY(find_files(spec, split, &f));
    DT_TRY(dt_labelled_alloc(spec, f.paths[0], dt_labelled_count(spec, split, f.n_total), false,
                             owned, out));
    for (size_t k = 0, from = 0; k < (size_t)f.n && from < out->samples.n_total;
         from += f.n_records[k++]) {
        DT_TRY(read_file(spec, &f, (int)k, from, owned, out));
    }
    return DT_OK;
}

const struct dt_data_reader dt_cifar_data = {
    .check = dt_dataset_check_labelled, .count = cifar_count, .load = cifar_load};
