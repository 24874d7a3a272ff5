/* A rank's share of a data set: the samples, the backend's view of them, and who hands out their
 * batches. */
#ifndef DT_TRAIN_SAMPLE_SET_H
#define DT_TRAIN_SAMPLE_SET_H

#include "data/dataset.h"
#include "data/loader.h"
#include "model/backend.h"

struct dt_sample_set {
    struct dt_dataset data;
    struct dt_bound_samples *samples;
    struct dt_loader loader;
};

static inline void dt_sample_set_close(struct dt_sample_set *set, struct dt_backend *backend)
{
    if (set->samples != NULL) {
        backend->ops->samples_close(backend, set->samples);
        set->samples = NULL;
    }
    dt_loader_close(&set->loader);
    dt_dataset_close(&set->data);
}

#endif
