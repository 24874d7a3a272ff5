/* An image file as a model wants to see it: PNG, JPEG, PPM or PGM, recognized by content. */
#ifndef DT_DATA_FORMATS_PICTURE_H
#define DT_DATA_FORMATS_PICTURE_H

#include "data/formats/raster.h"

/* How an image is to be read, and what it turned out to be. */
struct dt_picture {
    enum dt_resize resize; /* DT_RESIZE_NONE: it must have the shape's size */
    uint8_t background;    /* of a transparent image, and of one that is fitted in; out */
    bool may_be_black;     /* of a transparent image: black where more is seen then */
    bool transparent;      /* out */
    bool flawed;           /* out: a JPEG that breaks a rule but has all its pixels */
};

/* Reads `path` into `pixels` (C, H, W) of `shape`, C = 1 (grey) or 3 (RGB); values 0..255, to be
 * scaled as in training. 16-bit images become 8-bit. Values are taken as they stand in the file,
 * without regard to its gamma, colour profile or EXIF orientation; colours become grey by
 * ITU-R BT.601's luma of them: 0.299 R + 0.587 G + 0.114 B. Transparent images all lie on one
 * background: if each had its own, a model could tell classes by it. Images are scaled as by
 * Pillow's Image.resize, ImageOps.pad (fit) and ImageOps.fit (crop), with its filter BILINEAR,
 * which looks at all pixels where a side shrinks; libjpeg scales large ones before. Texts and other
 * chunks that the pixels do not need are not looked at, whatever is in them. DT_BAD_DATA: no such
 * image, truncated, damaged, another size, a side above DT_PICTURE_MAX_SIDE, or a JPEG of more
 * scans than DT_PICTURE_MAX_SCANS. DT_UNAVAILABLE: JPEG, in a build without it. DT_NO_INPUT,
 * DT_NO_PERMISSION: as dt_file_read. DT_NO_MEMORY. */
enum dt_status dt_picture_read(const char *path, struct dt_shape shape, struct dt_picture *picture,
                               uint8_t *pixels);

/* The same from memory: what the fuzzer calls. `name` appears in messages. */
enum dt_status dt_picture_parse(const char *name, const uint8_t *bytes, size_t n_bytes,
                                struct dt_shape shape, struct dt_picture *picture, uint8_t *pixels);

#endif
