/* The IDX files of MNIST and its relatives: raw or gzip, recognized by content, never by name.
 *
 * magic 0x00000803: N H W bytes; 0x00000804: N C H W bytes; 0x00000801: N labels; big-endian sizes,
 * then the data, then nothing. Y. LeCun, C. Cortes, C. Burges, "The MNIST database of handwritten
 * digits". Files are untrusted: every size is checked against the file before anything is
 * allocated, and a gzip file is read to one byte past what its header declares. */
#ifndef DT_DATA_IDX_H
#define DT_DATA_IDX_H

#include <stdbool.h>

#include "base/clock.h"
#include "base/file_open.h"
#include "base/samples.h"

#define DT_IDX_U8 0x08 /* the third byte of a magic number: elements are unsigned bytes */

struct dt_idx {
    int n_dims; /* 1, 3 or 4 */
    size_t dims[4];
    size_t n_item_bytes; /* product of dims[1..] */
    size_t n_rows;       /* rows kept of dims[0] */
    uint8_t *data;       /* (n_rows, dims[1..]); freed by dt_idx_close */
};

/* The error of a file that does not begin as it should, which names what it is instead
 * (data/idx_refuse.c). `head`: its first bytes, at least 4. */
enum dt_status dt_idx_refuse(const char *path, const uint8_t *head, size_t n_head,
                             int n_dims_wanted);

struct dt_idx_reader {
    const struct dt_alive *alive; /* shown between pieces */
    /* dt_idx_refuse; NULL: a plain error. */
    enum dt_status (*refuse)(const char *path, const uint8_t *head, size_t n_head,
                             int n_dims_wanted);
};

/* A file as zlib reads it: what it holds, or what that expands to if it is gzip. */
struct dt_source {
    const char *path; /* borrowed */
    int fd;           /* `file` closes it, by gzclose */
    struct gzFile_s *file;
    struct stat info;
    bool packed;
    const struct dt_idx_reader *reader;
};
#define DT_MAX_DEFLATE_RATIO 1032 /* zlib.net/zlib_tech.html */
enum dt_status dt_source_open(const char *path, const struct dt_idx_reader *reader,
                              struct dt_source *out);
/* Up to n_wanted bytes; fewer only where the data properly end. */
enum dt_status dt_source_read(struct dt_source *source, void *bytes, size_t n_wanted,
                              size_t *n_got);

/* Reads `path`, keeping the rows first, first + stride, ... only; a row limit > 0 pretends the file
 * had no more rows than that. `n_dims_wanted`: 1 for labels, 3 for images (4 is then accepted too).
 * DT_NO_INPUT: missing, unreadable, not a regular file.
 * DT_BAD_DATA: anything wrong inside. DT_NO_PERMISSION. */
enum dt_status dt_idx_open(const char *path, int n_dims_wanted, size_t row_limit, uint32_t first,
                           uint32_t stride, const struct dt_idx_reader *reader, struct dt_idx *out);
void dt_idx_close(struct dt_idx *idx);

/* Reads only the header: n_dims and dims. */
enum dt_status dt_idx_peek(const char *path, int n_dims_wanted, const struct dt_idx_reader *reader,
                           struct dt_idx *out);

#endif
