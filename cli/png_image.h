/* A PNG file as a model wants to see it. */
#ifndef DT_CLI_PNG_IMAGE_H
#define DT_CLI_PNG_IMAGE_H

#include <stdbool.h>

#include "base/samples.h"
#include "base/status.h"

#define DT_PNG_MAX_SIDE 4096

/* Reads `path` into `pixels` (C, H, W) of `shape`, C = 1 (grey) or 3 (RGB); values 0..255, to be scaled as in training. 16-bit
 * images become 8-bit; transparent ones lie on white, as on paper, or on black if more can be seen there, as of chalk. The image is
 * scaled to H x W without regard to its proportions: each side by the mean over the area where it shrinks, linearly where it grows.
 * Digits of MNIST are light on dark: an image whose border is brighter than mid-grey is inverted, and `inverted` says so.
 * DT_BAD_DATA: no PNG, truncated, damaged, or a side above DT_PNG_MAX_SIDE. DT_NO_INPUT, DT_NO_PERMISSION: as dt_file_read.
 * DT_NO_MEMORY. */
enum dt_status dt_png_read(const char *path, struct dt_shape shape, uint8_t *pixels, bool *inverted);

/* The same from memory: what the fuzzer calls. `name` appears in messages. */
enum dt_status dt_png_parse(const char *name, const uint8_t *bytes, size_t n_bytes, struct dt_shape shape, uint8_t *pixels,
                            bool *inverted);

#endif
