#include "cli/png_image.h"

#include <math.h>
#include <png.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"

#define MAX_FILE_BYTES ((size_t)64 << 20)

/* A decoded image: rows of `channels` interleaved bytes, of which the last is alpha if `has_alpha`. */
struct raster {
    int width, height, channels;
    bool has_alpha;
    uint8_t ground; /* what shows through */
    uint8_t *bytes;
};

/* Input pixels first .. first + n - 1 that an output pixel of one axis is made of; all but the two at the ends weigh alike. */
struct span {
    int first, n;
    double begin, end; /* in input pixels; for a growing axis the two neighbours' blend is in `end` */
};

static struct span span_at(int out, int n_out, int n_in)
{
    const double scale = (double)n_in / n_out;
    if (scale >= 1) {
        const double begin = out * scale, end = begin + scale;
        const int first = (int)begin, last = end >= n_in ? n_in - 1 : (int)end;
        return (struct span){.first = first, .n = last - first + 1, .begin = begin, .end = end};
    }
    const double centre = (out + 0.5) * scale - 0.5;
    const double clamped = centre < 0 ? 0 : centre > n_in - 1 ? n_in - 1 : centre;
    const int first = (int)clamped;
    return (struct span){.first = first, .n = first + 1 < n_in ? 2 : 1, .begin = -1, .end = clamped - first};
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

static double brightness(const struct raster *in, const uint8_t *pixel, int channel)
{
    const int alpha = in->has_alpha ? pixel[in->channels - 1] : 255;
    return (pixel[channel] * alpha + in->ground * (255 - alpha)) / 255.0;
}

static uint8_t resample(const struct raster *in, int channel, const struct span *rows, const struct span *columns)
{
    double sum = 0, total = 0;
    for (int r = 0; r < rows->n; r++) {
        const double row_weight = weight_of(rows, r);
        const uint8_t *row = in->bytes + (size_t)(rows->first + r) * (size_t)in->width * (size_t)in->channels;
        for (int c = 0; c < columns->n; c++) {
            const double weight = row_weight * weight_of(columns, c);
            sum += weight * brightness(in, row + (size_t)(columns->first + c) * (size_t)in->channels, channel);
            total += weight;
        }
    }
    return total > 0 ? (uint8_t)lround(sum / total) : 0;
}

static void scale_to(const struct raster *in, struct dt_shape shape, uint8_t *pixels)
{
    for (int h = 0; h < shape.h; h++) {
        const struct span rows = span_at(h, shape.h, in->height);
        for (int w = 0; w < shape.w; w++) {
            const struct span columns = span_at(w, shape.w, in->width);
            for (int c = 0; c < shape.c; c++) {
                pixels[((size_t)c * (size_t)shape.h + (size_t)h) * (size_t)shape.w + (size_t)w] = resample(in, c, &rows, &columns);
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

/* What is drawn on nothing has no ground of its own: paper, unless it was meant for a blackboard. */
static void scale_on_ground(struct raster *in, struct dt_shape shape, uint8_t *pixels)
{
    in->ground = 0;
    scale_to(in, shape, pixels);
    const int on_black = contrast(shape, pixels);
    in->ground = 255;
    scale_to(in, shape, pixels);
    if (on_black > contrast(shape, pixels)) {
        in->ground = 0;
        scale_to(in, shape, pixels);
    }
}

static bool border_is_bright(struct dt_shape shape, const uint8_t *pixels)
{
    uint64_t sum = 0, n = 0;
    for (int c = 0; c < shape.c; c++) {
        for (int h = 0; h < shape.h; h++) {
            for (int w = 0; w < shape.w; w++) {
                if (h == 0 || w == 0 || h == shape.h - 1 || w == shape.w - 1) {
                    sum += pixels[((size_t)c * (size_t)shape.h + (size_t)h) * (size_t)shape.w + (size_t)w];
                    n++;
                }
            }
        }
    }
    return sum > 127 * n;
}

static enum dt_status decode_error(const char *name, png_image *image)
{
    dt_error(DT_BAD_DATA, "%s: damaged PNG: %s (save it again)", name, image->message);
    png_image_free(image);
    return DT_BAD_DATA;
}

/* After a signature, a PNG is chunks: a length, a type of four letters, so many bytes, a CRC; the last is IEND. Each must lie in
 * the file, since libpng takes a length's word for it and allocates up to 2 GB. */
static enum dt_status check_chunks(const char *name, const uint8_t *bytes, size_t n_bytes)
{
    static const uint8_t signature[] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};
    const size_t n_frame = 12; /* length, type and CRC */
    if (n_bytes < sizeof signature || memcmp(bytes, signature, sizeof signature) != 0) {
        return dt_error(DT_BAD_DATA, "%s: not a PNG file (convert the image to PNG first)", name);
    }
    size_t at = sizeof signature;
    while (n_bytes - at >= n_frame) {
        const uint8_t *chunk = bytes + at;
        const size_t length = (size_t)chunk[0] << 24 | (size_t)chunk[1] << 16 | (size_t)chunk[2] << 8 | chunk[3];
        if (length > n_bytes - at - n_frame) {
            break;
        }
        if (memcmp(chunk + 4, "IEND", 4) == 0) {
            return DT_OK;
        }
        at += n_frame + length;
    }
    return dt_error(DT_BAD_DATA, "%s: truncated PNG: it should go on after its %zu bytes (save or copy it again)", name, n_bytes);
}

static enum dt_status decode(const char *name, const uint8_t *bytes, size_t n_bytes, int channels, struct raster *out)
{
    DT_TRY(check_chunks(name, bytes, n_bytes));
    png_image image = {.version = PNG_IMAGE_VERSION};
    if (!png_image_begin_read_from_memory(&image, bytes, n_bytes)) {
        return decode_error(name, &image);
    }
    if (image.width > DT_PNG_MAX_SIDE || image.height > DT_PNG_MAX_SIDE) {
        png_image_free(&image);
        return dt_error(DT_BAD_DATA, "%s: %ux%u pixels, at most %dx%d are read (scale it down)", name, image.width, image.height,
                        DT_PNG_MAX_SIDE, DT_PNG_MAX_SIDE);
    }
    const bool has_alpha = (image.format & PNG_FORMAT_FLAG_ALPHA) != 0;
    image.format = (channels == 1 ? PNG_FORMAT_GRAY : PNG_FORMAT_RGB) | (has_alpha ? PNG_FORMAT_FLAG_ALPHA : 0);
    image.flags |= PNG_IMAGE_FLAG_16BIT_sRGB; /* 16-bit files hold ordinary, not linear, brightness */
    *out = (struct raster){
        .width = (int)image.width, .height = (int)image.height, .channels = channels + has_alpha, .has_alpha = has_alpha};
    out->bytes = malloc(PNG_IMAGE_SIZE(image));
    if (out->bytes == NULL) {
        png_image_free(&image);
        return dt_error(DT_NO_MEMORY, "%s: out of memory for %ux%u pixels", name, image.width, image.height);
    }
    if (!png_image_finish_read(&image, NULL, out->bytes, 0, NULL)) {
        free(out->bytes);
        return decode_error(name, &image);
    }
    return DT_OK;
}

enum dt_status dt_png_parse(const char *name, const uint8_t *bytes, size_t n_bytes, struct dt_shape shape, uint8_t *pixels,
                            bool *inverted)
{
    struct raster raster = {0};
    DT_TRY(decode(name, bytes, n_bytes, shape.c, &raster));
    if (raster.has_alpha) {
        scale_on_ground(&raster, shape, pixels);
    } else {
        scale_to(&raster, shape, pixels);
    }
    free(raster.bytes);
    *inverted = border_is_bright(shape, pixels);
    for (size_t i = 0; *inverted && i < dt_shape_elems(shape); i++) {
        pixels[i] = (uint8_t)(255 - pixels[i]);
    }
    return DT_OK;
}

enum dt_status dt_png_read(const char *path, struct dt_shape shape, uint8_t *pixels, bool *inverted)
{
    uint8_t *bytes = NULL;
    size_t n_bytes = 0;
    DT_TRY(dt_file_read(path, MAX_FILE_BYTES, &bytes, &n_bytes));
    const enum dt_status s = dt_png_parse(path, bytes, n_bytes, shape, pixels, inverted);
    free(bytes);
    return s;
}
