/* A PNG file as a model wants to see it. */
#ifndef DT_CLI_COMMANDS_PNG_IMAGE_H
#define DT_CLI_COMMANDS_PNG_IMAGE_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/samples.h"
#include "base/status.h"

#define DT_PNG_MAX_SIDE 4096

/* Reads `path` into `pixels` (C, H, W) of `shape`, C = 1 (grey) or 3 (RGB); values 0..255, to be
 * scaled as in training. 16-bit images become 8-bit. Values are taken as they stand in the file,
 * without regard to its gamma or colour profile, as those of training are; colours become grey by
 * ITU-R BT.601's luma of them: 0.299 R + 0.587 G + 0.114 B. Transparent images lie on white, as on
 * paper, or on black if more can be seen there, as of chalk. The image is scaled to H x W without
 * regard to its proportions: each side by the mean over the area where it shrinks, linearly where
 * it grows. Texts and other chunks that the pixels do not need are not looked at, whatever is in
 * them. DT_BAD_DATA: no PNG, truncated, damaged, or a side above DT_PNG_MAX_SIDE. DT_NO_INPUT,
 * DT_NO_PERMISSION: as dt_file_read. DT_NO_MEMORY. */
enum dt_status dt_png_read(const char *path, struct dt_shape shape, uint8_t *pixels);

/* The same from memory: what the fuzzer calls. `name` appears in messages. */
enum dt_status dt_png_parse(const char *name, const uint8_t *bytes, size_t n_bytes,
                            struct dt_shape shape, uint8_t *pixels);

/* An image drawn in characters. `pixels` (C, H, W), mean over channels; two characters a pixel,
 * since a character is about twice as high as wide. */
void dt_digit_draw(FILE *out, const uint8_t *pixels, struct dt_shape shape);

#endif
