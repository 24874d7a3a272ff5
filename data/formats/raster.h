/* Decoded images, and their decoders, of files in memory. Files are untrusted: sizes are checked
 * before anything is allocated, and no side is longer than DT_PICTURE_MAX_SIDE. */
#ifndef DT_DATA_FORMATS_RASTER_H
#define DT_DATA_FORMATS_RASTER_H

#include <stdbool.h>

#include "data/dataset.h"

#define DT_PICTURE_MAX_SIDE 4096
#define DT_PICTURE_MAX_PIXELS ((size_t)1 << 28) /* of a JPEG that is scaled while it is decoded */
#define DT_PICTURE_MAX_SCANS 500 /* of a JPEG: each may go over all pixels; usual ones have 10 */

/* Rows of `channels` interleaved bytes: grey or RGB, and alpha if `has_alpha`. */
struct dt_raster {
    int width, height, channels;
    bool has_alpha;     /* once it is scaled: and there are transparent pixels */
    bool flawed;        /* as in struct dt_picture */
    uint8_t *bytes;     /* owned */
    double covers[2];   /* of a JPEG that was scaled: its width and height, whose last pixels may be
                           less than whole; 0: width and height */
    bool grey;          /* set by dt_raster_scale: colours are wanted as grey */
    uint8_t background; /* what shows through, and is beside an image that was fitted in */
};

/* Writes `pixels` (C, H, W) of another size, as dt_picture_read says. DT_NO_MEMORY, without a text.
 */
enum dt_status dt_raster_scale(struct dt_raster *in, struct dt_shape shape, enum dt_resize resize,
                               bool may_be_black, uint8_t *pixels);
void dt_raster_close(struct dt_raster *raster);

/* `out` is zeroed; the caller closes it, also after a failure. `name` is for messages. DT_BAD_DATA:
 * another kind of file, truncated or damaged; DT_NO_MEMORY. DT_UNAVAILABLE: a build without
 * libjpeg. */
enum dt_status dt_png_decode(const char *name, const uint8_t *bytes, size_t n_bytes,
                             struct dt_raster *out);
/* `least`: at no less than three times these sides it may be scaled by 1/2, 1/4 or 1/8; 0: as it
 * is. */
enum dt_status dt_jpeg_decode(const char *name, const uint8_t *bytes, size_t n_bytes,
                              struct dt_shape least, struct dt_raster *out);
enum dt_status dt_pnm_decode(const char *name, const uint8_t *bytes, size_t n_bytes,
                             struct dt_raster *out); /* PPM and PGM, binary */

/* A size that is read, or DT_BAD_DATA. */
enum dt_status dt_raster_check_size(const char *name, size_t width, size_t height);

#endif
