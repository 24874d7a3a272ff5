#include "data/idx.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "base/arithmetic.h"
#include "base/memory.h"

#define MAX_BYTES ((size_t)4 << 30)   /* of the data, expanded */
#define MAX_ITEMS ((size_t)INT32_MAX) /* sample numbers are 32-bit */
#define MAX_EXTENT ((size_t)65536)    /* of channels, rows and columns */
#define MAX_ITEM_BYTES ((size_t)1 << 26)
#define PIECE_BYTES ((size_t)1 << 16) /* read at a time, if an item is not larger */
#define DIMS_TEXT_SIZE 64

enum dt_status dt_source_open(const char *path, const struct dt_idx_reader *reader,
                              struct dt_source *out)
{
    *out = (struct dt_source){.path = path, .reader = reader};
    DT_TRY(dt_file_open(path, &out->fd, &out->info));
    if (out->info.st_size == 0) {
        close(out->fd);
        return dt_error(DT_BAD_DATA, "%s: empty file", path);
    }
    out->file = gzdopen(out->fd, "rb");
    if (out->file == NULL) {
        close(out->fd);
        return dt_error(DT_NO_MEMORY, "%s: no memory for zlib", path);
    }
    out->packed = gzdirect(out->file) == 0;
    return DT_OK;
}

enum dt_status dt_source_read(struct dt_source *source, void *bytes, size_t n_wanted, size_t *n_got)
{
    int code;
    const int n = gzread(source->file, bytes, (unsigned)n_wanted);
    const char *text = gzerror(source->file, &code), *reason = strstr(text, ": ");
    *n_got = n > 0 ? (size_t)n : 0;
    DT_ASSERT(*n_got <= n_wanted);
    if (code == Z_OK || code == Z_STREAM_END) {
        return DT_OK;
    }
    if (code == Z_ERRNO) {
        return dt_error_errno(DT_IO, "%s", source->path);
    }
    if (code == Z_MEM_ERROR) {
        return dt_error(DT_NO_MEMORY, "%s: no memory for zlib", source->path);
    }
    return dt_error(DT_BAD_DATA,
                    code == Z_BUF_ERROR ? "%s: %s (fetch or copy it again)"
                                        : "%s: damaged gzip data: %s (fetch or copy it again)",
                    source->path, reason != NULL ? reason + 2 : text);
}

/* ---- the header ---- */

static size_t big_endian(const uint8_t *b)
{
    return (size_t)b[0] << 24 | (size_t)b[1] << 16 | (size_t)b[2] << 8 | b[3];
}

static enum dt_status check_magic(struct dt_source *source, const uint8_t magic[4],
                                  int n_dims_wanted)
{
    const int n_dims = magic[3];
    const bool fits = n_dims_wanted == 1 ? n_dims == 1 : n_dims == 3 || n_dims == 4;
    uint8_t head[32];
    size_t n_more = 0;
    if (magic[0] == 0 && magic[1] == 0 && magic[2] == DT_IDX_U8 && fits) {
        return DT_OK;
    }
    if (source->reader->refuse == NULL) {
        return dt_error(DT_BAD_DATA, "%s: not an IDX%d ubyte file (magic 0x%08zx)", source->path,
                        n_dims_wanted, big_endian(magic));
    }
    memcpy(head, magic, 4);
    if (magic[0] != 0 || magic[1] != 0) {
        DT_TRY(dt_source_read(source, head + 4, sizeof head - 4, &n_more));
    }
    return source->reader->refuse(source->path, head, n_more + 4, n_dims_wanted);
}

static size_t header_bytes(const struct dt_idx *idx)
{
    DT_ASSERT(idx->n_dims >= 1 && idx->n_dims <= 4);
    return 4 + 4 * (size_t)idx->n_dims;
}

static const char *dims_text(const struct dt_idx *idx, char text[DIMS_TEXT_SIZE])
{
    int used = 0;
    for (int i = 0; i < idx->n_dims; i++) {
        used += snprintf(text + used, DIMS_TEXT_SIZE - (size_t)used, "%s%zu", i > 0 ? " x " : "",
                         idx->dims[i]);
    }
    return text;
}

/* Can the file hold what the header says? Nothing is allocated before this. */
static enum dt_status check_sizes(const struct dt_source *source, struct dt_idx *idx)
{
    char text[DIMS_TEXT_SIZE];
    const char *path = source->path, *dims = dims_text(idx, text);
    const size_t n_file = (size_t)source->info.st_size;
    size_t n_payload = 1;
    bool fits = true, sane = true;
    for (int i = 0; i < idx->n_dims; i++) {
        fits = fits && !__builtin_mul_overflow(n_payload, idx->dims[i], &n_payload);
        sane = sane && idx->dims[i] <= (i == 0 ? MAX_ITEMS : MAX_EXTENT);
    }
    if (fits && n_payload == 0) {
        return dt_error(DT_BAD_DATA, "%s: %s items: there is nothing in it", path, dims);
    }
    if (!fits || n_payload > MAX_BYTES ||
        (source->packed && n_payload > n_file * DT_MAX_DEFLATE_RATIO)) {
        return dt_error(DT_BAD_DATA, "%s: %s items is impossible for a %zu-byte file", path, dims,
                        n_file);
    }
    idx->n_item_bytes = n_payload / idx->dims[0];
    if (!sane || idx->n_item_bytes > MAX_ITEM_BYTES) {
        return dt_error(DT_BAD_DATA,
                        "%s: %s items are too many or too large (at most %zu items of %zu bytes)",
                        path, dims, MAX_ITEMS, MAX_ITEM_BYTES);
    }
    DT_ASSERT(idx->n_item_bytes * idx->dims[0] == n_payload);
    const size_t n_declared = header_bytes(idx) + n_payload;
    if (!source->packed && n_file < n_declared) {
        return dt_error(DT_BAD_DATA,
                        "%s: header says %s = %zu bytes, file has %zu (fetch or copy it again)",
                        path, dims, n_payload, n_file - header_bytes(idx));
    }
    if (!source->packed && n_file > n_declared) {
        return dt_error(DT_BAD_DATA, "%s: %zu extra bytes after the data", path,
                        n_file - n_declared);
    }
    return DT_OK;
}

static enum dt_status read_header(struct dt_source *source, int n_dims_wanted, struct dt_idx *out)
{
    uint8_t bytes[4 * (1 + 4)];
    size_t n = 0, n_dims_read = 0;
    out->n_dims = n_dims_wanted;
    DT_TRY(dt_source_read(source, bytes, 4, &n));
    if (n == 4) {
        DT_TRY(check_magic(source, bytes, n_dims_wanted));
        out->n_dims = bytes[3];
        DT_TRY(dt_source_read(source, bytes + 4, header_bytes(out) - 4, &n_dims_read));
    }
    if (n + n_dims_read < header_bytes(out)) {
        return dt_error(DT_BAD_DATA,
                        "%s: header truncated: %zu bytes, need %zu (fetch or copy it again)",
                        source->path, n + n_dims_read, header_bytes(out));
    }
    for (int i = 0; i < out->n_dims; i++) {
        out->dims[i] = big_endian(bytes + 4 + 4 * i);
    }
    return check_sizes(source, out);
}

/* ---- the data ---- */

/* To a byte further on, which may be past the end. */
static enum dt_status skip_to(struct dt_source *source, size_t at)
{
    return gzseek(source->file, (z_off_t)at, SEEK_SET) >= 0
               ? DT_OK
               : dt_error(DT_BAD_DATA, "%s: changed while it was read", source->path);
}

/* The data end where the header says. What a gzip file expands to, modulo 2^32, are its last four
 * bytes: zlib passes over what follows a whole one. */
static enum dt_status check_end(struct dt_source *source, const struct dt_idx *idx)
{
    DT_ASSERT(idx->n_rows <= idx->dims[0]);
    const size_t n_payload = idx->dims[0] * idx->n_item_bytes;
    const size_t n_declared = header_bytes(idx) + n_payload;
    uint8_t past, tail[4] = {0};
    size_t n_past;
    char text[DIMS_TEXT_SIZE];
    DT_TRY(dt_file_check_unchanged(source->fd, source->path, &source->info));
    DT_TRY(skip_to(source, n_declared));
    DT_TRY(dt_source_read(source, &past, 1, &n_past));
    const size_t n_there = (size_t)gztell(source->file);
    if (n_past > 0) {
        return dt_error(DT_BAD_DATA, "%s: expands past the %zu bytes its header declares",
                        source->path, n_declared);
    }
    if (n_there < n_declared) {
        return dt_error(DT_BAD_DATA, "%s: header says %s = %zu bytes, it expands to %zu",
                        source->path, dims_text(idx, text), n_payload, n_there - header_bytes(idx));
    }
    if (source->packed && (pread(source->fd, tail, 4, source->info.st_size - 4) != 4 ||
                           (tail[0] | tail[1] << 8 | tail[2] << 16 | (uint32_t)tail[3] << 24) !=
                               n_declared % (1ull << 32))) {
        return dt_error(DT_BAD_DATA, "%s: extra data after the end of the gzip data", source->path);
    }
    return DT_OK;
}

/* Reads rows first, first + stride, ... of the leading n_limit. */
static enum dt_status read_rows(struct dt_source *source, size_t first, size_t stride,
                                struct dt_idx *out)
{
    DT_ASSERT(out->n_rows == 0 || first + (out->n_rows - 1) * stride < out->dims[0]);
    const size_t n_item = out->n_item_bytes, most = dt_max_size(PIECE_BYTES / n_item, 1);
    size_t n_got = 0;
    for (size_t i = 0, n; i < out->n_rows; i += n) {
        n = stride == 1 ? dt_min_size(most, out->n_rows - i) : 1;
        DT_ASSERT(n >= 1 && i + n <= out->n_rows);
        dt_alive_show(source->reader->alive);
        DT_TRY(skip_to(source, header_bytes(out) + (first + i * stride) * n_item));
        DT_TRY(dt_source_read(source, out->data + i * n_item, n * n_item, &n_got));
    }
    return check_end(source, out);
}

static enum dt_status read_data(struct dt_source *source, size_t row_limit, size_t first,
                                size_t stride, struct dt_idx *out)
{
    DT_ASSERT(stride >= 1);
    const size_t n_limit = row_limit > 0 ? dt_min_size(row_limit, out->dims[0]) : out->dims[0];
    out->n_rows = first < n_limit ? (n_limit - first + stride - 1) / stride : 0;
    out->data = dt_memory_alloc(out->n_rows * out->n_item_bytes + 1);
    return out->data != NULL ? read_rows(source, first, stride, out)
                             : dt_error(DT_NO_MEMORY, "%s: no memory for %zu items of %zu bytes",
                                        source->path, out->n_rows, out->n_item_bytes);
}

/* ---- the interface ---- */

enum dt_status dt_idx_open(const char *path, int n_dims_wanted, size_t row_limit, uint32_t first,
                           uint32_t stride, const struct dt_idx_reader *reader, struct dt_idx *out)
{
    DT_ASSERT(n_dims_wanted == 1 || n_dims_wanted == 3);
    struct dt_source source;
    *out = (struct dt_idx){0};
    DT_TRY(dt_source_open(path, reader, &source));
    enum dt_status status = read_header(&source, n_dims_wanted, out);
    status = status == DT_OK ? read_data(&source, row_limit, first, stride, out) : status;
    gzclose(source.file);
    if (status != DT_OK) {
        dt_idx_close(out);
    }
    return status;
}

enum dt_status dt_idx_peek(const char *path, int n_dims_wanted, const struct dt_idx_reader *reader,
                           struct dt_idx *out)
{
    DT_ASSERT(n_dims_wanted == 1 || n_dims_wanted == 3);
    struct dt_source source;
    *out = (struct dt_idx){0};
    DT_TRY(dt_source_open(path, reader, &source));
    const enum dt_status status = read_header(&source, n_dims_wanted, out);
    gzclose(source.file);
    out->n_rows = out->dims[0];
    return status;
}

void dt_idx_close(struct dt_idx *idx)
{
    free(idx->data);
    *idx = (struct dt_idx){0};
}
