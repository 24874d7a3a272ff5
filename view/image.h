/* Pictures as PNG, a file in memory or within the text of a page, and in characters. */
#ifndef DT_VIEW_IMAGE_H
#define DT_VIEW_IMAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/samples.h"

struct dt_png {
    int width, height;
    uint8_t *bytes;
    size_t n_bytes;
};

/* `pixels`: rows of `width` pixels of 1 (grey) or 3 (RGB) bytes. The caller frees out->bytes.
 * False: no memory. */
bool dt_png_make(int width, int height, int channels, const uint8_t *pixels, struct dt_png *out);

/* An image in a page: rows of pixels as above. Nothing is drawn where there is no memory for it. */
void dt_image_put(FILE *out, int width, int height, int channels, const uint8_t *pixels);

/* An image drawn in characters. `pixels` (C, H, W), mean over channels; two characters a pixel,
 * since a character is about twice as high as wide. */
void dt_digit_draw(FILE *out, const uint8_t *pixels, struct dt_shape shape);

#endif
