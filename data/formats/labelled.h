/* What the formats of labelled images share, beside data/dataset.h: a rank keeps its rows alone,
 * and reads and checks all labels, so that all ranks find the same fault. */
#ifndef DT_DATA_FORMATS_LABELLED_H
#define DT_DATA_FORMATS_LABELLED_H

#include "data/dataset.h"
#include "data/formats/folder.h"

/* A path below `dir`. DT_CONFIG: it is too long. */
enum dt_status dt_labelled_path(const char *dir, const char *name, char path[DT_PATH_SIZE]);

/* The path of `name`, or else of `name`.gz; "": neither is there. */
enum dt_status dt_labelled_find(const char *dir, const char *name, char path[DT_PATH_SIZE]);

/* The first of n_total samples, as the configuration limits them. */
size_t dt_labelled_count(const struct dt_data_spec *spec, enum dt_split split, size_t n_there);

/* What is measured while a set of numbers is read: names of columns and classes, and for means and
 * deviations the sums of the numbers' distances from the first one. One block of memory. */
struct dt_found {
    struct dt_texts features, classes; /* of a table */
    struct dt_tally {
        int n; /* numbers with a mean of their own */
        double count, first[DT_MOST_SCALED], sum[DT_MOST_SCALED], squares[DT_MOST_SCALED];
    } tally[2]; /* as spec->scale */
};
/* Fills in what the configuration leaves open, for the other sets. */
void dt_found_take(const struct dt_found *found, struct dt_data_spec *spec);

/* Allocates the rank's rows, of pixels or of numbers (`values`), and their labels or targets; sets
 * n_total. `path` is for messages. DT_NO_MEMORY. DT_BAD_DATA: fewer samples than were counted, or
 * another kind of numbers than in the training set. */
enum dt_status dt_labelled_alloc(const struct dt_data_spec *spec, const char *path, size_t n_total,
                                 bool values, struct dt_owned owned, struct dt_dataset *out);

/* Where sample i of the data set goes, C H W; NULL: another rank has it. */
uint8_t *dt_labelled_row(const struct dt_data_spec *spec, struct dt_owned owned, size_t i,
                         struct dt_dataset *out);

/* Checks the label of sample i, keeps it if this rank has the sample, and adds it to the CRC, as a
 * byte where all classes are bytes, as IDX has them. `where` names file and place: "FILE: label 12
 * at index 3, ...". */
enum dt_status dt_labelled_take(const struct dt_data_spec *spec, const char *path,
                                struct dt_owned owned, size_t i, int64_t label,
                                struct dt_dataset *out);

/* A check: images of these sizes, the first of which is their number, and so many labels. */
enum dt_status dt_labelled_check_count(const char *images, const size_t *dims, int n_dims,
                                       const char *labels, size_t n_labels);

/* Takes the inputs (C, H, W) of sample i or its targets (_numbers), its class or targets (_answer).
 * Measures them, and keeps the rank's own. DT_BAD_DATA: not finite, or no pixel. */
enum dt_status dt_labelled_numbers(const struct dt_data_spec *spec, const char *path,
                                   struct dt_owned owned, size_t i, bool targets, const double *x,
                                   struct dt_dataset *out);
enum dt_status dt_labelled_answer(const struct dt_data_spec *spec, const char *path,
                                  struct dt_owned owned, size_t i, const double *x,
                                  struct dt_dataset *out);
/* After the last sample: normalizes the n samples of this rank, and sets out->variance. */
enum dt_status dt_labelled_settle(const struct dt_data_spec *spec, enum dt_split split, size_t n,
                                  struct dt_dataset *out);

/* A format's check: of classes, or of targets. */
enum dt_status dt_labelled_check(const struct dt_data_spec *spec);

#endif
