#include "data/formats/raster.h"

#include <math.h>
#include <stdlib.h>

/* Input pixels first .. first + n - 1 that an output pixel of one axis is made of; all but the two
 * at the ends weigh alike. */
struct span {
    int first, n;
    double begin,
        end; /* in input pixels; for a growing axis the two neighbours' blend is in `end` */
};

static struct span span_at(int out, int n_out, int n_in)
{
    DT_ASSERT(out >= 0 && out < n_out && n_in >= 1);
    const double scale = (double)n_in / n_out;
    if (scale >= 1) {
        const double begin = out * scale, end = begin + scale;
        const int first = (int)begin, last = end >= n_in ? n_in - 1 : (int)end;
        return (struct span){.first = first, .n = last - first + 1, .begin = begin, .end = end};
    }
    const double centre = (out + 0.5) * scale - 0.5;
    const double clamped = centre < 0 ? 0 : centre > n_in - 1 ? n_in - 1 : centre;
    const int first = (int)clamped;
    return (struct span){
        .first = first, .n = first + 1 < n_in ? 2 : 1, .begin = -1, .end = clamped - first};
}

static double weight_of(const struct span *s, int i)
{
    if (s->begin < 0) { /* linear between two pixels */
        return i == 0 ? 1 - s->end : s->end;
    }
    const double from = s->first + i > s->begin ? s->first + i : s->begin;
    const double to = s->first + i + 1 < s->end ? s->first + i + 1 : s->end;
    return to > from ? to - from : 0;
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

static double brightness(const struct dt_raster *in, const uint8_t *pixel, int channel)
{
    const int alpha = in->has_alpha ? pixel[in->channels - 1] : 255;
    return (colour_of(in, pixel, channel) * alpha + in->background * (255 - alpha)) / 255.0;
}

static uint8_t resample(const struct dt_raster *in, int channel, const struct span *rows,
                        const struct span *columns)
{
    DT_ASSERT(rows->first + rows->n <= in->height && columns->first + columns->n <= in->width);
    double sum = 0, total = 0;
    for (int r = 0; r < rows->n; r++) {
        const double row_weight = weight_of(rows, r);
        const uint8_t *row =
            in->bytes + (size_t)(rows->first + r) * (size_t)in->width * (size_t)in->channels;
        for (int c = 0; c < columns->n; c++) {
            const double weight = row_weight * weight_of(columns, c);
            sum +=
                weight *
                brightness(in, row + (size_t)(columns->first + c) * (size_t)in->channels, channel);
            total += weight;
        }
    }
    return total > 0 ? (uint8_t)lround(sum / total) : 0;
}

static void scale_to(const struct dt_raster *in, struct dt_shape shape, uint8_t *pixels)
{
    for (int h = 0; h < shape.h; h++) {
        const struct span rows = span_at(h, shape.h, in->height);
        for (int w = 0; w < shape.w; w++) {
            const struct span columns = span_at(w, shape.w, in->width);
            for (int c = 0; c < shape.c; c++) {
                pixels[((size_t)c * (size_t)shape.h + (size_t)h) * (size_t)shape.w + (size_t)w] =
                    resample(in, c, &rows, &columns);
            }
        }
    }
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
static void scale_transparent(struct dt_raster *in, struct dt_shape shape, bool may_be_black,
                              uint8_t *pixels)
{
    int contrasts[2] = {0};
    for (int white = may_be_black ? 0 : 1; white < 2; white++) {
        in->background = white ? 255 : 0;
        scale_to(in, shape, pixels);
        contrasts[white] = contrast(shape, pixels);
    }
    if (contrasts[0] > contrasts[1]) {
        in->background = 0;
        scale_to(in, shape, pixels);
    }
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

void dt_raster_scale(struct dt_raster *in, struct dt_shape shape, bool may_be_black,
                     uint8_t *pixels)
{
    DT_ASSERT(in->channels >= 1 && in->channels <= 4 && (shape.c == 1 || shape.c == 3));
    in->grey = shape.c == 1;
    in->has_alpha = is_transparent(in);
    if (in->has_alpha) {
        scale_transparent(in, shape, may_be_black, pixels);
    } else if (in->width == shape.w && in->height == shape.h) {
        copy_pixels(in, shape, pixels);
    } else {
        scale_to(in, shape, pixels);
    }
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
