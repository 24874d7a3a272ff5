/* Images that cannot be read: of one rank, and of all once they have told each other
 * (train/bad_images.c). A configuration may allow some, which are then left out of their split,
 * whichever rank found them. */
#ifndef DT_DATA_BAD_IMAGES_H
#define DT_DATA_BAD_IMAGES_H

#include "base/status.h"
#include "data/dataset.h"

struct dt_bad_images {
    char *lines; /* a line for each that nobody has decided about; NULL: none */
    size_t n_bytes;
    uint32_t *skipped[2]; /* the numbers of those that are left out, of a split, ascending */
    size_t n_skipped[2];
    char *told; /* their names and faults, or NULL */
};

/* Takes the waiting error, which is of image `id` of the split, of this name in `folder`. */
enum dt_status dt_bad_note(struct dt_bad_images *bad, enum dt_split split, size_t id,
                           const char *folder, const char *name);
/* Adds other lines. */
enum dt_status dt_bad_add(struct dt_bad_images *bad, const char *lines, size_t n_bytes);
/* Decides about the lines: no more than `most` may be left out in all. DT_BAD_DATA: there are
 * more, and the text names them. */
enum dt_status dt_bad_decide(struct dt_bad_images *bad, size_t most);
/* The number of an image by its number among those that are left. */
size_t dt_bad_pass(const struct dt_bad_images *bad, enum dt_split split, size_t i);
void dt_bad_close(struct dt_bad_images *bad);

#endif
