/* Validation samples: a part of the training samples that is held out, for early stopping and the
 * like to go by. `row` of a struct dt_data_spec is then this one, and its `whole` is the format.
 *
 * Which samples those are is a function of the seed and of their number alone: the same on any
 * number of ranks, and in a resumed run. Both parts are numbered from 0 in the order of the
 * whole; formats only ever hear of the whole, of which they are asked for a few parts one after
 * the other, so that a rank never holds much more than its own share. */
#ifndef DT_DATA_VALIDATION_SPLIT_H
#define DT_DATA_VALIDATION_SPLIT_H

#include "data/dataset.h"

extern const struct dt_data_reader dt_validation_data;

/* How many of n_total training samples `validation` holds out: a share below 1, or a number.
 * DT_CONFIG: none, or all of them. */
enum dt_status dt_validation_count(double validation, size_t n_total, size_t *out);

/* The same data without validation samples: its test set is what an evaluator then takes. */
struct dt_data_spec dt_validation_none(const struct dt_data_spec *spec);

#endif
