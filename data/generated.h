/* What the generated data sets share (synthetic.c). */
#ifndef DT_DATA_GENERATED_H
#define DT_DATA_GENERATED_H

#include "data/dataset.h"

/* A count of generated samples, and their memory, size and crc. */
enum dt_status dt_generated_count(const struct dt_data_spec *spec, enum dt_split split,
                                  size_t *n_total);
enum dt_status dt_generated_open(const struct dt_data_spec *spec, enum dt_split split,
                                 struct dt_owned owned, size_t n_item_bytes, size_t n_answer_bytes,
                                 enum dt_data_format format, struct dt_dataset *out);

/* About standard normal, and exact: the sum of a random word's four bytes. */
float dt_generated_normal(uint32_t word);

#endif
