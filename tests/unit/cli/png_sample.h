/* PNG files made by libpng's writer, and read by dtrain: shared by the tests of images. */
#ifndef DT_TESTS_PNG_SAMPLE_H
#define DT_TESTS_PNG_SAMPLE_H

#include <png.h>

#include "base/rng.h"
#include "data/formats/picture.h"
#include "tests/lib/temporary.h"
#include "train/save/border.h"

#define MAX_FILE 65536

struct file {
    size_t n;
    uint8_t bytes[MAX_FILE];
};

struct picture {
    int width, height, colour, depth, interlace;
    const uint8_t *rows; /* as they stand in the file before compression */
    const png_color *palette;
    int n_palette;
    const uint8_t *transparent; /* palette: alpha of its first entries */
    int n_transparent;
    int transparent_grey; /* that value is transparent; 0: none */
    double gamma;         /* 0: none */
    const char *text;     /* compressed; NULL: none */
};

static const struct dt_shape mnist = {1, 28, 28};

static void append(png_structp png, png_bytep bytes, size_t n)
{
    struct file *file = png_get_io_ptr(png);
    CHECK(n <= MAX_FILE - file->n);
    memcpy(file->bytes + file->n, bytes, n);
    file->n += n;
}

static void flush(png_structp png)
{
    (void)png;
}

static void set_extras(png_structp png, png_infop info, const struct picture *p)
{
    if (p->palette != NULL) {
        png_set_PLTE(png, info, p->palette, p->n_palette);
    }
    if (p->n_transparent > 0) {
        png_set_tRNS(png, info, p->transparent, p->n_transparent, NULL);
    }
    if (p->transparent_grey > 0) {
        const png_color_16 colour = {.gray = (png_uint_16)p->transparent_grey};
        png_set_tRNS(png, info, NULL, 0, &colour);
    }
    if (p->gamma > 0) {
        png_set_gAMA(png, info, p->gamma);
    }
    if (p->text != NULL) {
        char key[] = "Comment", *text = strdup(p->text);
        CHECK(text != NULL);
        const png_text comment = {.compression = PNG_TEXT_COMPRESSION_zTXt,
                                  .key = key,
                                  .text = text,
                                  .text_length = strlen(text)};
        png_set_text(png, info, &comment, 1);
        free(text);
    }
}

static void encode(const struct picture *p, struct file *file)
{
    png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, NULL, NULL,
                                              NULL); /* an error ends the program */
    png_infop info = png_create_info_struct(png);
    CHECK(png != NULL && info != NULL);
    file->n = 0;
    png_set_write_fn(png, file, append, flush);
    png_set_IHDR(png, info, (png_uint_32)p->width, (png_uint_32)p->height, p->depth, p->colour,
                 p->interlace, PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
    set_extras(png, info, p);
    png_write_info(png, info);
    const int n_passes = png_set_interlace_handling(png);
    for (int pass = 0; pass < n_passes; pass++) {
        for (int y = 0; y < p->height; y++) {
            png_write_row(png, p->rows + (size_t)y * png_get_rowbytes(png, info));
        }
    }
    png_write_end(png, info);
    png_destroy_write_struct(&png, &info);
}

/* Reads it; it must be whole. With a bright border it is inverted, as `predict` does for MNIST's
 * models, and returns true. */
static bool decode(const struct file *file, struct dt_shape shape, uint8_t *pixels)
{
    dt_error_clear();
    struct dt_picture picture = {
        .resize = DT_RESIZE_STRETCH, .background = 255, .may_be_black = true};
    CHECK_OK(dt_picture_parse("image.png", file->bytes, file->n, shape, &picture, pixels));
    const bool inverted = dt_border_is_bright(shape, pixels);
    for (size_t i = 0; inverted && i < dt_shape_elems(shape); i++) {
        pixels[i] = (uint8_t)(255 - pixels[i]);
    }
    return inverted;
}

static bool read_picture(const struct picture *picture, struct dt_shape shape, uint8_t *pixels)
{
    static struct file file;
    encode(picture, &file);
    return decode(&file, shape, pixels);
}

static inline void store_be32(uint8_t *bytes, size_t value)
{
    for (int i = 0; i < 4; i++) {
        bytes[i] = (uint8_t)(value >> (24 - 8 * i));
    }
}

/* Noise below `limit`; the border below 128 on average stays as it is. */
static void fill(uint8_t *bytes, size_t n, uint32_t limit)
{
    for (size_t i = 0; i < n; i++) {
        bytes[i] = (uint8_t)(dt_rng_words(7, DT_RNG_SYNTHETIC, 0, 0, (uint32_t)i, 0).v[0] % limit);
    }
}

#endif
