/* PNG, by libpng. */
#include <png.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "data/formats/raster.h"

#define MAX_REST                                                                                   \
    ((size_t)4096) /* bytes of the file behind its last row that are read: they have checksums, if \
                      nothing else */

static enum dt_status no_png(const char *name, const uint8_t *bytes, size_t n_bytes)
{
    const char *kind = dt_file_kind(bytes, n_bytes);
    return dt_error(
        DT_BAD_DATA, "%s: no PNG, JPEG, PPM or PGM file%s%s%s", name,
        kind != NULL ? "; looks like " : "", kind != NULL ? kind : "",
        kind == NULL || strstr(kind, " image") != NULL ? " (convert the image to PNG first)" : "");
}

/* libpng leaves by a jump when something is wrong. What it has to find here lives in the caller of
 * the function that sets the jump. */
struct reader {
    const char *name;
    const uint8_t *bytes;
    size_t n_left;
    size_t n_rest; /* bytes that were read behind the last row */
    png_structp png;
    png_infop info;
    struct dt_raster *out;
    jmp_buf jump;
    bool truncated, no_memory;
    bool ending; /* the pixels are there */
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
    r->n_rest += !r->ending && is_whole(r) ? n_bytes : 0;
    r->truncated = n_bytes > r->n_left;
    if (r->n_rest > MAX_REST || r->truncated) {
        longjmp(r->jump, 1);
    }
    memcpy(to, r->bytes, n_bytes);
    r->bytes += n_bytes;
    r->n_left -= n_bytes;
}

/* Rows of bytes, 1 or 3 for the colour and one for alpha where there is any. Chunks that pixels do
 * not need are passed over unread: texts and profiles can be of any size once they are inflated.
 * Not libpng's simplified interface: that changes pixels by the file's gamma, and misreads 16-bit
 * files that are interlaced. */
static enum dt_status read_pixels(struct reader *r)
{
    struct dt_raster *out = r->out;
    png_set_read_fn(r->png, r, take_bytes);
    png_set_keep_unknown_chunks(r->png, PNG_HANDLE_CHUNK_NEVER, NULL, -1);
    png_read_info(r->png, r->info);
    const png_uint_32 width = png_get_image_width(r->png, r->info),
                      height = png_get_image_height(r->png, r->info);
    DT_TRY(dt_raster_check_size(r->name, width, height));
    out->width = (int)width;
    out->height = (int)height;
    png_set_expand(r->png);
    png_set_scale_16(r->png);
    const int n_passes = png_set_interlace_handling(r->png);
    png_read_update_info(r->png, r->info);
    const size_t n_row = png_get_rowbytes(r->png, r->info);
    out->channels = png_get_channels(r->png, r->info);
    out->has_alpha = out->channels % 2 == 0;
    DT_ASSERT(n_row == (size_t)out->width * (size_t)out->channels);
    out->bytes = allocate(r->png, n_row * (size_t)out->height);
    if (out->bytes == NULL) {
        longjmp(r->jump, 1);
    }
    for (int i = 0; i < n_passes * out->height; i++) {
        png_read_row(r->png, out->bytes + (size_t)(i % out->height) * n_row, NULL);
    }
    r->ending = true;
    png_set_crc_action(r->png, PNG_CRC_QUIET_USE, PNG_CRC_QUIET_USE);
    png_read_end(r->png, NULL);
    return DT_OK;
}

static enum dt_status read_image(struct reader *r)
{
    if (setjmp(r->jump) == 0) {
        return read_pixels(r);
    }
    return r->truncated
               ? dt_error(DT_BAD_DATA, "%s: truncated PNG (save or copy it again)", r->name)
           : r->n_rest > MAX_REST ? DT_OK
           : r->no_memory
               ? dt_error(DT_NO_MEMORY, "%s: out of memory for the image", r->name)
               : dt_error(DT_BAD_DATA, "%s: damaged PNG: %s (save it again)", r->name, r->problem);
}

enum dt_status dt_png_decode(const char *name, const uint8_t *bytes, size_t n_bytes,
                             struct dt_raster *out)
{
    struct reader r = {.name = name, .bytes = bytes, .n_left = n_bytes, .out = out};
    if (n_bytes < 8 || png_sig_cmp(bytes, 0, 8) != 0) {
        return no_png(name, bytes, n_bytes);
    }
    r.png = png_create_read_struct_2(PNG_LIBPNG_VER_STRING, &r, on_error, on_warning, &r, allocate,
                                     release);
    r.info = r.png == NULL ? NULL : png_create_info_struct(r.png);
    const enum dt_status s = r.info == NULL
                                 ? dt_error(DT_NO_MEMORY, "%s: out of memory for the image", name)
                                 : read_image(&r);
    png_destroy_read_struct(&r.png, &r.info, NULL);
    return s;
}
