#include "data/gzip.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>
#define ZLIB_CONST /* zlib does not write to its input */
#include <zlib.h>

#define MAX_DEFLATE_RATIO 1032 /* zlib.net/zlib_tech.html */

struct stream {
    const char *name;
    const uint8_t *next; /* not yet given to zlib */
    size_t n_left;
    bool ended; /* complete, and its CRC and length are right */
    z_stream z;
    size_t n_out; /* bytes handed out */
};

static bool is_gzip(const uint8_t *bytes, size_t n_bytes)
{
    return n_bytes >= 2 && bytes[0] == 0x1f && bytes[1] == 0x8b;
}

static enum dt_status open_stream(const char *name, const uint8_t *bytes, size_t n_bytes,
                                  void **out)
{
    struct stream *stream = calloc(1, sizeof *stream);
    if (stream == NULL || inflateInit2(&stream->z, MAX_WBITS + 16) != Z_OK) {
        free(stream);
        return dt_error(DT_NO_MEMORY, "%s: no memory for zlib", name);
    }
    stream->name = name;
    stream->next = bytes;
    stream->n_left = n_bytes;
    *out = stream;
    return DT_OK;
}

static void close_stream(void *of)
{
    struct stream *stream = of;
    inflateEnd(&stream->z);
    free(stream);
}

/* zlib counts input in 32 bits, so it gets its input in pieces. */
static void refill(struct stream *stream)
{
    const size_t n = stream->n_left < (1u << 30) ? stream->n_left : (1u << 30);
    stream->z.next_in = stream->next;
    stream->z.avail_in = (uInt)n;
    stream->next += n;
    stream->n_left -= n;
}

static enum dt_status inflate_error(const struct stream *stream, int code)
{
    switch (code) {
    case Z_MEM_ERROR:
        return dt_error(DT_NO_MEMORY, "%s: no memory for zlib", stream->name);
    case Z_BUF_ERROR:
        return dt_error(DT_BAD_DATA,
                        "%s: unexpected end of file after %zu bytes (fetch or copy it again)",
                        stream->name, stream->n_out);
    default:
        return dt_error(DT_BAD_DATA, "%s: damaged gzip data: %s (fetch or copy it again)",
                        stream->name, stream->z.msg != NULL ? stream->z.msg : "no valid stream");
    }
}

static enum dt_status read_stream(void *of, uint8_t *bytes, size_t n_wanted, size_t *n_got)
{
    struct stream *stream = of;
    stream->z.next_out = bytes;
    stream->z.avail_out = (uInt)n_wanted;
    while (stream->z.avail_out > 0 && !stream->ended) {
        if (stream->z.avail_in == 0) {
            refill(stream);
        }
        const uInt before = stream->z.avail_out;
        const int code = inflate(&stream->z, Z_NO_FLUSH);
        stream->n_out += before - stream->z.avail_out;
        stream->ended = code == Z_STREAM_END;
        if (code != Z_OK && code != Z_STREAM_END) {
            return inflate_error(stream, code);
        }
    }
    *n_got = n_wanted - stream->z.avail_out;
    stream->z.next_out = NULL; /* the caller's bytes may be gone before the stream is */
    return DT_OK;
}

static enum dt_status check_end(void *of)
{
    struct stream *stream = of;
    uint8_t byte;
    size_t n = 0;
    const size_t n_declared = stream->n_out;
    DT_TRY(read_stream(stream, &byte, 1, &n));
    if (n > 0) {
        return dt_error(DT_BAD_DATA, "%s: expands past the %zu bytes its header declares",
                        stream->name, n_declared);
    }
    const size_t n_extra = stream->n_left + stream->z.avail_in;
    return n_extra == 0
               ? DT_OK
               : dt_error(DT_BAD_DATA,
                          "%s: extra data after the first member of the gzip file: %zu bytes",
                          stream->name, n_extra);
}

static const char *guess(const uint8_t *bytes, size_t n_bytes)
{
    static const struct {
        const char *start, *text;
    } known[] = {
        {"\x89PNG", "; looks like a PNG image"},
        {"\xff\xd8\xff", "; looks like a JPEG image"},
        {"PK\x03\x04", "; looks like a zip archive"},
        {"\xfd"
         "7zX",
         "; looks like xz"},
        {"BZh", "; looks like bzip2"},
        {"\x28\xb5\x2f\xfd", "; looks like zstd"},
        {"\x93NUMPY", "; looks like a NumPy file"},
        {"<!doc", "; looks like HTML"},
        {"<html", "; looks like HTML"},
        {"<head", "; looks like HTML"},
        {"<?xml", "; looks like HTML"},
    };
    size_t blank = 0;
    while (blank < n_bytes && strchr(" \t\r\n", bytes[blank]) != NULL && bytes[blank] != '\0') {
        blank++;
    }
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        const size_t length = strlen(known[i].start);
        if (n_bytes - blank >= length &&
            strncasecmp((const char *)bytes + blank, known[i].start, length) == 0) {
            return known[i].text;
        }
    }
    return "";
}

static const char *kind_name(int n_dims)
{
    return n_dims == 1 ? "labels" : "images";
}

static enum dt_status refuse(const char *name, const uint8_t *head, size_t n_head,
                             int n_dims_wanted)
{
    static const char *const types[] = {"signed byte", "?", "short", "int", "float", "double"};
    const char *wanted = kind_name(n_dims_wanted);
    const unsigned magic = (unsigned)head[0] << 24 | (unsigned)head[1] << 16 |
                           (unsigned)head[2] << 8 | (unsigned)head[3];
    const int n_dims = head[3], type = head[2];
    if (head[0] != 0 || head[1] != 0) {
        const bool swapped = head[1] == DT_IDX_U8 && head[2] == 0 && head[3] == 0;
        return dt_error(DT_BAD_DATA, "%s: not an IDX%d ubyte file, raw or gzip (magic 0x%08x%s)%s",
                        name, n_dims_wanted, magic,
                        swapped ? "; little-endian, IDX is big-endian" : guess(head, n_head),
                        head[0] == '<' ? " (a download that failed? fetch it again)" : "");
    }
    if (type != DT_IDX_U8) {
        const bool known = type >= 0x09 && type <= 0x0e && type != 0x0a;
        return dt_error(DT_BAD_DATA,
                        "%s: element type 0x%02x (%s) is not supported, expected 0x08 (convert it "
                        "to unsigned bytes)",
                        name, (unsigned)type, known ? types[type - 0x09] : "unknown");
    }
    if (n_dims == 1 || n_dims == 3 || n_dims == 4) {
        return dt_error(
            DT_BAD_DATA,
            "%s: holds %s (magic 0x%08x), but %s are expected here (are the files swapped?)", name,
            kind_name(n_dims), magic, wanted);
    }
    return dt_error(DT_BAD_DATA, "%s: %d dimensions, but %s have %s", name, n_dims, wanted,
                    n_dims_wanted == 1 ? "1" : "3 (N H W) or 4 (N C H W)");
}

const struct dt_packing dt_gzip = {.most_ratio = MAX_DEFLATE_RATIO,
                                   .fits = is_gzip,
                                   .open = open_stream,
                                   .close = close_stream,
                                   .read = read_stream,
                                   .check_end = check_end,
                                   .refuse = refuse};
