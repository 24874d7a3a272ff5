/* An image drawn in characters. */
#ifndef DT_CLI_COMMANDS_DIGIT_H
#define DT_CLI_COMMANDS_DIGIT_H

#include <stdio.h>

#include "base/samples.h"

/* `pixels` (C, H, W), mean over channels; two characters a pixel, since a character is about twice
 * as high as wide. */
void dt_digit_draw(FILE *out, const uint8_t *pixels, struct dt_shape shape);

#endif
