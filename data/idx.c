#include "data/idx.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file_read.h"
#include "base/memory.h"

#define MAX_FILE_BYTES ((size_t)4 << 30) /* of a file, and of what a gzip file expands to */
#define MAX_ITEMS ((size_t)INT32_MAX)    /* sample numbers are 32-bit */
#define MAX_EXTENT ((size_t)65536)       /* of channels, rows and columns */
#define MAX_ITEM_BYTES ((size_t)1 << 26)
#define PIECE_BYTES ((size_t)1 << 16) /* read at a time, if an item is not larger */
#define MAX_HEADER_BYTES ((size_t)(4 + 4 * 4))
#define HEAD_BYTES ((size_t)4096) /* enough of a gzip file to inflate the IDX header */

/* ---- where the bytes come from: the file itself, or what is packed in it ---- */

struct source {
    const char *name;
    const uint8_t *next; /* of a raw file: not yet handed out */
    size_t n_left;
    size_t n_out; /* bytes handed out */
    const struct dt_idx_reader *reader;
    void *packed; /* the stream of a packed file; NULL: it is raw */
};

static enum dt_status source_open(const char *name, const uint8_t *bytes, size_t n_bytes,
                                  const struct dt_idx_reader *reader, struct source *out)
{
    const struct dt_packing *packing = reader->packing;
    *out = (struct source){.name = name, .next = bytes, .n_left = n_bytes, .reader = reader};
    return packing != NULL && packing->fits(bytes, n_bytes)
               ? packing->open(name, bytes, n_bytes, &out->packed)
               : DT_OK;
}

static void source_close(struct source *source)
{
    if (source->packed != NULL) {
        source->reader->packing->close(source->packed);
    }
}

static enum dt_status source_read(struct source *source, uint8_t *bytes, size_t n_wanted,
                                  size_t *n_got)
{
    enum dt_status s = DT_OK;
    if (source->packed != NULL) {
        s = source->reader->packing->read(source->packed, bytes, n_wanted, n_got);
    } else {
        *n_got = n_wanted < source->n_left ? n_wanted : source->n_left;
        memcpy(bytes, source->next, *n_got);
        source->next += *n_got;
        source->n_left -= *n_got;
    }
    source->n_out += s == DT_OK ? *n_got : 0;
    return s;
}

/* ---- the header ---- */

static size_t big_endian(const uint8_t *b)
{
    return (size_t)b[0] << 24 | (size_t)b[1] << 16 | (size_t)b[2] << 8 | b[3];
}

/* The error of a file that does not begin as it should; who reads packed files, knows more. */
static enum dt_status refuse(struct source *source, const uint8_t magic[4], int n_dims_wanted)
{
    const struct dt_packing *packing = source->reader->packing;
    uint8_t head[32];
    size_t n_more = 0;
    memcpy(head, magic, 4);
    if (magic[0] != 0 || magic[1] != 0) {
        DT_TRY(source_read(source, head + 4, sizeof head - 4, &n_more));
    }
    if (packing != NULL) {
        return packing->refuse(source->name, head, n_more + 4, n_dims_wanted);
    }
    return dt_error(DT_BAD_DATA, "%s: not an IDX%d ubyte file (magic 0x%08zx%s)", source->name,
                    n_dims_wanted, big_endian(magic),
                    magic[0] == 0x1f && magic[1] == 0x8b ? "; it is gzip (gunzip it)" : "");
}

static enum dt_status check_magic(struct source *source, const uint8_t magic[4], int n_dims_wanted)
{
    const int n_dims = magic[3];
    const bool fits = n_dims_wanted == 1 ? n_dims == 1 : n_dims == 3 || n_dims == 4;
    return magic[0] == 0 && magic[1] == 0 && magic[2] == DT_IDX_U8 && fits
               ? DT_OK
               : refuse(source, magic, n_dims_wanted);
}

#define DIMS_TEXT_SIZE 64

static const char *dims_text(const struct dt_idx *idx, char text[DIMS_TEXT_SIZE])
{
    int used = 0;
    for (int i = 0; i < idx->n_dims; i++) {
        used += snprintf(text + used, DIMS_TEXT_SIZE - (size_t)used, "%s%zu", i > 0 ? " x " : "",
                         idx->dims[i]);
    }
    return text;
}

/* Can a file of n_file bytes hold what the header says? Nothing is allocated before this. */
static enum dt_status check_sizes(const struct source *source, size_t n_file, struct dt_idx *idx)
{
    char text[DIMS_TEXT_SIZE];
    const char *name = source->name, *dims = dims_text(idx, text);
    const bool packed = source->packed != NULL;
    const size_t n_most = n_file * (packed ? source->reader->packing->most_ratio : 1);
    size_t n_payload = 1;
    bool fits = true;
    for (int i = 0; i < idx->n_dims; i++) {
        fits = fits && !__builtin_mul_overflow(n_payload, idx->dims[i], &n_payload);
    }
    fits = fits && n_payload <= MAX_FILE_BYTES;
    if (fits && n_payload == 0) {
        return dt_error(DT_BAD_DATA, "%s: %s items: there is nothing in it", name, dims);
    }
    if (!fits || (packed && n_payload > n_most)) {
        return dt_error(DT_BAD_DATA, "%s: %s items is impossible for a %zu-byte file", name, dims,
                        n_file);
    }
    idx->n_item_bytes = n_payload / idx->dims[0];
    bool sane = idx->dims[0] <= MAX_ITEMS && idx->n_item_bytes <= MAX_ITEM_BYTES;
    for (int i = 1; i < idx->n_dims; i++) {
        sane = sane && idx->dims[i] <= MAX_EXTENT;
    }
    if (!sane) {
        return dt_error(DT_BAD_DATA,
                        "%s: %s items are too many or too large (at most %zu items of %zu bytes)",
                        name, dims, MAX_ITEMS, MAX_ITEM_BYTES);
    }
    const size_t n_declared = source->n_out + n_payload;
    if (!packed && n_file < n_declared) {
        return dt_error(DT_BAD_DATA,
                        "%s: header says %s = %zu bytes, file has %zu (fetch or copy it again)",
                        name, dims, n_payload, n_file - source->n_out);
    }
    if (!packed && n_file > n_declared) {
        return dt_error(DT_BAD_DATA, "%s: %zu extra bytes after the data", name,
                        n_file - n_declared);
    }
    return DT_OK;
}

static enum dt_status truncated(const struct source *source, int n_dims)
{
    return dt_error(DT_BAD_DATA,
                    "%s: header truncated: %zu bytes, need %d (fetch or copy it again)",
                    source->name, source->n_out, 4 + 4 * n_dims);
}

static enum dt_status read_header(struct source *source, size_t n_file, int n_dims_wanted,
                                  struct dt_idx *out)
{
    uint8_t bytes[MAX_HEADER_BYTES];
    size_t n = 0;
    DT_TRY(source_read(source, bytes, 4, &n));
    if (n < 4) {
        return truncated(source, n_dims_wanted);
    }
    DT_TRY(check_magic(source, bytes, n_dims_wanted));
    out->n_dims = bytes[3];
    DT_TRY(source_read(source, bytes + 4, 4 * (size_t)out->n_dims, &n));
    if (n < 4 * (size_t)out->n_dims) {
        return truncated(source, out->n_dims);
    }
    for (int i = 0; i < out->n_dims; i++) {
        out->dims[i] = big_endian(bytes + 4 + 4 * i);
    }
    return check_sizes(source, n_file, out);
}

/* ---- the data ---- */

/* Reads all rows, a piece at a time, and keeps rows first, first + stride, ... of the leading
 * n_limit. */
static enum dt_status read_rows(struct source *source, size_t n_limit, size_t first, size_t stride,
                                uint8_t *piece, size_t piece_rows, struct dt_idx *out)
{
    size_t next_kept = first, n_kept = 0;
    for (size_t row = 0; row < out->dims[0]; row += piece_rows) {
        const size_t end = out->dims[0] - row < piece_rows ? out->dims[0] : row + piece_rows;
        size_t n_got;
        dt_alive_show(source->reader->alive);
        DT_TRY(source_read(source, piece, (end - row) * out->n_item_bytes, &n_got));
        if (n_got < (end - row) * out->n_item_bytes) {
            char text[DIMS_TEXT_SIZE];
            return dt_error(DT_BAD_DATA, "%s: header says %s = %zu bytes, it expands to %zu",
                            source->name, dims_text(out, text), out->dims[0] * out->n_item_bytes,
                            source->n_out - 4 - 4 * (size_t)out->n_dims);
        }
        for (; next_kept < end && next_kept < n_limit; next_kept += stride) {
            memcpy(out->data + n_kept++ * out->n_item_bytes,
                   piece + (next_kept - row) * out->n_item_bytes, out->n_item_bytes);
        }
    }
    return DT_OK;
}

static enum dt_status read_data(struct source *source, size_t row_limit, size_t first,
                                size_t stride, struct dt_idx *out)
{
    const size_t n_limit = row_limit > 0 && row_limit < out->dims[0] ? row_limit : out->dims[0];
    const size_t piece_rows = out->n_item_bytes < PIECE_BYTES ? PIECE_BYTES / out->n_item_bytes : 1;
    const size_t n_piece =
        (piece_rows < out->dims[0] ? piece_rows : out->dims[0]) * out->n_item_bytes;
    out->n_rows = first < n_limit ? (n_limit - first + stride - 1) / stride : 0;
    out->data = dt_memory_alloc(out->n_rows > 0 ? out->n_rows * out->n_item_bytes : 1);
    uint8_t *piece = malloc(n_piece);
    enum dt_status status;
    if (out->data == NULL || piece == NULL) {
        status = dt_error(DT_NO_MEMORY, "%s: no memory for %zu items of %zu bytes", source->name,
                          out->n_rows, out->n_item_bytes);
    } else {
        status = read_rows(source, n_limit, first, stride, piece, piece_rows, out);
    }
    free(piece);
    return status == DT_OK && source->packed != NULL
               ? source->reader->packing->check_end(source->packed)
               : status;
}

/* ---- the interface ---- */

enum dt_status dt_idx_parse(const char *name, const uint8_t *bytes, size_t n_bytes,
                            int n_dims_wanted, size_t row_limit, uint32_t first, uint32_t stride,
                            const struct dt_idx_reader *reader, struct dt_idx *out)
{
    struct source source;
    *out = (struct dt_idx){0};
    DT_TRY(source_open(name, bytes, n_bytes, reader, &source));
    enum dt_status status = read_header(&source, n_bytes, n_dims_wanted, out);
    if (status == DT_OK) {
        status = read_data(&source, row_limit, first, stride, out);
    }
    source_close(&source);
    if (status != DT_OK) {
        dt_idx_close(out);
    }
    return status;
}

enum dt_status dt_idx_open(const char *path, int n_dims_wanted, size_t row_limit, uint32_t first,
                           uint32_t stride, const struct dt_idx_reader *reader, struct dt_idx *out)
{
    uint8_t *bytes;
    size_t n_bytes;
    DT_TRY(dt_file_read(path, MAX_FILE_BYTES, &bytes, &n_bytes));
    const enum dt_status status =
        dt_idx_parse(path, bytes, n_bytes, n_dims_wanted, row_limit, first, stride, reader, out);
    free(bytes);
    return status;
}

enum dt_status dt_idx_peek(const char *path, int n_dims_wanted, const struct dt_idx_reader *reader,
                           struct dt_idx *out)
{
    uint8_t head[HEAD_BYTES];
    size_t n_head, n_file;
    struct source source;
    *out = (struct dt_idx){0};
    DT_TRY(dt_file_read_head(path, sizeof head, head, &n_head, &n_file));
    if (n_file == 0) {
        return dt_error(DT_BAD_DATA, "%s: empty file", path);
    }
    DT_TRY(source_open(path, head, n_head, reader, &source));
    const enum dt_status status = read_header(&source, n_file, n_dims_wanted, out);
    source_close(&source);
    if (status != DT_OK) {
        return status;
    }
    out->n_rows = out->dims[0];
    return DT_OK;
}

void dt_idx_close(struct dt_idx *idx)
{
    free(idx->data);
    *idx = (struct dt_idx){0};
}
