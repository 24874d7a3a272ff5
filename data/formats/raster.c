#include "data/formats/raster.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* One side of an image: n output pixels, each of input pixels first[i] .. of which weights[i *
 * most]
 * .. add up to 1. */
struct axis {
    int n, most;
    int *first, *count;
    float *weights;
};

/* Output pixel i is a triangle around its centre over the input pixels: two output pixels wide
 * where the side shrinks, two input pixels where it grows. What lies beyond the image does not
 * count. */
static void weigh(const struct axis *axis, int i, int n_in, double centre, double reach)
{
    const int first = (int)fmax(centre - reach + 0.5, 0),
              end = (int)fmin(centre + reach + 0.5, n_in);
    float *weights = axis->weights + (size_t)i * (size_t)axis->most;
    double sum = 0;
    DT_ASSERT(first < end && end - first <= axis->most && end <= n_in);
    for (int k = first; k < end; k++) {
        weights[k - first] = (float)fmax(1 - fabs((k + 0.5 - centre) / reach), 0);
        sum += weights[k - first];
    }
    for (int k = 0; k < end - first; k++) {
        weights[k] = (float)(weights[k] / sum);
    }
    axis->first[i] = first;
    axis->count[i] = end - first;
}

/* The input pixels from `from` on, `length` of n_in, as n. */
static enum dt_status open_axis(int n, int n_in, double from, double length, struct axis *out)
{
    const double scale = length / n, reach = fmax(scale, 1);
    *out = (struct axis){.n = n, .most = 2 * (int)ceil(reach) + 1};
    out->first = calloc(2 * (size_t)n, sizeof *out->first);
    out->weights = calloc((size_t)n * (size_t)out->most, sizeof *out->weights);
    if (out->first == NULL || out->weights == NULL) {
        return DT_NO_MEMORY;
    }
    out->count = out->first + n;
    for (int i = 0; i < n; i++) {
        weigh(out, i, n_in, from + (i + 0.5) * scale, reach);
    }
    return DT_OK;
}

static void close_axis(struct axis *axis)
{
    free(axis->first);
    free(axis->weights);
}

/* Colours become grey by the luma of ITU-R BT.601 of their bytes as they are, rounded as by PIL's
 * convert("L"). */
static int colour_of(const struct dt_raster *in, const uint8_t *pixel, int channel)
{
    DT_ASSERT(channel >= 0 && channel < 3);
    const bool has_colours = in->channels >= 3;
    if (has_colours && in->grey) {
        return (19595 * pixel[0] + 38470 * pixel[1] + 7471 * pixel[2] + 0x8000) >> 16;
    }
    return pixel[has_colours ? channel : 0];
}

static float brightness(const struct dt_raster *in, const uint8_t *pixel, int channel)
{
    const int alpha = in->has_alpha ? pixel[in->channels - 1] : 255;
    return (float)(colour_of(in, pixel, channel) * alpha + in->background * (255 - alpha)) / 255;
}

/* Which part of the image becomes which part of the picture. */
struct place {
    int x, y, w, h;
    double left, top, width, height;
};

/* As ImageOps.fit and ImageOps.pad of Pillow have it. */
static struct place place_of(const struct dt_raster *in, struct dt_shape shape,
                             enum dt_resize resize)
{
    const double width = in->covers[0] > 0 ? in->covers[0] : in->width,
                 height = in->covers[1] > 0 ? in->covers[1] : in->height;
    const double ratio = width / height, wanted = (double)shape.w / shape.h;
    struct place p = {.w = shape.w, .h = shape.h, .width = width, .height = height};
    if (resize == DT_RESIZE_FIT && ratio > wanted) {
        p.h = (int)fmax(rint(shape.w / ratio), 1);
    } else if (resize == DT_RESIZE_FIT) {
        p.w = (int)fmax(rint(shape.h * ratio), 1);
    } else if (resize == DT_RESIZE_CROP && ratio > wanted) {
        p.width = height * wanted;
    } else if (resize == DT_RESIZE_CROP) {
        p.height = width / wanted;
    }
    p.x = (int)rint((shape.w - p.w) * 0.5);
    p.y = (int)rint((shape.h - p.h) * 0.5);
    p.left = (width - p.width) / 2;
    p.top = (height - p.height) / 2;
    DT_ASSERT(p.x >= 0 && p.y >= 0 && p.x + p.w <= shape.w && p.y + p.h <= shape.h);
    return p;
}

/* A row of the image in the width of the picture, interleaved. `row`: room for one as it is. */
static void narrow(const struct dt_raster *in, int y, int n_c, const struct axis *axis, float *row,
                   float *out)
{
    const uint8_t *pixel = in->bytes + (size_t)y * (size_t)in->width * (size_t)in->channels;
    for (int x = 0; x < in->width; x++, pixel += in->channels) {
        for (int c = 0; c < n_c; c++) {
            row[x * n_c + c] = brightness(in, pixel, c);
        }
    }
    for (int x = 0; x < axis->n; x++) {
        const float *weights = axis->weights + (size_t)x * (size_t)axis->most;
        const float *from = row + (size_t)axis->first[x] * (size_t)n_c;
        for (int c = 0; c < n_c; c++) {
            float sum = 0;
            for (int k = 0; k < axis->count[x]; k++) {
                sum += weights[k] * from[k * n_c + c];
            }
            out[x * n_c + c] = sum;
        }
    }
}

/* Rows of the image become rows of the picture. `rows`: narrow ones, of all the image. */
static void lower(const struct place *p, struct dt_shape shape, const struct axis *axis,
                  const float *rows, uint8_t *pixels)
{
    const size_t n_row = (size_t)p->w * (size_t)shape.c;
    for (int y = 0; y < p->h; y++) {
        const float *weights = axis->weights + (size_t)y * (size_t)axis->most;
        const float *from = rows + (size_t)axis->first[y] * n_row;
        for (size_t i = 0; i < n_row; i++) {
            const size_t c = i % (size_t)shape.c, x = i / (size_t)shape.c + (size_t)p->x;
            float sum = 0;
            for (int k = 0; k < axis->count[y]; k++) {
                sum += weights[k] * from[(size_t)k * n_row + i];
            }
            pixels[(c * (size_t)shape.h + (size_t)(y + p->y)) * (size_t)shape.w + x] =
                (uint8_t)fminf(sum + 0.5f, 255);
        }
    }
}

static enum dt_status scale_to(const struct dt_raster *in, struct dt_shape shape,
                               enum dt_resize resize, uint8_t *pixels)
{
    const struct place p = place_of(in, shape, resize);
    const size_t n_c = (size_t)shape.c, n_row = (size_t)p.w * n_c;
    struct axis across, down;
    enum dt_status s = open_axis(p.w, in->width, p.left, p.width, &across);
    const enum dt_status also = open_axis(p.h, in->height, p.top, p.height, &down);
    float *row = malloc((size_t)in->width * n_c * sizeof *row),
          *rows = malloc((size_t)in->height * n_row * sizeof *rows);
    s = s == DT_OK && also == DT_OK && row != NULL && rows != NULL ? DT_OK : DT_NO_MEMORY;
    if (s == DT_OK) {
        memset(pixels, in->background, dt_shape_elems(shape));
        const int end = down.first[p.h - 1] + down.count[p.h - 1];
        for (int y = down.first[0]; y < end; y++) {
            narrow(in, y, shape.c, &across, row, rows + (size_t)y * n_row);
        }
        lower(&p, shape, &down, rows, pixels);
    }
    free(row);
    free(rows);
    close_axis(&across);
    close_axis(&down);
    return s;
}

/* Between the brightest and the darkest value. */
static int contrast(struct dt_shape shape, const uint8_t *pixels)
{
    int low = 255, high = 0;
    for (size_t i = 0; i < dt_shape_elems(shape); i++) {
        low = pixels[i] < low ? pixels[i] : low;
        high = pixels[i] > high ? pixels[i] : high;
    }
    return high - low;
}

static bool is_transparent(const struct dt_raster *in)
{
    const size_t step = (size_t)in->channels, n = (size_t)in->width * (size_t)in->height * step;
    for (size_t i = step - 1; in->has_alpha && i < n; i += step) {
        if (in->bytes[i] < 255) {
            return true;
        }
    }
    return false;
}

/* Black: chalk is seen there. */
static enum dt_status scale_on_black(struct dt_raster *in, struct dt_shape shape,
                                     enum dt_resize resize, uint8_t *pixels)
{
    const uint8_t other = in->background;
    const int before = contrast(shape, pixels);
    in->background = 0;
    DT_TRY(scale_to(in, shape, resize, pixels));
    if (contrast(shape, pixels) > before) {
        return DT_OK;
    }
    in->background = other;
    return scale_to(in, shape, resize, pixels);
}

/* One of the wanted size as it is. */
static void copy_pixels(const struct dt_raster *in, struct dt_shape shape, uint8_t *pixels)
{
    DT_ASSERT(in->width == shape.w && in->height == shape.h);
    const size_t n = (size_t)shape.h * (size_t)shape.w;
    for (int c = 0; c < shape.c; c++) {
        for (size_t i = 0; i < n; i++) {
            *pixels++ = (uint8_t)colour_of(in, in->bytes + i * (size_t)in->channels, c);
        }
    }
}

enum dt_status dt_raster_scale(struct dt_raster *in, struct dt_shape shape, enum dt_resize resize,
                               bool may_be_black, uint8_t *pixels)
{
    DT_ASSERT(in->channels >= 1 && in->channels <= 4 && (shape.c == 1 || shape.c == 3));
    in->grey = shape.c == 1;
    in->has_alpha = is_transparent(in);
    if (!in->has_alpha && in->width == shape.w && in->height == shape.h && in->covers[0] == 0) {
        copy_pixels(in, shape, pixels);
        return DT_OK;
    }
    DT_TRY(scale_to(in, shape, resize, pixels));
    return in->has_alpha && may_be_black ? scale_on_black(in, shape, resize, pixels) : DT_OK;
}

enum dt_status dt_raster_check_size(const char *name, size_t width, size_t height)
{
    return width >= 1 && height >= 1 && width <= DT_PICTURE_MAX_SIDE &&
                   height <= DT_PICTURE_MAX_SIDE
               ? DT_OK
               : dt_error(DT_BAD_DATA, "%s: %zux%zu pixels, at most %dx%d are read (scale it down)",
                          name, width, height, DT_PICTURE_MAX_SIDE, DT_PICTURE_MAX_SIDE);
}

void dt_raster_close(struct dt_raster *raster)
{
    free(raster->bytes);
    *raster = (struct dt_raster){0};
}
