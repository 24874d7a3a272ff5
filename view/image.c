#include "view/image.h"

#include <png.h>
#include <stdlib.h>

#include "base/status.h"

static void put_base64(FILE *out, const uint8_t *bytes, size_t n)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < n; i += 3) {
        const uint32_t three = (uint32_t)bytes[i] << 16 |
                               (i + 1 < n ? (uint32_t)bytes[i + 1] << 8 : 0) |
                               (i + 2 < n ? (uint32_t)bytes[i + 2] : 0);
        fputc(digits[three >> 18], out);
        fputc(digits[three >> 12 & 63], out);
        fputc(i + 1 < n ? digits[three >> 6 & 63] : '=', out);
        fputc(i + 2 < n ? digits[three & 63] : '=', out);
    }
}

bool dt_png_make(int width, int height, int channels, const uint8_t *pixels, struct dt_png *out)
{
    png_image image = {.version = PNG_IMAGE_VERSION,
                       .width = (png_uint_32)width,
                       .height = (png_uint_32)height,
                       .format = channels == 3 ? PNG_FORMAT_RGB : PNG_FORMAT_GRAY};
    png_alloc_size_t n = 0;
    *out = (struct dt_png){.width = width, .height = height};
    if (png_image_write_to_memory(&image, NULL, &n, 0, pixels, 0, NULL)) {
        out->bytes = malloc(n);
    }
    if (out->bytes == NULL ||
        !png_image_write_to_memory(&image, out->bytes, &n, 0, pixels, 0, NULL)) {
        free(out->bytes);
        return false;
    }
    out->n_bytes = n;
    return true;
}

void dt_image_put(FILE *out, int width, int height, int channels, const uint8_t *pixels)
{
    struct dt_png png = {.bytes = NULL};
    if (dt_png_make(width, height, channels, pixels, &png)) {
        fputs("<img alt=\"\" src=\"data:image/png;base64,", out);
        put_base64(out, png.bytes, png.n_bytes);
        fputs("\">", out);
        free(png.bytes);
    } else {
        (void)dt_error(DT_NO_MEMORY, "no memory for an image of a page");
    }
}

/* ---- drawn in characters */

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
