/* Numbers of the kernels' types, in guarded device memory, for tests of kernels. */
#ifndef DT_TESTS_FAKECUDA_NUMBERS_H
#define DT_TESTS_FAKECUDA_NUMBERS_H

#include "tests/lib/guarded.h"
#include "tests/lib/temporary.h"

#include "cuda/kernels/kernels.h"

#define OK(call) CHECK_INT(call, cudaSuccess)
#define GUARD_BYTES 256 /* on both sides; keeps the alignment */

static cudaStream_t stream;

static inline size_t type_bytes(enum dt_gpu_type type)
{
    return type == DT_GPU_F32 ? 4 : 2;
}

/* ---- device memory with guards */

struct device {
    size_t n_bytes, shift; /* shift: bytes by which it misses its alignment */
    unsigned char *memory;
    void *data;
};

static inline unsigned char guard_byte(size_t i)
{
    return (unsigned char)(i * 37 + 11);
}

/* Device memory with these bytes; from NULL: NaNs of every type, which no result may keep. */
__attribute__((unused)) static struct device device_open(const void *from, size_t n_bytes,
                                                         size_t shift)
{
    struct device d = {.n_bytes = n_bytes, .shift = shift};
    const size_t n_all = 2 * GUARD_BYTES + shift + n_bytes;
    unsigned char *all = temporary(n_all);
    for (size_t i = 0; i < n_all; i++) {
        all[i] = guard_byte(i);
    }
    memset(all + GUARD_BYTES + shift, 0xff, n_bytes);
    if (from != NULL && n_bytes > 0) {
        memcpy(all + GUARD_BYTES + shift, from, n_bytes);
    }
    void *memory;
    OK(cudaMalloc(&memory, n_all));
    d.memory = memory;
    d.data = d.memory + GUARD_BYTES + shift;
    OK(cudaMemcpyAsync(d.memory, all, n_all, cudaMemcpyHostToDevice, stream));
    OK(cudaStreamSynchronize(stream));
    return d;
}

/* Checks the guards, and copies the bytes to `to` (NULL: discards them). */
static inline void device_close(struct device *d, void *to)
{
    const size_t begin = GUARD_BYTES + d->shift, n_all = begin + d->n_bytes + GUARD_BYTES;
    unsigned char *all = temporary(n_all);
    OK(cudaMemcpyAsync(all, d->memory, n_all, cudaMemcpyDeviceToHost, stream));
    OK(cudaStreamSynchronize(stream));
    OK(cudaFree(d->memory));
    for (size_t i = 0; i < n_all; i++) {
        CHECK_MESSAGE((i >= begin && i < begin + d->n_bytes) || all[i] == guard_byte(i),
                      "%s: byte %ld outside of a result of %zu bytes was overwritten", case_text,
                      (long)(i - begin), d->n_bytes);
    }
    if (to != NULL) {
        memcpy(to, all + begin, d->n_bytes);
    }
}

static inline struct device numbers_open(const float *from, size_t n, enum dt_gpu_type type,
                                         size_t shift)
{
    if (type == DT_GPU_F32 || from == NULL) {
        return device_open(from, n * type_bytes(type), shift);
    }
    uint16_t *halves = temporary(n * sizeof *halves);
    for (size_t i = 0; i < n; i++) {
        halves[i] = to_bf16(from[i]);
    }
    return device_open(halves, n * sizeof *halves, shift);
}

static inline void numbers_close(struct device *d, enum dt_gpu_type type, size_t n, float *to)
{
    if (type == DT_GPU_F32) {
        device_close(d, to);
        return;
    }
    uint16_t *halves = temporary(n * sizeof *halves);
    device_close(d, halves);
    for (size_t i = 0; i < n; i++) {
        to[i] = from_bf16(halves[i]);
    }
}

/* For struct dt_gpu_gradients: its counters start at zero, and must be zero again at the end; the
 * rest is arbitrary. */
static inline struct device scratch_open(size_t n)
{
    enum { N_COUNTS = 64 };
    float *zeros = temporary(n * sizeof *zeros);
    CHECK(n >= N_COUNTS);
    memset(zeros + N_COUNTS, 0xff, (n - N_COUNTS) * sizeof *zeros);
    return device_open(zeros, n * sizeof *zeros, 0);
}

static inline void scratch_close(struct device *d)
{
    float *after = temporary(d->n_bytes);
    device_close(d, after);
    CHECK(after[0] == 0);
}

static inline void devices_close(struct device *const *all, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        device_close(all[i], NULL);
    }
}

#define DEVICES_CLOSE(...)                          \
    devices_close((struct device *[]){__VA_ARGS__}, \
                  sizeof(struct device *[]){__VA_ARGS__} / sizeof(struct device *))

/* Zeros, until temporaries_end. */
static inline float *floats(size_t n)
{
    return temporary((n + 1) * sizeof(float));
}

static inline float *random_floats(size_t n, int largest)
{
    float *x = floats(n);
    for (size_t i = 0; i < n; i++) {
        x[i] = draw_eighths(largest);
    }
    return x;
}

static inline void same_bits(const char *what, const float *a, const float *b, size_t n)
{
    CHECK_MESSAGE(memcmp(a, b, n * sizeof *a) == 0, "%s: %s differs from call to call", case_text,
                  what);
}

static inline void near(const char *what, const float *actual, const float *expected, size_t n,
                        double tolerance)
{
    for (size_t i = 0; i < n; i++) {
        const double a = (double)actual[i], e = (double)expected[i];
        const bool same =
            a == e || (isnan(a) && isnan(e)) || fabs(a - e) <= tolerance * (1 + fabs(e));
        CHECK_MESSAGE(same, "%s: %s[%zu] is %.9g, expected %.9g", case_text, what, i, a, e);
    }
}

static inline void add_strange(float *x, size_t n)
{
    static const float strange[] = {NAN, INFINITY, -INFINITY, -0.0f};
    for (int i = 0; i < 3 && n > 0; i++) {
        x[draw((uint32_t)n)] = strange[draw(4)];
    }
}

/* ---- activations and their derivatives, from their results, or gelu's from z */

static inline double activated(enum dt_activation activation, double z)
{
    switch (activation) {
    case DT_ACTIVATION_RELU:
        return z < 0 ? 0 : z;
    case DT_ACTIVATION_TANH:
        return tanh(z);
    case DT_ACTIVATION_SIGMOID:
        return 1 / (1 + exp(-z));
    case DT_ACTIVATION_LEAKY_RELU:
        return z > 0 ? z : 0.01 * z;
    case DT_ACTIVATION_GELU:
        return z * erfc(-z / sqrt(2)) / 2;
    case DT_ACTIVATION_NONE:
        break;
    }
    return z;
}

static inline double derivative(enum dt_activation activation, double z, double a)
{
    switch (activation) {
    case DT_ACTIVATION_RELU:
        return a > 0;
    case DT_ACTIVATION_TANH:
        return 1 - a * a;
    case DT_ACTIVATION_SIGMOID:
        return a * (1 - a);
    case DT_ACTIVATION_LEAKY_RELU:
        return a > 0 ? 1 : 0.01;
    case DT_ACTIVATION_GELU:
        return erfc(-z / sqrt(2)) / 2 + z * exp(-z * z / 2) / sqrt(2 * M_PI);
    case DT_ACTIVATION_NONE:
        break;
    }
    return 1;
}

#endif
