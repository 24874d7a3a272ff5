#include "train/save/border.h"

#include "base/assert.h"

#define MOST 1000 /* one in so many may be otherwise */

bool dt_border_is_bright(struct dt_shape shape, const uint8_t *pixels)
{
    const size_t n_columns = (size_t)shape.w, n_rows = (size_t)shape.h;
    uint64_t sum = 0, n = 0;
    for (size_t row = 0; row < (size_t)shape.c * n_rows; row++, pixels += n_columns) {
        const bool whole = row % n_rows == 0 || row % n_rows == n_rows - 1;
        const size_t step = whole || n_columns == 1 ? 1 : n_columns - 1; /* else its two ends */
        for (size_t column = 0; column < n_columns; column += step) {
            sum += pixels[column];
            n++;
        }
    }
    DT_ASSERT(n > 0 && sum <= 255 * n);
    return sum > 127 * n;
}

size_t dt_border_count_bright(const struct dt_samples *samples)
{
    DT_ASSERT(samples->pixels != NULL || samples->n == 0);
    const size_t n_pixels = dt_shape_elems(samples->shape);
    size_t n = 0;
    for (size_t i = 0; i < samples->n; i++) {
        n += dt_border_is_bright(samples->shape, samples->pixels + i * n_pixels);
    }
    return n;
}

enum dt_ground dt_ground_of(uint64_t n_bright, uint64_t n)
{
    DT_ASSERT(n_bright <= n);
    const uint64_t few = n / MOST;
    return n_bright <= few       ? DT_GROUND_DARK
           : n - n_bright <= few ? DT_GROUND_BRIGHT
                                 : DT_GROUND_MIXED;
}
