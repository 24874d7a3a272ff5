#include "cli/commands/png_image.h"

#include <math.h>
#include <png.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"

#define MAX_FILE_BYTES ((size_t)64 << 20)
#define MAX_REST                                                                                   \
    ((size_t)4096) /* bytes of the file behind its last row that are read: they have checksums, if \
                      nothing else */

/* A decoded image: rows of `channels` interleaved bytes: grey or RGB, and alpha if `has_alpha`. */
struct raster {
    int width, height, channels;
    bool has_alpha;
    bool grey;      /* colours are wanted as grey */
    uint8_t ground; /* what shows through */
    uint8_t *bytes;
};

/* Input pixels first .. first + n - 1 that an output pixel of one axis is made of; all but the two
 * at the ends weigh alike. */
struct span {
    int first, n;
    double begin,
        end; /* in input pixels; for a growing axis the two neighbours' blend is in `end` */
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
static int colour_of(const struct raster *in, const uint8_t *pixel, int channel)
{
    const bool has_colours = in->channels >= 3;
    if (has_colours && in->grey) {
        return (19595 * pixel[0] + 38470 * pixel[1] + 7471 * pixel[2] + 0x8000) >> 16;
    }
    return pixel[has_colours ? channel : 0];
}

static double brightness(const struct raster *in, const uint8_t *pixel, int channel)
{
    const int alpha = in->has_alpha ? pixel[in->channels - 1] : 255;
    return (colour_of(in, pixel, channel) * alpha + in->ground * (255 - alpha)) / 255.0;
}

static uint8_t resample(const struct raster *in, int channel, const struct span *rows,
                        const struct span *columns)
{
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

static void scale_to(const struct raster *in, struct dt_shape shape, uint8_t *pixels)
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

/* A transparent image has no ground: it is laid on white, or on black if its ink is light. */
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

/* After a signature, a PNG is chunks: a length, a type of four letters, so many bytes, a CRC; the
 * last is IEND. Each must lie in the file, since libpng takes a length's word for it and allocates
 * up to 2 GB. */
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
        const size_t length =
            (size_t)chunk[0] << 24 | (size_t)chunk[1] << 16 | (size_t)chunk[2] << 8 | chunk[3];
        if (length > n_bytes - at - n_frame) {
            break;
        }
        if (memcmp(chunk + 4, "IEND", 4) == 0) {
            return DT_OK;
        }
        at += n_frame + length;
    }
    return dt_error(
        DT_BAD_DATA,
        "%s: truncated PNG: it should go on after its %zu bytes (save or copy it again)", name,
        n_bytes);
}

/* libpng leaves by a jump when something is wrong. What it has to find here lives in the caller of
 * the function that sets the jump.
 */
struct reader {
    const char *name;
    const uint8_t *bytes;
    size_t n_left;
    size_t n_rest; /* bytes that were read behind the last row */
    png_structp png;
    png_infop info;
    struct raster *out;
    jmp_buf jump;
    bool no_memory;
    char problem[128];
};

static void on_error(png_structp png, png_const_charp text)
{
    struct reader *r = png_get_error_ptr(png);
    snprintf(r->problem, sizeof r->problem, "%s", text);
    longjmp(r->jump, 1);
}

static void on_warning(png_structp png, png_const_charp text)
{
    (void)png;
    (void)text;
}

/* zlib's memory comes from here too. */
static png_voidp allocate(png_structp png, png_alloc_size_t n_bytes)
{
    struct reader *r = png_get_mem_ptr(png);
    void *memory = malloc(n_bytes);
    r->no_memory = r->no_memory || memory == NULL;
    return memory;
}

static void release(png_structp png, png_voidp memory)
{
    (void)png;
    free(memory);
}

static bool is_whole(const struct reader *r)
{
    return r->out->height > 0 &&
           (png_get_current_row_number(r->png) >= (png_uint_32)r->out->height ||
            png_get_current_pass_number(r->png) >= PNG_INTERLACE_ADAM7_PASSES);
}

/* libpng inflates all that follows the last row, which can be a thousand times the file. */
static void take_bytes(png_structp png, png_bytep to, size_t n_bytes)
{
    struct reader *r = png_get_io_ptr(png);
    r->n_rest += is_whole(r) ? n_bytes : 0;
    if (r->n_rest > MAX_REST) {
        longjmp(r->jump, 1);
    }
    if (n_bytes > r->n_left) {
        png_error(png, "it ends too early");
    }
    memcpy(to, r->bytes, n_bytes);
    r->bytes += n_bytes;
    r->n_left -= n_bytes;
}

/* Chunks that pixels do not need are passed over unread: texts and profiles can be of any size once
 * they are inflated. */
static enum dt_status read_header(struct reader *r)
{
    png_set_read_fn(r->png, r, take_bytes);
    png_set_keep_unknown_chunks(r->png, PNG_HANDLE_CHUNK_NEVER, NULL, -1);
    png_read_info(r->png, r->info);
    const png_uint_32 width = png_get_image_width(r->png, r->info),
                      height = png_get_image_height(r->png, r->info);
    if (width > DT_PNG_MAX_SIDE || height > DT_PNG_MAX_SIDE) {
        return dt_error(DT_BAD_DATA, "%s: %ux%u pixels, at most %dx%d are read (scale it down)",
                        r->name, width, height, DT_PNG_MAX_SIDE, DT_PNG_MAX_SIDE);
    }
    r->out->width = (int)width;
    r->out->height = (int)height;
    return DT_OK;
}

/* Rows of bytes, 1 or 3 for the colour and one for alpha where there is any. Not libpng's
 * simplified interface: that misreads 16-bit files that are interlaced. */
static enum dt_status read_pixels(struct reader *r)
{
    struct raster *out = r->out;
    png_set_expand(r->png);
    png_set_scale_16(r->png);
    const int n_passes = png_set_interlace_handling(r->png);
    png_read_update_info(r->png, r->info);
    const size_t n_row = png_get_rowbytes(r->png, r->info);
    out->channels = png_get_channels(r->png, r->info);
    out->has_alpha = out->channels % 2 == 0;
    out->bytes = malloc(n_row * (size_t)out->height);
    if (out->bytes == NULL) {
        return dt_error(DT_NO_MEMORY, "%s: out of memory for %dx%d pixels", r->name, out->width,
                        out->height);
    }
    for (int pass = 0; pass < n_passes; pass++) {
        for (int y = 0; y < out->height; y++) {
            png_read_row(r->png, out->bytes + (size_t)y * n_row, NULL);
        }
    }
    return DT_OK;
}

static enum dt_status read_image(struct reader *r)
{
    if (setjmp(r->jump) != 0) {
        return r->n_rest > MAX_REST ? DT_OK
               : r->no_memory ? dt_error(DT_NO_MEMORY, "%s: out of memory for the image", r->name)
                              : dt_error(DT_BAD_DATA, "%s: damaged PNG: %s (save it again)",
                                         r->name, r->problem);
    }
    DT_TRY(read_header(r));
    return read_pixels(r);
}

static enum dt_status decode(const char *name, const uint8_t *bytes, size_t n_bytes,
                             struct raster *out)
{
    struct reader r = {.name = name, .bytes = bytes, .n_left = n_bytes, .out = out};
    DT_TRY(check_chunks(name, bytes, n_bytes));
    r.png = png_create_read_struct_2(PNG_LIBPNG_VER_STRING, &r, on_error, on_warning, &r, allocate,
                                     release);
    r.info = r.png == NULL ? NULL : png_create_info_struct(r.png);
    const enum dt_status s = r.info == NULL
                                 ? dt_error(DT_NO_MEMORY, "%s: out of memory for the image", name)
                                 : read_image(&r);
    png_destroy_read_struct(&r.png, &r.info, NULL);
    return s;
}

enum dt_status dt_png_parse(const char *name, const uint8_t *bytes, size_t n_bytes,
                            struct dt_shape shape, uint8_t *pixels)
{
    struct raster raster = {.grey = shape.c == 1};
    const enum dt_status s = decode(name, bytes, n_bytes, &raster);
    if (s == DT_OK && raster.has_alpha) {
        scale_on_ground(&raster, shape, pixels);
    } else if (s == DT_OK) {
        scale_to(&raster, shape, pixels);
    }
    free(raster.bytes);
    return s;
}

enum dt_status dt_png_read(const char *path, struct dt_shape shape, uint8_t *pixels)
{
    uint8_t *bytes = NULL;
    size_t n_bytes = 0;
    DT_TRY(dt_file_read(path, MAX_FILE_BYTES, &bytes, &n_bytes));
    const enum dt_status s = dt_png_parse(path, bytes, n_bytes, shape, pixels);
    free(bytes);
    return s;
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
