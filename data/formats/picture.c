#include "data/formats/picture.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"

#define MAX_FILE_BYTES ((size_t)64 << 20)

static enum dt_status decode(const char *name, const uint8_t *bytes, size_t n_bytes,
                             struct dt_raster *out)
{
    if (n_bytes >= 3 && memcmp(bytes, "\xff\xd8\xff", 3) == 0) {
        return dt_jpeg_decode(name, bytes, n_bytes, out);
    }
    if (n_bytes >= 2 && bytes[0] == 'P' && bytes[1] >= '1' && bytes[1] <= '7') {
        return dt_pnm_decode(name, bytes, n_bytes, out);
    }
    return dt_png_decode(name, bytes, n_bytes, out);
}

enum dt_status dt_picture_parse(const char *name, const uint8_t *bytes, size_t n_bytes,
                                struct dt_shape shape, struct dt_picture *picture, uint8_t *pixels)
{
    struct dt_raster raster = {0};
    enum dt_status s = decode(name, bytes, n_bytes, &raster);
    if (s == DT_OK && picture->exact && (raster.width != shape.w || raster.height != shape.h)) {
        s = dt_error(DT_BAD_DATA,
                     "%s: %dx%d pixels high and wide, model.input is %dx%d (scale it; or set "
                     "model.input to [%d, %d, %d] if all are so)",
                     name, raster.height, raster.width, shape.h, shape.w, shape.c, raster.height,
                     raster.width);
    }
    if (s == DT_OK) {
        dt_raster_scale(&raster, shape, picture->may_be_black, pixels);
    }
    DT_ASSERT(s != DT_OK || raster.bytes != NULL);
    picture->transparent = raster.has_alpha;
    picture->on_black = raster.has_alpha && raster.background == 0;
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
