/* A set of samples in memory, as the data room hands it to a backend: plain pointers, no behaviour.
 * Legend used everywhere: N samples, C channels, H height, W width; K filters, R S kernel. */
#ifndef DT_BASE_SAMPLES_H
#define DT_BASE_SAMPLES_H

#include <stddef.h>
#include <stdint.h>

#define DT_CLASS_NAMES_MOST ((size_t)128 << 10) /* bytes of the names of all classes */

struct dt_shape { /* one sample's activations; canonical order is C H W */
    int c, h, w;
};

static inline size_t dt_shape_elems(struct dt_shape s)
{
    return (size_t)s.c * (size_t)s.h * (size_t)s.w;
}

/* What is done to pixels on their way to a network, in place of `scale` (base/transform.h). */
struct dt_transform {
    /* Writes x (C, H, W) of an image (C, H, W), by plain loops. */
    void (*apply)(const struct dt_transform *transform, const uint8_t *pixels, uint32_t epoch,
                  uint32_t id, float *x);
};

/* Owned by the data room. Exactly one of `pixels` and `values` is set; exactly one of `labels` and
 * `targets`. Row i here is sample `first_id + i * id_stride` of the whole data set: that number
 * keys everything random. */
struct dt_samples {
    size_t n;
    struct dt_shape shape;
    const uint8_t *pixels;                /* (n, C, H, W); value = pixel * scale */
    const float *values;                  /* (n, C, H, W) */
    float scale;                          /* 1/255 for images */
    const struct dt_transform *transform; /* of pixels; NULL: none */
    const uint16_t *labels;               /* (n) class numbers */
    int n_classes;                        /* 0 for regression */
    const float *targets;                 /* (n, n_targets) */
    int n_targets;
    size_t n_total; /* samples of the whole data set, over all ranks */
    uint32_t first_id;
    uint32_t id_stride;
};

/* One rank's part of a step. The arrays belong to the loader and live until its next batch. */
struct dt_batch {
    int n; /* 0 .. capacity; 0 when this rank ran out before the others */
    const uint32_t
        *rows; /* (n) rows of dt_samples; host memory, but for steps that a GPU takes on its own */
    const uint32_t *ids;        /* (n) the samples' numbers in the whole data set */
    uint32_t epoch;             /* from 0 */
    const float *class_weights; /* of each class: factors of its samples' losses in training; NULL:
                                   all 1 */
};

#endif
