/* What a configuration has done to the pixels of images: base/transform.h from data.normalize and
 * data.augment. */
#ifndef DT_DATA_TRANSFORM_H
#define DT_DATA_TRANSFORM_H

#include "data/dataset.h"

/* The kinds of a struct dt_augment: moved by -size to size pixels down and right; mirrored left to
 * right by half of the chances; cut from the image with so much black around it, which is the same
 * as moved; rotated by -size to size degrees; without a square of this side. */
#define DT_AUGMENT_LIST(X)         \
    X(DT_AUGMENT_SHIFT, "shift")   \
    X(DT_AUGMENT_FLIP, "flip")     \
    X(DT_AUGMENT_CROP, "crop")     \
    X(DT_AUGMENT_ROTATE, "rotate") \
    X(DT_AUGMENT_CUTOUT, "cutout")
enum dt_augment_kind { DT_AUGMENT_LIST(DT_NAMED_ENUM) };

/* For struct dt_data_spec's `transform`: the transform of a split's images, whose one block of
 * memory is freed by free(); NULL: they are only scaled. Only training images are augmented. An
 * answer that is not known yet (of_dataset) leaves them as they are. DT_CONFIG: it does not go with
 * the model's input. */
enum dt_status dt_transform_open(const struct dt_data_spec *spec, enum dt_split split,
                                 struct dt_transform **out);

/* Sums over all pixels of one channel: exact. */
struct dt_channel_sums {
    uint64_t n, sum, squares;
};

/* Adds the samples' pixels to `sums` (C). */
void dt_channel_sums_add(const struct dt_samples *samples, struct dt_channel_sums *sums);

/* Mean and standard deviation (of all, not of a sample) of pixels / 255. DT_BAD_DATA: a channel is
 * the same everywhere. */
enum dt_status dt_normalize_of(const struct dt_channel_sums *sums, int n_channels,
                               struct dt_normalize *out);

#endif
