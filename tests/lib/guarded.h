/* Test buffers with guard words on both sides, random contents, and their comparison: for tests of
 * a backend against another. */
#ifndef DT_TESTS_GUARDED_H
#define DT_TESTS_GUARDED_H

#include "tests/lib/check.h"

#include <stdbool.h>

#include "base/rng.h"
#include "model/spec.h"

#define ONE(...) +1
enum { N_ACTIVATIONS = 0 DT_ACTIVATION_LIST(ONE) }; /* with none, the first */

#define GUARD 64 /* floats; also the 256 readable bytes past the end that the contract grants */
#define GUARD_WORD 0x7fc0deadu /* a NaN */

static uint32_t draw_counter;

static inline uint32_t draw(uint32_t below)
{
    const struct dt_rng4 counter = {{draw_counter++, 0, 0, 0}};
    return dt_philox4x32(counter, 1234, 5678).v[0] % below;
}

static inline float draw_eighths(int largest)
{
    return ((float)draw((uint32_t)(2 * largest + 1)) - (float)largest) / 8.0f;
}

static inline float from_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Ties to even. */
static inline uint16_t to_bf16(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return isnan(x) ? 0x7fc0 : (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static inline float from_bf16(uint16_t half)
{
    return from_bits((uint32_t)half << 16);
}

struct buffer {
    size_t n;
    float *memory, *data;
};

static inline void fill_guards(struct buffer *b)
{
    const uint32_t word = GUARD_WORD;
    for (size_t i = 0; i < GUARD; i++) {
        memcpy(&b->memory[i], &word, sizeof word);
        memcpy(&b->data[b->n + i], &word, sizeof word);
    }
}

static inline struct buffer buffer_open(size_t n)
{
    struct buffer b = {
        .n = n, .memory = aligned_alloc(64, ((n + 2 * GUARD) * sizeof(float) + 63) / 64 * 64)};
    CHECK(b.memory != NULL);
    b.data = b.memory + GUARD;
    for (size_t i = 0; i < n; i++) {
        b.data[i] = 0;
    }
    fill_guards(&b);
    return b;
}

static inline void buffer_close(struct buffer *b, const char *what)
{
    for (size_t i = 0; i < GUARD; i++) {
        uint32_t before, after;
        memcpy(&before, &b->memory[i], sizeof before);
        memcpy(&after, &b->data[b->n + i], sizeof after);
        CHECK_MESSAGE(before == GUARD_WORD && after == GUARD_WORD,
                      "guard word %zu of %s was overwritten", i, what);
    }
    free(b->memory);
}

static inline void buffers_close(struct buffer *const *all, size_t n, const char *what)
{
    for (size_t i = 0; i < n; i++) {
        buffer_close(all[i], what);
    }
}

#define BUFFERS_CLOSE(...)                                                          \
    buffers_close((struct buffer *[]){__VA_ARGS__},                                 \
                  sizeof(struct buffer *[]){__VA_ARGS__} / sizeof(struct buffer *), \
                  "one of " #__VA_ARGS__)

/* `share` of 8 elements are zero. */
static inline struct buffer buffer_random(size_t n, int largest, uint32_t zeros_of_8)
{
    struct buffer b = buffer_open(n);
    for (size_t i = 0; i < n; i++) {
        b.data[i] = draw(8) < zeros_of_8 ? 0.0f : draw_eighths(largest);
    }
    return b;
}

static inline struct buffer buffer_uniform(size_t n, float largest)
{
    struct buffer b = buffer_open(n);
    for (size_t i = 0; i < n; i++) {
        b.data[i] = largest * ((float)draw(1 << 16) / (1 << 15) - 1.0f);
    }
    return b;
}

static inline struct buffer buffer_of(const float *from, size_t n)
{
    struct buffer to = buffer_open(n);
    if (n > 0) { /* else there may be no data */
        memcpy(to.data, from, n * sizeof(float));
    }
    return to;
}

static inline struct buffer copy_of(const struct buffer *from)
{
    return buffer_of(from->data, from->n);
}

/* n samples of shape s, C H W to H W C or back. A flat shape stays as it is. */
static inline struct buffer turned(const struct buffer *from, struct dt_shape s, bool to_hwc)
{
    if (s.c == 1 || s.h * s.w == 1) {
        return copy_of(from);
    }
    struct buffer to = buffer_open(from->n);
    const size_t n_c = (size_t)s.c, n_hw = (size_t)s.h * (size_t)s.w;
    for (size_t i = 0; i < from->n; i++) {
        const size_t sample = i / (n_c * n_hw), in = i % (n_c * n_hw), c = in / n_hw,
                     hw = in % n_hw;
        const size_t chw = i, hwc = sample * n_c * n_hw + hw * n_c + c;
        to.data[to_hwc ? hwc : chw] = from->data[to_hwc ? chw : hwc];
    }
    return to;
}

static char case_text[256];         /* what is being compared, for the message */
static double allowed_error = 1e-5; /* times 1 + |expected| */

static inline void compare(const char *isa, const char *what, const struct buffer *actual,
                           const struct buffer *expected)
{
    CHECK_INT(actual->n, expected->n);
    for (size_t i = 0; i < actual->n; i++) {
        const double a = (double)actual->data[i], e = (double)expected->data[i];
        if (isnan(a) && isnan(e)) {
            continue;
        }
        CHECK_MESSAGE(fabs(a - e) <= allowed_error * (1.0 + fabs(e)),
                      "%s, %s: %s[%zu] is %.9g, the reference has %.9g", isa, case_text, what, i, a,
                      e);
    }
}

static inline void check_same_bits(const char *what, const struct buffer *first,
                                   const struct buffer *second)
{
    CHECK_INT(first->n, second->n);
    CHECK_MESSAGE(memcmp(first->data, second->data, first->n * sizeof(float)) == 0,
                  "%s: the second time %s has other bits", case_text, what);
}

#endif
