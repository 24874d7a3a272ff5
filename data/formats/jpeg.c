/* JPEG, by libjpeg(-turbo), in a build that has it. */
#include "data/formats/raster.h"

#ifdef DTRAIN_JPEG
#include <setjmp.h>
#include <stdio.h> /* jpeglib.h wants it before */
#include <stdlib.h>

#include <jerror.h>
#include <jpeglib.h>

/* libjpeg leaves by a jump when something is wrong. */
struct reader {
    struct jpeg_error_mgr manager; /* the first member: libjpeg hands it out */
    jmp_buf jump;
    struct jpeg_progress_mgr progress;
    bool flawed;
    char problem[JMSG_LENGTH_MAX];
};

static void on_error(j_common_ptr jpeg)
{
    struct reader *r = (struct reader *)jpeg->err;
    jpeg->err->format_message(jpeg, r->problem);
    longjmp(r->jump, 1);
}

/* Damaged data are a warning to libjpeg, which continues with grey: here they are an error. These
 * warnings are of files that have all their pixels, and other programs read the same ones. */
static bool is_harmless(int code)
{
    return code == JWRN_ADOBE_XFORM || code == JWRN_EXTRANEOUS_DATA || code == JWRN_JFIF_MAJOR ||
           code == JWRN_NOT_SEQUENTIAL;
}

static void on_message(j_common_ptr jpeg, int level)
{
    struct reader *r = (struct reader *)jpeg->err;
    if (level < 0 && !is_harmless(jpeg->err->msg_code)) {
        on_error(jpeg);
    }
    r->flawed = r->flawed || level < 0;
}

static void on_progress(j_common_ptr jpeg)
{
    struct reader *r = (struct reader *)jpeg->err;
    if (((j_decompress_ptr)jpeg)->input_scan_number > DT_PICTURE_MAX_SCANS) {
        snprintf(r->problem, sizeof r->problem, "more than %d scans", DT_PICTURE_MAX_SCANS);
        longjmp(r->jump, 1);
    }
}

/* By the inverse transform of fewer coefficients, which costs less than the whole. */
static enum dt_status choose_scale(const char *name, struct jpeg_decompress_struct *jpeg,
                                   struct dt_shape least, struct dt_raster *out)
{
    const size_t width = jpeg->image_width, height = jpeg->image_height;
    unsigned by = 8;
    while (by > 1 && (least.w == 0 || width < 3 * by * (size_t)least.w ||
                      height < 3 * by * (size_t)least.h)) {
        by /= 2;
    }
    jpeg->scale_denom = by;
    if (by > 1 && width * height <= DT_PICTURE_MAX_PIXELS) {
        out->covers[0] = (double)width / by;
        out->covers[1] = (double)height / by;
        jpeg_calc_output_dimensions(jpeg);
        return dt_raster_check_size(name, jpeg->output_width, jpeg->output_height);
    }
    return dt_raster_check_size(name, width, height);
}

static enum dt_status read_rows(const char *name, struct jpeg_decompress_struct *jpeg,
                                struct dt_shape least, struct dt_raster *out)
{
    jpeg_read_header(jpeg, TRUE);
    if (jpeg->num_components != 1 && jpeg->num_components != 3) {
        return dt_error(DT_BAD_DATA, "%s: a JPEG of %d colours, such as CMYK (save it as RGB)",
                        name, jpeg->num_components);
    }
    DT_TRY(choose_scale(name, jpeg, least, out));
    jpeg->out_color_space = jpeg->num_components == 1 ? JCS_GRAYSCALE : JCS_RGB;
    jpeg->mem->max_memory_to_use = 256L << 20;
    jpeg_start_decompress(jpeg);
    const size_t n_row = (size_t)jpeg->output_width * (size_t)jpeg->output_components;
    out->width = (int)jpeg->output_width;
    out->height = (int)jpeg->output_height;
    out->channels = jpeg->output_components;
    out->bytes = malloc(n_row * (size_t)out->height);
    if (out->bytes == NULL) {
        return dt_error(DT_NO_MEMORY, "%s: out of memory for the image", name);
    }
    while (jpeg->output_scanline < jpeg->output_height) {
        JSAMPROW row = out->bytes + (size_t)jpeg->output_scanline * n_row;
        jpeg_read_scanlines(jpeg, &row, 1);
    }
    DT_ASSERT(n_row == (size_t)out->width * (size_t)out->channels);
    jpeg_finish_decompress(jpeg);
    return DT_OK;
}

static enum dt_status read_image(const char *name, struct reader *r,
                                 struct jpeg_decompress_struct *jpeg, const uint8_t *bytes,
                                 size_t n_bytes, struct dt_shape least, struct dt_raster *out)
{
    if (setjmp(r->jump) != 0) {
        return dt_error(DT_BAD_DATA, "%s: damaged JPEG: %s (save it again)", name, r->problem);
    }
    jpeg_create_decompress(jpeg);
    jpeg->progress = &r->progress;
    jpeg_mem_src(jpeg, (unsigned char *)bytes, n_bytes);
    return read_rows(name, jpeg, least, out);
}

enum dt_status dt_jpeg_decode(const char *name, const uint8_t *bytes, size_t n_bytes,
                              struct dt_shape least, struct dt_raster *out)
{
    struct reader r = {.progress.progress_monitor = on_progress};
    struct jpeg_decompress_struct jpeg = {.err = jpeg_std_error(&r.manager)};
    r.manager.error_exit = on_error;
    r.manager.emit_message = on_message;
    const enum dt_status s = read_image(name, &r, &jpeg, bytes, n_bytes, least, out);
    jpeg_destroy_decompress(&jpeg);
    out->flawed = r.flawed;
    return s;
}

#else

enum dt_status dt_jpeg_decode(const char *name, const uint8_t *bytes, size_t n_bytes,
                              struct dt_shape least, struct dt_raster *out)
{
    (void)bytes, (void)n_bytes, (void)least, (void)out;
    return dt_error(DT_UNAVAILABLE,
                    "%s: this dtrain was built without libjpeg (install libjpeg-dev and build it "
                    "again, or save the image as PNG)",
                    name);
}

#endif
