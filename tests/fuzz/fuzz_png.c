/* Any bytes as a PNG file, once as they are and once with every chunk's CRC mended, so that what
 * lies behind the CRCs is reached: an error with a text, or pixels; never a crash, a leak or a read
 * out of bounds. */
#include "data/formats/picture.h"
#include "tests/fuzz/fuzz.h"

#include <zlib.h>

static uint32_t load_be32(const uint8_t *bytes)
{
    return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
}

/* A chunk is a length, a type of four letters, so many bytes, and the CRC of type and bytes. */
static void mend_crcs(uint8_t *bytes, size_t n_bytes)
{
    size_t at = 8; /* after the signature */
    while (n_bytes >= at + 12 && load_be32(bytes + at) <= n_bytes - at - 12) {
        const size_t length = load_be32(bytes + at);
        const uLong crc = crc32_z(0, bytes + at + 4, length + 4);
        for (int i = 0; i < 4; i++) {
            bytes[at + 8 + length + (size_t)i] = (uint8_t)(crc >> (24 - 8 * i));
        }
        at += length + 12;
    }
}

static void parse(const uint8_t *bytes, size_t n_bytes, struct dt_shape shape)
{
    uint8_t *pixels =
        malloc(dt_shape_elems(shape)); /* exact, so that a write past the end is found */
    require(pixels != NULL);
    dt_error_clear();
    const enum dt_status status = dt_picture_parse(
        "fuzz", bytes, n_bytes, shape,
        &(struct dt_picture){.resize = DT_RESIZE_STRETCH, .background = 255, .may_be_black = true},
        pixels);
    if (status != DT_OK) {
        require(status == DT_BAD_DATA || status == DT_NO_MEMORY || status == DT_UNAVAILABLE);
        require(strncmp(dt_error_text(), "fuzz: ", 6) == 0);
    }
    free(pixels);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes)
{
    uint8_t *mended = copy_of(bytes, n_bytes);
    mend_crcs(mended, n_bytes);
    parse(bytes, n_bytes, (struct dt_shape){1, 28, 28});
    parse(mended, n_bytes, (struct dt_shape){1, 28, 28});
    parse(mended, n_bytes, (struct dt_shape){3, 5, 9});
    parse(mended, n_bytes, (struct dt_shape){1, 1, 1});
    free(mended);
    return 0;
}
