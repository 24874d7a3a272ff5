/* The data format "images": folders of classes with PNG, PPM and PGM files, shared out over ranks,
 * and files that are wrong. Each image holds its class and its number, so that none can be mistaken
 * for another. */
#include "base/file.h"
#include "data/dataset.h"
#include "tests/lib/folder.h"

#include <png.h>
#include <sys/stat.h>
#include <unistd.h>

#define N_CLASSES 3
#define PER_CLASS 7
#define SIDE 4
#define N_PIXELS (3 * SIDE * SIDE)

static const char *const classes[N_CLASSES] = {"cat", "dog", "zebra"};

static void command(const char *verb, const char *name)
{
    char line[512];
    snprintf(line, sizeof line, "%s %s", verb, path_of("%s", name));
    CHECK_INT(system(line), 0);
}

/* Pixel p of image k of class c. */
static uint8_t value(int c, int k, int p)
{
    return (uint8_t)(p == 0 ? c : p == 1 ? k : 40 * c + 5 * k + p);
}

/* Rows of RGB, or of grey, which is the red. */
static void fill(int c, int k, int channels, uint8_t *rows)
{
    for (int i = 0; i < SIDE * SIDE; i++) {
        for (int channel = 0; channel < channels; channel++) {
            rows[i * channels + channel] = value(c, k, channel * SIDE * SIDE + i);
        }
    }
}

static void write_pnm(const char *path, int width, int height, int channels, const uint8_t *rows)
{
    FILE *file = fopen(path, "wb");
    CHECK(file != NULL);
    fprintf(file, "P%d\n# made by a test\n%d %d\n255\n", channels == 1 ? 5 : 6, width, height);
    CHECK(fwrite(rows, (size_t)channels, (size_t)(width * height), file) ==
          (size_t)(width * height));
    CHECK_INT(fclose(file), 0);
}

static void write_png(const char *path, int channels, const uint8_t *rows)
{
    png_image image = {.version = PNG_IMAGE_VERSION,
                       .width = SIDE,
                       .height = SIDE,
                       .format = channels == 1 ? PNG_FORMAT_GRAY : PNG_FORMAT_RGB};
    CHECK(png_image_write_to_file(&image, path, 0, rows, 0, NULL));
}

static void write_split(const char *split, int channels)
{
    uint8_t rows[N_PIXELS];
    for (int c = 0; c < N_CLASSES; c++) {
        CHECK_OK(dt_dir_create(path_of("%s/%s", split, classes[c])));
        for (int k = 0; k < PER_CLASS; k++) {
            fill(c, k, channels, rows);
            if (k % 2 == 0) {
                write_png(path_of("%s/%s/image %d.png", split, classes[c], k), channels, rows);
            } else {
                write_pnm(path_of("%s/%s/image %d.ppm", split, classes[c], k), SIDE, SIDE, channels,
                          rows);
            }
        }
    }
}

static void write_all(int channels)
{
    command("rm -rf", "*");
    write_split("train", channels);
    write_split("test", channels);
}

static struct dt_data_spec spec_of(int channels)
{
    struct dt_data_spec spec = {
        .row = &dt_images_data, .shape = {channels, SIDE, SIDE}, .n_classes = N_CLASSES};
    snprintf(spec.dir, sizeof spec.dir, "%s", folder);
    return spec;
}

/* Notes which image each sample is: its class and number at `seen`, by the sample's number. */
static void check_rows(const struct dt_samples *s, int *seen)
{
    const int n_pixels = s->shape.c * SIDE * SIDE;
    for (size_t row = 0; row < s->n; row++) {
        const uint8_t *pixels = s->pixels + row * (size_t)n_pixels;
        const int c = pixels[0], k = pixels[1];
        CHECK_INT(s->labels[row], c);
        for (int p = 2; p < n_pixels; p++) {
            CHECK_INT(pixels[p], value(c, k, p));
        }
        seen[s->first_id + row * s->id_stride] = c * PER_CLASS + k;
    }
}

static void open_ranks(const struct dt_data_spec *spec, int size, int *seen, uint32_t *crc)
{
    for (int rank = 0; rank < size; rank++) {
        struct dt_shard shard = {.global_batch = 30, .rank = rank, .size = size};
        struct dt_dataset data;
        CHECK_OK(dt_dataset_count(spec, DT_SPLIT_TRAIN, &shard.n_total));
        CHECK_OK(dt_dataset_open(spec, DT_SPLIT_TRAIN, dt_shard_owned(&shard), &data));
        check_rows(&data.samples, seen);
        CHECK(*crc == 0 || *crc == data.crc);
        *crc = data.crc;
        dt_dataset_close(&data);
    }
}

/* Every image once, in an order that mixes classes and is the same for any number of ranks. */
static void test_rows_of_each_rank(void)
{
    enum { N = N_CLASSES * PER_CLASS };
    for (int channels = 1; channels <= 3; channels += 2) {
        struct dt_data_spec spec = spec_of(channels);
        int first[N], n_times[N] = {0}, n_changes = 0;
        uint32_t crc = 0;
        write_all(channels);
        open_ranks(&spec, 1, first, &crc);
        for (int i = 0; i < N; i++) {
            n_times[first[i]]++;
            n_changes += i > 0 && first[i] / PER_CLASS != first[i - 1] / PER_CLASS;
        }
        for (int i = 0; i < N; i++) {
            CHECK_INT(n_times[i], 1);
        }
        CHECK(n_changes > N_CLASSES);
        for (int size = 2; size <= 5; size++) {
            int seen[N];
            open_ranks(&spec, size, seen, &crc);
            CHECK(memcmp(seen, first, sizeof seen) == 0);
        }
        spec.n_train = 8;
        int few[8];
        crc = 0;
        open_ranks(&spec, 3, few, &crc);
        CHECK(memcmp(few, first, sizeof few) == 0);
    }
}

static void expect_fault(const struct dt_data_spec *spec, enum dt_split split,
                         enum dt_status status, const char *text)
{
    struct dt_dataset data;
    size_t n_total = 0;
    enum dt_status s = dt_dataset_count(spec, split, &n_total);
    if (s == DT_OK) {
        s = dt_dataset_open(spec, split, (struct dt_owned){.n = n_total, .first = 0, .stride = 1},
                            &data);
        CHECK(s == DT_OK || data.items == NULL);
    }
    CHECK_INT(s, status);
    CHECK_HAS(dt_error_text(), text);
    dt_error_clear();
}

static void test_wrong_folders(void)
{
    struct dt_data_spec spec = spec_of(3);
    command("rm -rf", "*");
    expect_fault(
        &spec, DT_SPLIT_TRAIN, DT_NO_INPUT,
        ": no train/ is there, but nothing (data.dir has train/CLASS/IMAGE and test/CLASS/IMAGE)");
    write_all(3);
    command("mkdir", "train/yak");
    expect_fault(&spec, DT_SPLIT_TRAIN, DT_BAD_DATA,
                 "/train: 4 class folders, cat, dog, yak, zebra; model has 3 classes (let");
    spec.n_classes = 4;
    expect_fault(&spec, DT_SPLIT_TRAIN, DT_BAD_DATA, "/train/yak: no images of this class (put");
    spec.n_classes = 3;
    command("rmdir", "train/yak");
    command("mkdir", "test/yak");
    expect_fault(&spec, DT_SPLIT_TEST, DT_BAD_DATA, "/test/yak: no class of that name in train/");
    command("rmdir", "test/yak");
    command("rm -r", "test/cat"); /* the others keep their numbers */
    struct dt_dataset data;
    CHECK_OK(dt_dataset_open(&spec, DT_SPLIT_TEST,
                             (struct dt_owned){.n = 2 * PER_CLASS, .first = 0, .stride = 1},
                             &data));
    int seen[2 * PER_CLASS];
    check_rows(&data.samples, seen);
    dt_dataset_close(&data);
    command("rm -r", "test/*/*");
    expect_fault(&spec, DT_SPLIT_TEST, DT_BAD_DATA, "/test: 0 images, 1 to ");
    spec.shape.c = 2;
    expect_fault(&spec, DT_SPLIT_TRAIN, DT_CONFIG, "images are grey or RGB, model.input has 2");
    spec = spec_of(3);
    spec.n_classes = 0;
    expect_fault(&spec, DT_SPLIT_TRAIN, DT_CONFIG, "labelled images need a model with 2 or more");
}

static void test_wrong_files(void)
{
    const struct dt_data_spec spec = spec_of(3);
    static const struct {
        const char *text, *expected;
    } faults[] = {
        {"", "/train: 1 bad image: dog/bad: empty file (mend it, or move it away)"},
        {"readme", "dog/bad: no PNG, JPEG, PPM or PGM file (convert"},
        {"GIF89a", "dog/bad: no PNG, JPEG, PPM or PGM file; looks like a GIF image (convert"},
        {"BM6...", "dog/bad: no PNG, JPEG, PPM or PGM file; looks like a BMP image (convert"},
        {"....ftypavif", "looks like a video, or an image as AVIF and HEIC are (convert"},
        {"<!DOCTYPE html>", "looks like HTML (mend it, or move it away)"},
        {"version https://git-lfs.github.com/spec/v1", "fetches the file (mend it, or move it"},
        {"P3 4 4 255 1 2 3", "dog/bad: another kind of PPM or PGM (save it as PNG, or as"},
        {"P6 4 4", "dog/bad: a damaged header of PPM or PGM"},
        {"P6 4 4 65535 x", "dog/bad: its pixels are not 0 to 255"},
        {"P6 5000 4 255 x", "dog/bad: 5000x4 pixels, at most 4096x4096 are read"},
        {"P6 4 99999999999 255 x", "dog/bad: a damaged header of PPM or PGM"},
        {"P6 0 4 255 x", "dog/bad: 0x4 pixels, at most"},
        {"P6 4 4 255 1234", "dog/bad: truncated: 48 bytes of pixels, 4 are there (copy it again)"},
        {"P5 2 3 255 123456", "dog/bad: 3x2 pixels high and wide, model.input is 4x4 (set "
                              "data.resize to stretch, fit or "
                              "crop; or set model.input to [3, 3, 2] if all are so)"},
        {"P6 # no end", "dog/bad: a damaged header of PPM or PGM"},
    };
    write_all(3);
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) {
        put("train/dog/bad", faults[i].text);
        expect_fault(&spec, DT_SPLIT_TRAIN, DT_BAD_DATA, faults[i].expected);
    }
    put("train/.DS_Store", "hidden");
    put("train/dog/.hidden", "hidden");
    command("rm", "train/dog/bad");
    struct dt_dataset data;
    CHECK_OK(dt_dataset_open(&spec, DT_SPLIT_TRAIN,
                             (struct dt_owned){.n = 21, .first = 0, .stride = 1}, &data));
    dt_dataset_close(&data);
    for (int i = 0; i < 99; i++) { /* named as far as there is room */
        char name[64];
        snprintf(name, sizeof name, "train/cat/a picture of a cat %03d.jpeg", i);
        put(name, "");
    }
    expect_fault(&spec, DT_SPLIT_TRAIN, DT_BAD_DATA,
                 "/train: 99 bad images: cat/a picture of a cat 000.jpeg, cat/a picture of a cat "
                 "001.jpeg, ");
    expect_fault(&spec, DT_SPLIT_TRAIN, DT_BAD_DATA, " more (mend it, or move it away)");
    command("rm", "train/cat/*.jpeg");
    put("train/dog/bad", "readme"); /* each has a cure of its own */
    put("train/cat/bad", "P6 4 4 255 1234");
    expect_fault(&spec, DT_SPLIT_TRAIN, DT_BAD_DATA, " (mend each of them)");
    /* Another rank's images are not decoded. */
    CHECK_OK(dt_dataset_open(&spec, DT_SPLIT_TRAIN,
                             (struct dt_owned){.n = 0, .first = UINT32_MAX, .stride = 1}, &data));
    dt_dataset_close(&data);
}

/* Brackets in names, as of copies: the message has them whole, and leaves out the cure alone. */
static void test_brackets_in_names(void)
{
    struct dt_data_spec spec = spec_of(3);
    write_all(3);
    strcat(spec.dir, "/here (copy)");
    CHECK_INT(symlink(".", spec.dir), 0);
    put("train/dog/bad (1)", "readme");
    expect_fault(
        &spec, DT_SPLIT_TRAIN, DT_BAD_DATA,
        "here (copy)/train: 1 bad image: dog/bad (1): no PNG, JPEG, PPM or PGM file (convert");
    command("rm", "train/dog/bad*");
    command("mkdir", "train/dog/sub\\ \\(2\\)");
    put("train/dog/sub (2)/bad", "readme");
    expect_fault(&spec, DT_SPLIT_TRAIN, DT_BAD_DATA,
                 "/train: 1 bad image: dog/sub (2)/bad: no PNG, JPEG, PPM or PGM file (convert");
}

/* They are no classes. */
static void test_files_beside_classes(void)
{
    const struct dt_data_spec spec = spec_of(3);
    size_t n_total = 0;
    write_all(3);
    put("train/README.txt", "of the images");
    put("test/labels.csv", "");
    for (int split = DT_SPLIT_TRAIN; split <= DT_SPLIT_TEST; split++) {
        CHECK_OK(dt_dataset_count(&spec, (enum dt_split)split, &n_total));
        CHECK_INT(n_total, N_CLASSES * PER_CLASS);
    }
}

int main(void)
{
    folder_open();
    test_rows_of_each_rank();
    test_wrong_folders();
    test_wrong_files();
    test_brackets_in_names();
    test_files_beside_classes();
    folder_remove();
    return 0;
}
