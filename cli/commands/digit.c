#include "cli/commands/digit.h"

#define MAX_DRAWN 40 /* columns and rows: 80 characters; larger images are thinned out */

void dt_digit_draw(FILE *out, const uint8_t *pixels, struct dt_shape shape)
{
    static const char ramp[] = " .:-=+*#%@";
    const size_t area = (size_t)shape.h * (size_t)shape.w;
    const int longest = shape.h > shape.w ? shape.h : shape.w;
    const int step = (longest + MAX_DRAWN - 1) / MAX_DRAWN;
    for (int h = 0; h < shape.h; h += step) {
        fputs("  ", out);
        for (int w = 0; w < shape.w; w += step) {
            int sum = 0;
            for (int c = 0; c < shape.c; c++) {
                sum += pixels[(size_t)c * area + (size_t)h * (size_t)shape.w + (size_t)w];
            }
            const char mark = ramp[sum / shape.c * ((int)sizeof ramp - 2) / 255];
            fputc(mark, out);
            fputc(mark, out);
        }
        fputc('\n', out);
    }
}
