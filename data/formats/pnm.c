/* PPM and PGM, the binary ones (P6, P5) of 8 bits: netpbm.sourceforge.net/doc/ppm.html. */
#include <stdlib.h>
#include <string.h>

#include "data/formats/raster.h"

struct text {
    const uint8_t *at, *end;
};

static bool is_blank(uint8_t c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* A number behind blanks and comments, which go from # to the end of the line. SIZE_MAX: none, or
 * one of more than six digits. */
static size_t next_number(struct text *t)
{
    DT_ASSERT(t->at <= t->end);
    size_t n = 0;
    while (t->at < t->end && (is_blank(*t->at) || *t->at == '#')) {
        const uint8_t *line_end = memchr(t->at, '\n', (size_t)(t->end - t->at));
        t->at = *t->at == '#' ? (line_end != NULL ? line_end : t->end) : t->at + 1;
    }
    const uint8_t *first = t->at;
    for (; t->at < t->end && *t->at >= '0' && *t->at <= '9' && n < 1000000; t->at++) {
        n = 10 * n + (size_t)(*t->at - '0');
    }
    return t->at > first && n < 1000000 ? n : SIZE_MAX;
}

static enum dt_status wrong(const char *name, const char *what)
{
    return dt_error(DT_BAD_DATA, "%s: %s (save it as PNG, or as PPM or PGM of 8 bits, binary)",
                    name, what);
}

enum dt_status dt_pnm_decode(const char *name, const uint8_t *bytes, size_t n_bytes,
                             struct dt_raster *out)
{
    DT_ASSERT(n_bytes >= 2 && bytes[0] == 'P');
    struct text t = {.at = bytes + 2, .end = bytes + n_bytes};
    if (bytes[1] != '5' && bytes[1] != '6') {
        return wrong(name, "another kind of PPM or PGM");
    }
    const size_t width = next_number(&t), height = next_number(&t), largest = next_number(&t);
    if (width == SIZE_MAX || height == SIZE_MAX || largest == SIZE_MAX || t.at == t.end ||
        !is_blank(*t.at++)) {
        return wrong(name, "a damaged header of PPM or PGM");
    }
    if (largest != 255) {
        return wrong(name, "its pixels are not 0 to 255");
    }
    DT_TRY(dt_raster_check_size(name, width, height));
    out->channels = bytes[1] == '5' ? 1 : 3;
    const size_t n = width * height * (size_t)out->channels;
    if ((size_t)(t.end - t.at) < n) {
        return dt_error(DT_BAD_DATA,
                        "%s: truncated: %zu bytes of pixels, %zu are there (copy it "
                        "again)",
                        name, n, (size_t)(t.end - t.at));
    }
    out->bytes = malloc(n);
    if (out->bytes == NULL) {
        return dt_error(DT_NO_MEMORY, "%s: out of memory for the image", name);
    }
    memcpy(out->bytes, t.at, n);
    out->width = (int)width;
    out->height = (int)height;
    return DT_OK;
}
