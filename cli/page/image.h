/* A picture within a page, as PNG in its text. */
#ifndef DT_CLI_PAGE_IMAGE_H
#define DT_CLI_PAGE_IMAGE_H

#include <stdint.h>
#include <stdio.h>

/* `pixels`: rows of `width` pixels of 1 (grey) or 3 (RGB) bytes. `alt`: for who cannot see it; plain text of ours. Nothing is drawn
 * where there is no memory for it. */
void dt_page_image(FILE *out, int width, int height, int channels, const uint8_t *pixels, const char *alt);

#endif
