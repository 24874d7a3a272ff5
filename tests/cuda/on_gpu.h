/* For tests of the cuda backend on fake CUDA: the three precisions with their tolerances, and
 * conversion between the device (the backend's order and type) and canonical order in float. */
#ifndef DT_TESTS_ON_GPU_H
#define DT_TESTS_ON_GPU_H

#include "tests/fakecuda/fake.h"
#include "tests/lib/guarded.h"
#include "tests/lib/session.h"

#include "cuda/cuda_backend.h"

struct mode {
    const char *name;
    enum dt_precision precision;
    double tolerance;
};

static const struct mode modes[] = {{"f32", DT_PRECISION_F32, 1e-5},
                                    {"tf32", DT_PRECISION_TF32, 5e-3},
                                    {"bf16", DT_PRECISION_BF16, 2e-2}};
#define N_MODES (sizeof modes / sizeof modes[0])

static inline struct dt_backend *open_gpu_by(const struct mode *mode, bool deterministic)
{
    const struct dt_backend_options options = {
        .n_threads = 1, .precision = mode->precision, .deterministic = deterministic};
    struct dt_backend *backend;
    CHECK_OK(dt_cuda_backend.open(&options, &backend));
    return backend;
}

static inline struct dt_backend *open_gpu(const struct mode *mode)
{
    return open_gpu_by(mode, true);
}

/* Device memory for `capacity` samples of shape s, filled with the given ones, and NaNs after
 * them. */
static inline float *to_gpu(struct dt_backend *backend, const struct buffer *canonical,
                            struct dt_shape s, int capacity, bool bf16)
{
    const size_t n = (size_t)capacity * dt_shape_elems(s), n_bytes = n * (bf16 ? 2 : 4);
    struct buffer hwc = turned(canonical, s, true);
    void *device;
    float *all = malloc(n * sizeof *all + 1);
    uint16_t *halves = malloc(n * sizeof *halves + 1);
    CHECK(all != NULL && halves != NULL && canonical->n <= n);
    for (size_t i = 0; i < n; i++) {
        all[i] = i < hwc.n ? hwc.data[i] : NAN;
        halves[i] = to_bf16(all[i]);
    }
    CHECK_OK(backend->ops->alloc(backend, n_bytes, &device));
    CHECK_OK(backend->ops->copy_in(backend, device, bf16 ? (void *)halves : (void *)all, n_bytes));
    free(all);
    free(halves);
    buffer_close(&hwc, "a turned buffer");
    return device;
}

/* Copies back the first n samples, in canonical order. */
static inline struct buffer from_gpu(struct dt_backend *backend, const void *device,
                                     struct dt_shape s, int n, bool bf16)
{
    struct buffer hwc = buffer_open((size_t)n * dt_shape_elems(s));
    uint16_t *halves = malloc(hwc.n * sizeof *halves + 1);
    CHECK(halves != NULL);
    CHECK_OK(backend->ops->copy_out(backend, bf16 ? (void *)halves : (void *)hwc.data, device,
                                    hwc.n * (bf16 ? 2 : 4)));
    for (size_t i = 0; bf16 && i < hwc.n; i++) {
        hwc.data[i] = from_bf16(halves[i]);
    }
    free(halves);
    struct buffer canonical = turned(&hwc, s, false);
    buffer_close(&hwc, "a buffer from the device");
    return canonical;
}

/* The largest absolute value, and at least 1: rounding errors of a sum scale with its terms, not
 * with its result. */
static inline double scale_of(const struct buffer *b)
{
    double largest = 1;
    for (size_t i = 0; i < b->n; i++) {
        const double size = fabs((double)b->data[i]);
        largest = isfinite(size) ? fmax(largest, size) : largest;
    }
    return largest;
}

static inline void compare_within(const struct mode *mode, const char *what,
                                  const struct buffer *actual, const struct buffer *expected)
{
    const double scale = scale_of(expected);
    CHECK_INT(actual->n, expected->n);
    for (size_t i = 0; i < actual->n; i++) {
        const double a = (double)actual->data[i], e = (double)expected->data[i];
        const bool same =
            a == e || (isnan(a) && isnan(e)) || fabs(a - e) <= mode->tolerance * scale;
        CHECK_MESSAGE(same, "%s, %s: %s[%zu] is %.9g, the reference has %.9g", mode->name,
                      case_text, what, i, a, e);
    }
}

#endif
