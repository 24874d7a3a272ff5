#include "cli/page/image.h"

#include <png.h>
#include <stdlib.h>

static void put_base64(FILE *out, const uint8_t *bytes, size_t n)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < n; i += 3) {
        const uint32_t three =
            (uint32_t)bytes[i] << 16 | (i + 1 < n ? (uint32_t)bytes[i + 1] << 8 : 0) | (i + 2 < n ? (uint32_t)bytes[i + 2] : 0);
        fputc(digits[three >> 18], out);
        fputc(digits[three >> 12 & 63], out);
        fputc(i + 1 < n ? digits[three >> 6 & 63] : '=', out);
        fputc(i + 2 < n ? digits[three & 63] : '=', out);
    }
}

void dt_page_image(FILE *out, int width, int height, int channels, const uint8_t *pixels, const char *alt)
{
    png_image image = {.version = PNG_IMAGE_VERSION,
                       .width = (png_uint_32)width,
                       .height = (png_uint_32)height,
                       .format = channels == 3 ? PNG_FORMAT_RGB : PNG_FORMAT_GRAY};
    png_alloc_size_t n = 0;
    uint8_t *bytes = NULL;
    if (png_image_write_to_memory(&image, NULL, &n, 0, pixels, 0, NULL)) {
        bytes = malloc(n);
    }
    if (bytes != NULL && png_image_write_to_memory(&image, bytes, &n, 0, pixels, 0, NULL)) {
        fprintf(out, "<img alt=\"%s\" src=\"data:image/png;base64,", alt);
        put_base64(out, bytes, n);
        fputs("\">", out);
    }
    free(bytes);
}
