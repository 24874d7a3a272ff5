/* A data set in memory: IDX files, or generated. This rank holds only the rows it owns. */
#ifndef DT_DATA_DATASET_H
#define DT_DATA_DATASET_H

#include "base/clock.h"
#include "base/file_open.h"
#include "base/texts.h"
#include "data/shard.h"

/* idx:       the four files train-images-idx3-ubyte ... of a folder, raw or .gz
 * synthetic: images of `n_classes` classes, each a fixed random pattern plus noise: learnable
 * linear:    y = slope * x + intercept + noise with x uniform in [-1, 1]: one input, one target
 * cifar:     the binary files of CIFAR-10 or CIFAR-100 (formats/cifar.c), raw or .gz
 * npy:       NumPy's arrays, train-images.npy ... or train.npz and test.npz (formats/npy_set.c)
 * csv:       tables, train.csv and test.csv (formats/csv.c)
 * images:    a folder for each class below train/ and test/ (formats/images.c) */
#define DT_DATA_FORMAT_LIST(X)                           \
    X(DT_DATA_IDX, "idx", dt_idx_data)                   \
    X(DT_DATA_SYNTHETIC, "synthetic", dt_synthetic_data) \
    X(DT_DATA_LINEAR, "linear", dt_linear_data)          \
    X(DT_DATA_CIFAR, "cifar", dt_cifar_data)             \
    X(DT_DATA_NPY, "npy", dt_npy_data)                   \
    X(DT_DATA_IMAGES, "images", dt_images_data)          \
    X(DT_DATA_CSV, "csv", dt_csv_data)
enum dt_data_format { DT_DATA_FORMAT_LIST(DT_NAMED_ENUM) };

enum dt_split { DT_SPLIT_TRAIN, DT_SPLIT_TEST, DT_SPLIT_VALIDATION }; /* data/validation_split.h */

/* What is done to pixels (data/transform.h). A channel becomes (pixel / 255 - mean) / std,
 * of_dataset: by the training images' own numbers, not known yet; and training images are changed
 * at random. */
#define DT_MOST_CHANNELS 16
#define DT_MOST_SCALED 4096 /* channels, or features, that are no pixels */
#define DT_MOST_AUGMENTS 8
struct dt_normalize {
    int n; /* channels; 0: not normalized */
    bool of_dataset;
    double mean[DT_MOST_SCALED], std[DT_MOST_SCALED];
};
/* How images of any size become model.input's: not at all; without regard to their proportions; all
 * of the image, with the background beside it; or all of model.input, with what is in the middle.
 */
#define DT_RESIZE_LIST(X)           \
    X(DT_RESIZE_NONE, "none")       \
    X(DT_RESIZE_STRETCH, "stretch") \
    X(DT_RESIZE_FIT, "fit")         \
    X(DT_RESIZE_CROP, "crop")
enum dt_resize { DT_RESIZE_LIST(DT_NAMED_ENUM) };
struct dt_augment {
    int n, kind[DT_MOST_AUGMENTS], size[DT_MOST_AUGMENTS]; /* size of shift and crop, pixels */
};

struct dt_data_spec;
struct dt_dataset;
struct dt_bad_images;
struct dt_world;
struct dt_found;

/* A format. All slots are mandatory. */
struct dt_data_reader {
    bool generated; /* without files */
    /* Whether it goes with the model: shape, n_classes, n_targets. DT_CONFIG. */
    enum dt_status (*check)(const struct dt_data_spec *spec);
    enum dt_status (*count)(const struct dt_data_spec *spec, enum dt_split split, size_t *n_total);
    /* Sets items, answers, crc, class_names and n_total of a zeroed data set, and values or targets
     * where these are no pixels or labels. The caller closes it, also after a failure. */
    enum dt_status (*load)(const struct dt_data_spec *spec, enum dt_split split,
                           struct dt_owned owned, struct dt_dataset *out);
};
extern const struct dt_data_reader dt_idx_data, dt_synthetic_data, dt_linear_data, dt_cifar_data,
    dt_npy_data, dt_images_data, dt_csv_data;

struct dt_data_spec {
    const struct dt_data_reader *row, *whole; /* whole: the format, where `validation` is above 0 */
    enum dt_data_format format;               /* of a configuration: its name */
    char dir[DT_PATH_SIZE];                   /* of files */
    size_t n_train, n_test; /* generated: how many; files: at most so many, 0 = all */
    double validation, slope, intercept, noise; /* a line: the last three; synthetic: noise */
    uint64_t seed, split_seed;                  /* generated; of the validation samples */
    /* idx: of struct dt_idx_reader (data/idx.h). */
    enum dt_status (*refuse)(const char *path, const uint8_t *head, size_t n_head,
                             int n_dims_wanted);
    enum dt_resize resize;     /* images, as the next four */
    int background;            /* a grey, -1 white, -2 black; see dt_background */
    double test;               /* the share of each class that is the test set; 0 or below: none */
    int64_t skip_bad;          /* so many that cannot be read are left out */
    struct dt_bad_images *bad; /* gathers them (data/bad_images.h); NULL: they are an error */
    /* dt_bad_images_agree (train/bad_images.h), with `bad`; NULL: nothing is ever left out. */
    enum dt_status (*settle)(struct dt_world *world, const struct dt_data_spec *spec, bool *again);
    struct dt_texts classes;          /* printable names; none: as the files say */
    struct dt_texts features, target; /* csv: columns, as `label`; no features: all numbers */
    char label[64];
    bool unanswered; /* csv: the test set is the file `dir`, without labels and targets */
    /* Of pixels; and of other numbers, inputs and targets: (number - mean) / std, n 0: not known.
     */
    struct dt_normalize normalize, scale[2];
    struct dt_augment augment; /* of training images; keyed by augment_seed */
    uint64_t augment_seed;
    /* dt_transform_open; NULL: pixels are only scaled. */
    enum dt_status (*transform)(const struct dt_data_spec *spec, enum dt_split split,
                                struct dt_transform **out);
    /* The model's expectation; a file that differs is DT_BAD_DATA, naming both. */
    struct dt_shape shape;
    int n_classes; /* 0: regression, n_targets outputs */
    int n_targets;
    const uint8_t *held; /* a bit for each training sample: validation_split.c; NULL: none is */
    bool counts_held;
    struct dt_alive alive; /* shown while samples are loaded or generated, but for the time in which
                              a file is read */
};

/* What is behind transparent pixels and beside images that are fitted in, 0..255. */
static inline uint8_t dt_background(const struct dt_data_spec *spec)
{
    return spec->background == -1 ? 255 : spec->background == -2 ? 0 : (uint8_t)spec->background;
}

struct dt_dataset {
    struct dt_samples samples;
    uint32_t crc;       /* CRC-32 of all labels of the split, whoever owns them; generated: of what
                           generates them */
    size_t n_passed;    /* files of the split, of all ranks', that are no images by their names */
    char left_out[128]; /* columns that are no numbers */
    size_t n_flawed;   /* images that were read here and break a rule of JPEG but have all pixels */
    char *class_names; /* "cat/dog": printable, in the order of their numbers; NULL: there are none,
                          or more than DT_CLASS_NAMES_MOST bytes */
    struct dt_found *found; /* of numbers, or a table (data/formats/labelled.h) */
    double variance;        /* of the targets as they are scaled, by their mean; 0: none are */
    /* private: what `samples` points to */
    void *items;
    void *answers;
    struct dt_transform *transform;
};

/* How many samples the split has in all, from headers alone. DT_CONFIG: the format does not go with
 * the model. */
enum dt_status dt_dataset_count(const struct dt_data_spec *spec, enum dt_split split,
                                size_t *n_total);

/* Loads the rows `owned` of a split, as dt_shard_owned says for dt_dataset_count samples. All
 * labels are checked, whoever owns them. A failed open owes nothing. Without rows it checks the
 * files alone. */
enum dt_status dt_dataset_open(const struct dt_data_spec *spec, enum dt_split split,
                               struct dt_owned owned, struct dt_dataset *out);
void dt_dataset_close(struct dt_dataset *dataset);

/* Equal fingerprints show that samples have not changed, to the bit and in their places. A sum,
 * modulo 2^64, of one hash (XXH3-64, xxHash library) for each sample here whose number is `part`
 * modulo n_parts: of its number, its pixels or values, and its label or targets. The sums of all
 * parts add up to the same at any number of parts, whoever has which samples. */
uint64_t dt_fingerprint(const struct dt_samples *samples, uint32_t part, uint32_t n_parts);

/* ---- for formats */

/* n_train or n_test. */
size_t dt_dataset_limit(const struct dt_data_spec *spec, enum dt_split split);

/* "cat/dog"; NULL: out of memory. */
char *dt_class_names_join(const struct dt_texts *classes);

/* A check: the model needs classes. */
enum dt_status dt_dataset_check_labelled(const struct dt_data_spec *spec);

/* A check of the files' images against the model. DT_BAD_DATA. */
enum dt_status dt_dataset_check_shape(const struct dt_data_spec *spec, enum dt_split split,
                                      const char *path, size_t c, size_t h, size_t w);

/* A check of label i of a file. DT_BAD_DATA: the model has no such class. */
enum dt_status dt_label_check(const struct dt_data_spec *spec, const char *path, size_t i,
                              int64_t label);

/* ---- for generated data sets (synthetic.c has them) */

/* A count of generated samples, and their memory, size and crc. */
enum dt_status dt_generated_count(const struct dt_data_spec *spec, enum dt_split split,
                                  size_t *n_total);
enum dt_status dt_generated_open(const struct dt_data_spec *spec, enum dt_split split,
                                 struct dt_owned owned, size_t n_item_bytes, size_t n_answer_bytes,
                                 enum dt_data_format format, struct dt_dataset *out);

/* About standard normal, and exact: the sum of a random word's four bytes. */
float dt_generated_normal(uint32_t word);

#endif
