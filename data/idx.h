/* The IDX files of MNIST and its relatives: raw or packed, told apart by content, never by name.
 *
 * magic 0x00000803: N H W bytes; 0x00000804: N C H W bytes; 0x00000801: N labels; big-endian sizes,
 * then the data, then nothing. Y. LeCun, C. Cortes, C. Burges, "The MNIST database of handwritten
 * digits". Files are untrusted: every size is checked against the file before anything is
 * allocated, and a packed stream is stopped one byte past what its header declares. */
#ifndef DT_DATA_IDX_H
#define DT_DATA_IDX_H

#include <stdbool.h>

#include "base/clock.h"
#include "base/samples.h"
#include "base/status.h"

#define DT_IDX_U8 0x08 /* the third byte of a magic number: elements are unsigned bytes */

struct dt_idx {
    int n_dims; /* 1, 3 or 4 */
    size_t dims[4];
    size_t n_item_bytes; /* product of dims[1..] */
    size_t n_rows;       /* rows kept of dims[0] */
    uint8_t *data;       /* (n_rows, dims[1..]); freed by dt_idx_close */
};

/* How packed files are read. `name` appears in messages. */
struct dt_packing {
    size_t most_ratio; /* no stream expands to more than so many times its bytes */
    bool (*fits)(const uint8_t *bytes, size_t n_bytes);
    enum dt_status (*open)(const char *name, const uint8_t *bytes, size_t n_bytes, void **stream);
    void (*close)(void *stream);
    /* Up to n_wanted bytes (at most 1 GiB); fewer only where the data properly end. */
    enum dt_status (*read)(void *stream, uint8_t *bytes, size_t n_wanted, size_t *n_got);
    /* Whether nothing follows: neither in the stream, of which one byte more is asked for, nor
     * after it. */
    enum dt_status (*check_end)(void *stream);
    /* The error of a file whose first bytes are no magic number of such a file. */
    enum dt_status (*refuse)(const char *name, const uint8_t *head, size_t n_head,
                             int n_dims_wanted);
};

struct dt_idx_reader {
    const struct dt_packing *packing; /* NULL: raw files alone */
    const struct dt_alive *alive;     /* shown between pieces */
};

/* Reads `path`, keeping the rows first, first + stride, ... only; a row limit > 0 pretends the file
 * had no more rows than that. `n_dims_wanted`: 1 for labels, 3 for images (4 is then accepted too).
 * DT_NO_INPUT: missing, unreadable, not a regular file.
 * DT_BAD_DATA: anything wrong inside. DT_NO_PERMISSION. */
enum dt_status dt_idx_open(const char *path, int n_dims_wanted, size_t row_limit, uint32_t first,
                           uint32_t stride, const struct dt_idx_reader *reader, struct dt_idx *out);
void dt_idx_close(struct dt_idx *idx);

/* The same from memory: what the fuzzer calls. `name` appears in messages. */
enum dt_status dt_idx_parse(const char *name, const uint8_t *bytes, size_t n_bytes,
                            int n_dims_wanted, size_t row_limit, uint32_t first, uint32_t stride,
                            const struct dt_idx_reader *reader, struct dt_idx *out);

/* Reads only the header: n_dims and dims. */
enum dt_status dt_idx_peek(const char *path, int n_dims_wanted, const struct dt_idx_reader *reader,
                           struct dt_idx *out);

#endif
