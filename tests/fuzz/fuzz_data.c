/* Any bytes as the files of a data set, read as training reads them, from a folder: an error with a
 * text, or samples whose labels are classes and of which every rank has its own. The first byte
 * chooses the format, a limit, and whether some are held out for validation; then come files: the
 * number of a name, how many bytes (two bytes, little-endian), and those bytes. */
#include "data/dataset.h"
#include "data/idx.h"
#include "data/validation_split.h"
#include "tests/fuzz/fuzz.h"

#include <fcntl.h>
#include <sys/stat.h>

#define MOST_SAMPLES 4096

static const struct dt_data_spec formats[] = {
    {.row = &dt_idx_data, .shape = {1, 2, 3}, .n_classes = 3, .refuse = dt_idx_refuse},
    {.row = &dt_cifar_data, .shape = {3, 32, 32}, .n_classes = 100},
    {.row = &dt_npy_data, .shape = {3, 2, 4}, .n_classes = 300},
    {.row = &dt_images_data, .shape = {1, 3, 2}, .n_classes = 2},
    {.row = &dt_csv_data, .format = DT_DATA_CSV, .shape = {2, 1, 1}, .n_classes = 2, .label = "l"},
    {.row = &dt_csv_data,
     .format = DT_DATA_CSV,
     .shape = {2, 1, 1},
     .n_targets = 1,
     .target = {1, "t"}},
    {.row = &dt_csv_data, .format = DT_DATA_CSV, .shape = {1, 2, 2}, .n_classes = 2, .label = "l"},
    {.row = &dt_npy_data, .shape = {3, 1, 1}, .n_targets = 2},
};

static const char *const names[] = {"train-images-idx3-ubyte",
                                    "train-labels-idx1-ubyte",
                                    "train-labels-idx1-ubyte.gz",
                                    "train.bin",
                                    "train.bin.gz",
                                    "data_batch_1.bin",
                                    "data_batch_2.bin",
                                    "data_batch_3.bin.gz",
                                    "data_batch_4.bin",
                                    "data_batch_5.bin",
                                    "train-images.npy",
                                    "train-images.npy.gz",
                                    "train-labels.npy",
                                    "train.npz",
                                    "train/a/1",
                                    "train/a/2",
                                    "train/b/1",
                                    "train/b/2",
                                    "train.csv"};
#define N_NAMES (sizeof names / sizeof names[0])

static char folder[] = "/tmp/dtrain-fuzz-XXXXXX";

static void remove_all(void)
{
    for (size_t i = 0; i < N_NAMES; i++) {
        unlink(names[i]);
    }
}

static void leave(void)
{
    remove_all();
    require(rmdir("train/a") == 0 && rmdir("train/b") == 0 && rmdir("train") == 0);
    require(chdir("/") == 0 && rmdir(folder) == 0);
}

static void enter(void)
{
    require(mkdtemp(folder) != NULL && chdir(folder) == 0);
    require(mkdir("train", 0700) == 0 && mkdir("train/a", 0700) == 0 &&
            mkdir("train/b", 0700) == 0);
    atexit(leave);
}

static void write_files(const uint8_t *bytes, size_t n_bytes)
{
    remove_all();
    while (n_bytes >= 3) {
        const size_t n_said = bytes[1] | (size_t)bytes[2] << 8,
                     n = n_said < n_bytes - 3 ? n_said : n_bytes - 3;
        const int fd = open(names[bytes[0] % N_NAMES], O_WRONLY | O_CREAT | O_TRUNC, 0600);
        require(fd >= 0 && write(fd, bytes + 3, n) == (ssize_t)n && close(fd) == 0);
        bytes += 3 + n;
        n_bytes -= 3 + n;
    }
}

/* The share of a rank; false: an error, which has a text. */
static int open_share(const struct dt_data_spec *spec, enum dt_split split, size_t n_total,
                      uint32_t first, uint32_t stride, struct dt_dataset *out)
{
    const struct dt_owned owned = {
        .n = (n_total - first + stride - 1) / stride, .first = first, .stride = stride};
    const enum dt_status s = dt_dataset_open(spec, split, owned, out);
    require(s == DT_OK || s == DT_BAD_DATA || s == DT_NO_MEMORY || s == DT_UNAVAILABLE);
    require(s == DT_OK || dt_error_text()[0] != '\0');
    require(s != DT_OK || (out->samples.n == owned.n && out->samples.n_total == n_total));
    return s == DT_OK;
}

/* That two ranks have between them what one has. */
static void compare(const struct dt_dataset *whole, const struct dt_dataset *share)
{
    const bool numbers = whole->samples.values != NULL, targets = whole->samples.targets != NULL;
    const size_t n_item = dt_shape_elems(whole->samples.shape) * (numbers ? sizeof(float) : 1),
                 n_answer = targets ? (size_t)whole->samples.n_targets * sizeof(float)
                                    : sizeof *whole->samples.labels;
    require(share->crc == whole->crc);
    for (size_t i = 0; i < share->samples.n; i++) {
        const size_t at = share->samples.first_id + i * share->samples.id_stride;
        require(memcmp((char *)share->answers + i * n_answer,
                       (char *)whole->answers + at * n_answer, n_answer) == 0);
        require(targets || share->samples.labels[i] < whole->samples.n_classes);
        require(memcmp((char *)share->items + i * n_item, (char *)whole->items + at * n_item,
                       n_item) == 0);
    }
}

static void read_split(const struct dt_data_spec *spec, enum dt_split split)
{
    struct dt_dataset whole, share;
    size_t n_total = 0;
    dt_error_clear();
    const enum dt_status s = dt_dataset_count(spec, split, &n_total);
    require(s == DT_OK || s == DT_BAD_DATA || s == DT_NO_INPUT || s == DT_NO_MEMORY ||
            s == DT_CONFIG);
    require(s == DT_OK || dt_error_text()[0] != '\0');
    if (s != DT_OK || n_total > MOST_SAMPLES || !open_share(spec, split, n_total, 0, 1, &whole)) {
        return;
    }
    for (uint32_t rank = 0; rank < 2; rank++) {
        require(open_share(spec, split, n_total, rank, 2, &share));
        compare(&whole, &share);
        dt_dataset_close(&share);
    }
    dt_dataset_close(&whole);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes)
{
    static int entered;
    if (n_bytes == 0) {
        return 0;
    }
    if (!entered++) {
        enter();
    }
    struct dt_data_spec spec = formats[bytes[0] % 4 + (bytes[0] & 32 ? 4 : 0)];
    const bool validates = (bytes[0] & 16) != 0;
    spec.dir[0] = '.';
    spec.n_train = bytes[0] / 4 % 4;
    spec.whole = spec.row;
    spec.row = validates ? &dt_validation_data : spec.row;
    spec.validation = validates ? 0.5 : 0;
    write_files(bytes + 1, n_bytes - 1);
    read_split(&spec, DT_SPLIT_TRAIN);
    if (validates) {
        read_split(&spec, DT_SPLIT_VALIDATION);
    }
    return 0;
}
