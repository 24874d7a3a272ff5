/* Data sets: finding, checking and sharing out the four IDX files; and generated data. */
#include "base/file.h"
#include "data/dataset.h"
#include "data/idx.h"
#include "tests/lib/folder.h"
#include "train/save/border.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

static const char *const names[] = {"train-images-idx3-ubyte", "train-labels-idx1-ubyte",
                                    "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"};

#define N_TRAIN 23
#define N_TEST 9
#define N_PIXELS 12

/* ---- four small files ---- */

static void remove_files(void)
{
    for (int i = 0; i < 4; i++) {
        unlink(path_of("%s", names[i]));
        unlink(path_of("%s.gz", names[i]));
    }
}

static void write_bytes(const char *name, const uint8_t *bytes, size_t n_bytes, bool gzip)
{
    gzFile file = gzopen(path_of("%s%s", name, gzip ? ".gz" : ""), gzip ? "wb" : "wbT");
    CHECK(file != NULL);
    CHECK_INT(gzwrite(file, bytes, (unsigned)n_bytes), n_bytes);
    CHECK_INT(gzclose(file), Z_OK);
}

/* Pixel p of sample i is 10 i + p. */
static void write_images(const char *name, int n, int h, int w, bool gzip)
{
    uint8_t bytes[1024] = {0, 0, 8, 3,          0, 0, 0, (uint8_t)n,
                           0, 0, 0, (uint8_t)h, 0, 0, 0, (uint8_t)w};
    for (int i = 0; i < n; i++) {
        for (int p = 0; p < h * w; p++) {
            bytes[16 + i * h * w + p] = (uint8_t)(10 * i + p);
        }
    }
    write_bytes(name, bytes, (size_t)(16 + n * h * w), gzip);
}

/* Label of sample i is i % 5, but for one. */
static void write_labels(const char *name, int n, int odd_index, int odd_label, bool gzip)
{
    uint8_t bytes[1024] = {0, 0, 8, 1, 0, 0, 0, (uint8_t)n};
    for (int i = 0; i < n; i++) {
        bytes[8 + i] = (uint8_t)(i == odd_index ? odd_label : i % 5);
    }
    write_bytes(name, bytes, (size_t)(8 + n), gzip);
}

static void write_files(bool gzip)
{
    remove_files();
    write_images(names[0], N_TRAIN, 4, 3, gzip);
    write_labels(names[1], N_TRAIN, -1, 0, gzip);
    write_images(names[2], N_TEST, 4, 3, gzip);
    write_labels(names[3], N_TEST, -1, 0, gzip);
}

static struct dt_data_spec idx_spec(void)
{
    struct dt_data_spec spec = {
        .row = &dt_idx_data, .refuse = dt_idx_refuse, .shape = {1, 4, 3}, .n_classes = 5};
    snprintf(spec.dir, sizeof spec.dir, "%s", folder);
    return spec;
}

static const struct dt_owned everything = {.n = N_TRAIN, .first = 0, .stride = 1};

static void expect_fault(const struct dt_data_spec *spec, enum dt_split split,
                         enum dt_status status, const char *text)
{
    struct dt_dataset dataset;
    struct dt_owned owned = everything;
    owned.n = split == DT_SPLIT_TRAIN ? N_TRAIN : N_TEST;
    CHECK_FAILS(dt_dataset_open(spec, split, owned, &dataset), status, text);
    CHECK(dataset.items == NULL && dataset.answers == NULL);
    dt_error_clear();
}

/* ---- IDX ---- */

/* Every rank gets exactly its own rows, and all agree on the CRC of the labels. */
static void test_rows_of_each_rank(void)
{
    struct dt_data_spec spec = idx_spec();
    for (int variant = 0; variant < 4; variant++) {
        write_files(variant % 2 == 1);
        spec.n_train = variant < 2 ? 0 : 17; /* 17: at most so many */
        size_t n_total;
        CHECK_OK(dt_dataset_count(&spec, DT_SPLIT_TRAIN, &n_total));
        CHECK_INT(n_total, variant < 2 ? N_TRAIN : 17);
        uint32_t crc = 0;
        for (int size = 1; size <= 30; size += size < 4 ? 1 : 13) {
            for (int rank = 0; rank < size; rank++) {
                const struct dt_shard shard = {
                    .n_total = n_total, .global_batch = 30, .rank = rank, .size = size};
                struct dt_dataset dataset;
                CHECK_OK(dt_dataset_open(&spec, DT_SPLIT_TRAIN, dt_shard_owned(&shard), &dataset));
                const struct dt_samples *samples = &dataset.samples;
                CHECK_INT(samples->n, (n_total - (size_t)rank + (size_t)size - 1) / (size_t)size *
                                          ((size_t)rank < n_total));
                CHECK_INT(samples->n_total, n_total);
                CHECK(samples->pixels != NULL && samples->values == NULL &&
                      samples->labels != NULL && samples->targets == NULL);
                CHECK(samples->scale == 1.0f / 255.0f);
                for (size_t row = 0; row < samples->n; row++) {
                    const int id = (int)(samples->first_id + row * samples->id_stride);
                    CHECK_INT(id, rank + (int)row * size);
                    CHECK_INT(samples->labels[row], id % 5);
                    for (int p = 0; p < N_PIXELS; p++) {
                        CHECK_INT(samples->pixels[row * N_PIXELS + (size_t)p],
                                  (uint8_t)(10 * id + p));
                    }
                }
                crc = rank == 0 && size == 1 ? dataset.crc : crc;
                CHECK_INT(dataset.crc, crc);
                dt_dataset_close(&dataset);
            }
        }
    }
}

static void test_finding_files(void)
{
    struct dt_data_spec spec = idx_spec();
    write_files(true);
    write_labels(names[3], N_TEST, 2, 77, true);
    expect_fault(&spec, DT_SPLIT_TEST, DT_BAD_DATA, "/t10k-labels-idx1-ubyte.gz: label 77");
    write_labels(names[3], N_TEST, 2, 78, false); /* raw first */
    expect_fault(&spec, DT_SPLIT_TEST, DT_BAD_DATA, "/t10k-labels-idx1-ubyte: label 78");
    remove_files();
    expect_fault(&spec, DT_SPLIT_TRAIN, DT_NO_INPUT,
                 "neither train-images-idx3-ubyte nor train-images-idx3-ubyte.gz is there, but "
                 "nothing (name");
    write_images(names[0], N_TRAIN, 4, 3, false);
    expect_fault(&spec, DT_SPLIT_TRAIN, DT_NO_INPUT,
                 "neither train-labels-idx1-ubyte nor train-labels-idx1-ubyte.gz is there, but ");
    snprintf(spec.dir, sizeof spec.dir, "%s/nowhere", folder);
    expect_fault(&spec, DT_SPLIT_TRAIN, DT_NO_INPUT, "/nowhere: no such folder (");
    spec.dir[0] = '\0';
    expect_fault(&spec, DT_SPLIT_TRAIN, DT_NO_INPUT, "no such folder");
    memset(spec.dir, 'x', sizeof spec.dir - 1);
    spec.dir[sizeof spec.dir - 1] = '\0';
    expect_fault(&spec, DT_SPLIT_TRAIN, DT_CONFIG, "data.dir: the path is longer than");
}

static void test_files_that_do_not_fit(void)
{
    struct dt_data_spec spec = idx_spec();
    write_files(false);
    write_labels(names[1], N_TRAIN - 1, -1, 0, false);
    expect_fault(&spec, DT_SPLIT_TRAIN, DT_BAD_DATA, "23 images but 22 labels in ");
    write_labels(names[1], N_TRAIN, 13, 5, false);
    expect_fault(&spec, DT_SPLIT_TRAIN, DT_BAD_DATA,
                 "train-labels-idx1-ubyte: label 5 at index 13, model has 5 classes (0..4)");
    write_images(names[2], N_TEST, 3, 4, false);
    expect_fault(&spec, DT_SPLIT_TEST, DT_BAD_DATA,
                 "t10k-images-idx3-ubyte: test images are 1x3x4, the model is trained on 1x4x3 "
                 "(test with images of that size)");
    write_files(false);
    spec.shape.c = 3;
    expect_fault(&spec, DT_SPLIT_TRAIN, DT_BAD_DATA, "images are 1x4x3, model.input is 3x4x3");
    spec = idx_spec();
    write_labels(names[0], N_TRAIN, -1, 0, false);
    expect_fault(&spec, DT_SPLIT_TRAIN, DT_BAD_DATA, "holds labels");
    spec.n_classes = 0;
    spec.n_targets = 1;
    expect_fault(&spec, DT_SPLIT_TRAIN, DT_CONFIG,
                 "labelled images need a model with 2 or more classes");
}

/* The rank that does not own the bad label finds it too, so that all ranks stop with the same text.
 */
static void test_bad_label_of_another_rank(void)
{
    const struct dt_data_spec spec = idx_spec();
    struct dt_dataset dataset;
    write_files(false);
    write_labels(names[1], N_TRAIN, 13, 200, false);
    CHECK_FAILS(dt_dataset_open(&spec, DT_SPLIT_TRAIN,
                                (struct dt_owned){.n = 12, .first = 0, .stride = 2}, &dataset),
                DT_BAD_DATA, "label 200 at index 13");
}

/* Files that grew or shrank after they were counted. */
static void test_changed_after_counting(void)
{
    const struct dt_data_spec spec = idx_spec();
    struct dt_dataset dataset;
    write_files(false);
    for (size_t n = N_TRAIN - 1; n <= N_TRAIN + 1; n += 2) {
        const struct dt_owned counted = {.n = n, .first = 0, .stride = 1};
        CHECK_FAILS(dt_dataset_open(&spec, DT_SPLIT_TRAIN, counted, &dataset), DT_BAD_DATA,
                    "changed during the run");
    }
}

/* ---- generated ---- */

static struct dt_data_spec synthetic_spec(void)
{
    return (struct dt_data_spec){.row = &dt_synthetic_data,
                                 .n_train = 2000,
                                 .n_test = 1000,
                                 .noise = 0.5,
                                 .seed = 7,
                                 .shape = {1, 28, 28},
                                 .n_classes = 10};
}

static struct dt_dataset open_all(const struct dt_data_spec *spec, enum dt_split split)
{
    struct dt_dataset dataset;
    size_t n_total;
    CHECK_OK(dt_dataset_count(spec, split, &n_total));
    const struct dt_owned all = {.n = n_total, .first = 0, .stride = 1};
    CHECK_OK(dt_dataset_open(spec, split, all, &dataset));
    return dataset;
}

/* A sample is the same whichever rank makes it, in any format. */
static void check_same_rows(const struct dt_data_spec *spec, size_t n_item_bytes,
                            size_t n_answer_bytes)
{
    struct dt_dataset all = open_all(spec, DT_SPLIT_TEST);
    for (int rank = 0; rank < 3; rank++) {
        const struct dt_shard shard = {
            .n_total = all.samples.n, .global_batch = 30, .rank = rank, .size = 3};
        const struct dt_owned owned = dt_shard_owned(&shard);
        struct dt_dataset part;
        CHECK_OK(dt_dataset_open(spec, DT_SPLIT_TEST, owned, &part));
        CHECK_INT(part.crc, all.crc);
        for (size_t row = 0; row < owned.n; row++) {
            const size_t id = owned.first + row * owned.stride;
            CHECK_INT(memcmp((char *)part.items + row * n_item_bytes,
                             (char *)all.items + id * n_item_bytes, n_item_bytes),
                      0);
            CHECK_INT(memcmp((char *)part.answers + row * n_answer_bytes,
                             (char *)all.answers + id * n_answer_bytes, n_answer_bytes),
                      0);
        }
        dt_dataset_close(&part);
    }
    dt_dataset_close(&all);
}

static void test_generated_rows_do_not_depend_on_ranks(void)
{
    struct dt_data_spec spec = synthetic_spec();
    check_same_rows(&spec, 28 * 28, sizeof(uint16_t));
    spec.shape = (struct dt_shape){3, 5, 7};
    spec.n_classes = 300;
    check_same_rows(&spec, 3 * 5 * 7, sizeof(uint16_t));
    spec = (struct dt_data_spec){.row = &dt_linear_data,
                                 .n_test = 100,
                                 .slope = 2,
                                 .noise = 1,
                                 .shape = {1, 1, 1},
                                 .n_targets = 1};
    check_same_rows(&spec, sizeof(float), sizeof(float));
}

/* Test samples are not training samples, seeds differ, and classes are about equally frequent. */
static void test_synthetic_splits(void)
{
    struct dt_data_spec spec = synthetic_spec();
    struct dt_dataset train = open_all(&spec, DT_SPLIT_TRAIN),
                      test = open_all(&spec, DT_SPLIT_TEST);
    spec.seed++;
    struct dt_dataset other = open_all(&spec, DT_SPLIT_TRAIN);
    int counts[10] = {0};
    for (size_t i = 0; i < train.samples.n; i++) {
        CHECK(train.samples.labels[i] < 10);
        counts[train.samples.labels[i]]++;
    }
    for (int c = 0; c < 10; c++) {
        CHECK_NEAR(counts[c], 200, 5 * sqrt(200.0));
    }
    CHECK(memcmp(train.items, test.items, 784) != 0);
    CHECK(memcmp(train.items, other.items, 784) != 0);
    CHECK(train.crc != test.crc && train.crc != other.crc);
    dt_dataset_close(&train);
    dt_dataset_close(&test);
    dt_dataset_close(&other);
}

/* Least squares finds slope and intercept again; what is left over is the noise. */
static void test_linear(void)
{
    const struct dt_data_spec spec = {.row = &dt_linear_data,
                                      .n_train = 4000,
                                      .n_test = 1,
                                      .slope = -1.5,
                                      .intercept = 0.25,
                                      .noise = 0.2,
                                      .seed = 3,
                                      .shape = {1, 1, 1},
                                      .n_targets = 1};
    struct dt_dataset dataset = open_all(&spec, DT_SPLIT_TRAIN);
    const struct dt_samples *samples = &dataset.samples;
    CHECK(samples->pixels == NULL && samples->values != NULL && samples->labels == NULL &&
          samples->targets != NULL);
    CHECK_INT(samples->n_targets, 1);
    CHECK_INT(samples->n_classes, 0);
    double n = (double)samples->n, sx = 0, sy = 0, sxx = 0, sxy = 0, left = 0;
    for (size_t i = 0; i < samples->n; i++) {
        const double x = (double)samples->values[i], y = (double)samples->targets[i];
        CHECK(x >= -1.0 && x < 1.0);
        sx += x;
        sy += y;
        sxx += x * x;
        sxy += x * y;
        left += (y - spec.slope * x - spec.intercept) * (y - spec.slope * x - spec.intercept);
    }
    CHECK_NEAR(sxx / n, 1.0 / 3, 0.02);
    CHECK_NEAR((n * sxy - sx * sy) / (n * sxx - sx * sx), -1.5, 0.03); /* standard error 0.0055 */
    CHECK_NEAR(sy / n - -1.5 * sx / n, 0.25, 0.02);
    CHECK_NEAR(sqrt(left / n), 0.2, 0.01);
    dt_dataset_close(&dataset);
}

static void test_generated_that_do_not_fit(void)
{
    struct dt_data_spec spec = synthetic_spec();
    spec.n_train = 0;
    size_t n_total;
    CHECK_FAILS(dt_dataset_count(&spec, DT_SPLIT_TRAIN, &n_total), DT_CONFIG,
                "data.train_samples: generated data need 1..");
    spec.row = &dt_linear_data;
    CHECK_FAILS(dt_dataset_count(&spec, DT_SPLIT_TEST, &n_total), DT_CONFIG,
                "linear is one number in and one out (");
}

/* The outermost pixels of every channel, each once, however narrow the image; and what their
 * brightness says of a data set. */
static void test_borders(void)
{
    uint8_t pixels[2 * 12] = {128, 128, 128, 127, 0,   127,
                              127, 0,   127, 127, 127, 127, /* 3 of 10 above 127, none below */
                              127, 127, 127, 127, 255, 127,
                              127, 255, 127, 127, 127, 127};
    const struct dt_shape shape = {1, 4, 3};
    CHECK(dt_border_is_bright(shape, pixels) && !dt_border_is_bright(shape, pixels + 12));
    CHECK(dt_border_is_bright((struct dt_shape){2, 4, 3}, pixels));
    CHECK_INT(
        dt_border_count_bright(&(struct dt_samples){.n = 2, .shape = shape, .pixels = pixels}), 1);
    CHECK(dt_border_is_bright((struct dt_shape){1, 2, 1}, (uint8_t[]){255, 0}));
    CHECK(dt_border_is_bright((struct dt_shape){1, 1, 3}, (uint8_t[]){255, 0, 128}));
    CHECK(!dt_border_is_bright((struct dt_shape){1, 1, 1}, (uint8_t[]){127}));
    CHECK_INT(dt_ground_of(0, 60), DT_GROUND_DARK);
    CHECK_INT(dt_ground_of(1, 60), DT_GROUND_MIXED);
    CHECK_INT(dt_ground_of(59, 60), DT_GROUND_MIXED);
    CHECK_INT(dt_ground_of(60, 60), DT_GROUND_BRIGHT);
    CHECK_INT(dt_ground_of(60, 60000), DT_GROUND_DARK);
    CHECK_INT(dt_ground_of(61, 60000), DT_GROUND_MIXED);
}

int main(void)
{
    folder_open();
    test_rows_of_each_rank();
    test_finding_files();
    test_files_that_do_not_fit();
    test_bad_label_of_another_rank();
    test_changed_after_counting();
    remove_files();
    folder_close();
    test_generated_rows_do_not_depend_on_ranks();
    test_synthetic_splits();
    test_linear();
    test_borders();
    test_generated_that_do_not_fit();
    return 0;
}
