/* `dtrain lab model-parallel`: its results, text and page. */
#ifndef DT_LAB_MODEL_PARALLEL_H
#define DT_LAB_MODEL_PARALLEL_H

#include "lab/golden.h"
#include "train/config.h"

#define DT_PARALLEL_MAX_DEVICES 8
#define DT_PARALLEL_MICRO_BATCHES 8 /* of the pipeline */

enum {
    DT_PARALLEL_LAYERS,
    DT_PARALLEL_PIPELINE,
    DT_PARALLEL_SLICES,
    DT_PARALLEL_DATA,
    DT_PARALLEL_WAYS
};

/* Blocks [begin, end) on one device, and their forward work per sample. */
struct dt_parallel_stage {
    int begin, end;
    double flops;
};

struct dt_parallel_way {
    const char *name, *meaning;
    double bytes;   /* between devices, all messages of a step */
    double at_once; /* devices that compute at the same time, on average */
};

struct dt_parallel_lesson {
    struct dt_config config;
    struct dt_model model;
    int n_devices, n_stages; /* at most as many stages as blocks */
    size_t batch;            /* samples per step */
    double flops;            /* per sample, forward */
    struct dt_parallel_stage stages[DT_PARALLEL_MAX_DEVICES];
    struct dt_parallel_way ways[DT_PARALLEL_WAYS];
    double even; /* at_once of the pipeline if all stages took equally long */
    struct dt_golden golden;
};

enum dt_status dt_parallel_page(const char *path, const struct dt_parallel_lesson *lesson);

#endif
