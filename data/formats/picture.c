#include "data/formats/picture.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"

#define MAX_FILE_BYTES ((size_t)64 << 20)

static enum dt_status decode(const char *name, const uint8_t *bytes, size_t n_bytes,
                             struct dt_shape least, struct dt_raster *out)
{
    if (n_bytes >= 3 && memcmp(bytes, "\xff\xd8\xff", 3) == 0) {
        return dt_jpeg_decode(name, bytes, n_bytes, least, out);
    }
    if (n_bytes >= 2 && bytes[0] == 'P' && bytes[1] >= '1' && bytes[1] <= '7') {
        return dt_pnm_decode(name, bytes, n_bytes, out);
    }
    return dt_png_decode(name, bytes, n_bytes, out);
}

enum dt_status dt_picture_parse(const char *name, const uint8_t *bytes, size_t n_bytes,
                                struct dt_shape shape, struct dt_picture *picture, uint8_t *pixels)
{
    const bool exact = picture->resize == DT_RESIZE_NONE;
    struct dt_raster raster = {.background = picture->background};
    enum dt_status s = decode(name, bytes, n_bytes, exact ? (struct dt_shape){0} : shape, &raster);
    if (s == DT_OK && exact && (raster.width != shape.w || raster.height != shape.h)) {
        s = dt_error(DT_BAD_DATA,
                     "%s: %dx%d pixels high and wide, model.input is %dx%d (set data.resize to "
                     "stretch, fit or crop; or set model.input to [%d, %d, %d] if all are so)",
                     name, raster.height, raster.width, shape.h, shape.w, shape.c, raster.height,
                     raster.width);
    }
    if (s == DT_OK &&
        dt_raster_scale(&raster, shape, picture->resize, picture->may_be_black, pixels) != DT_OK) {
        s = dt_error(DT_NO_MEMORY, "%s: out of memory for the image", name);
    }
    DT_ASSERT(s != DT_OK || raster.bytes != NULL);
    picture->transparent = raster.has_alpha;
    picture->background = raster.background;
    picture->flawed = raster.flawed;
    dt_raster_close(&raster);
    return s;
}

enum dt_status dt_picture_read(const char *path, struct dt_shape shape, struct dt_picture *picture,
                               uint8_t *pixels)
{
    uint8_t *bytes = NULL;
    size_t n_bytes = 0;
    DT_TRY(dt_file_read(path, MAX_FILE_BYTES, &bytes, &n_bytes));
    const enum dt_status s = dt_picture_parse(path, bytes, n_bytes, shape, picture, pixels);
    free(bytes);
    return s;
}
