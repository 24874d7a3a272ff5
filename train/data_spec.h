/* What the data must look like for a model, and where --data says it is. */
#ifndef DT_TRAIN_DATA_SPEC_H
#define DT_TRAIN_DATA_SPEC_H

#include "data/dataset.h"
#include "model/block.h"

/* Shape and number of classes or targets, from the model: what differs in a
 * file, or what the format cannot give, is then an error of dt_dataset_count and dt_dataset_open.
 */
void dt_data_spec_fit(struct dt_data_spec *spec, const struct dt_model *model);

/* --data DIR. NULL changes nothing. DT_USAGE: the path is too long, or the data are generated. */
enum dt_status dt_data_spec_set_dir(struct dt_data_spec *spec, const char *dir);

#endif
