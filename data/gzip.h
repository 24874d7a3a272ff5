/* Data files that are not plain: gzip, read as if it were the file in it, and what a file may be
 * that is neither. A program that does not name dt_gzip reads raw files alone. */
#ifndef DT_DATA_GZIP_H
#define DT_DATA_GZIP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* How packed files are read. `name` appears in messages. */
struct dt_packing {
    const char *also;  /* ", raw or ...": in messages */
    size_t most_ratio; /* no stream expands to more than so many times its bytes */
    bool (*fits)(const uint8_t *bytes, size_t n_bytes);
    enum dt_status (*open)(const char *name, const uint8_t *bytes, size_t n_bytes, void **stream);
    void (*close)(void *stream);
    /* Up to n_wanted bytes (at most 1 GiB); fewer only where the data properly end. */
    enum dt_status (*read)(void *stream, uint8_t *bytes, size_t n_wanted, size_t *n_got);
    /* Whether nothing follows: neither in the stream, of which one byte more is asked for, nor
     * after it. */
    enum dt_status (*check_end)(void *stream);
    /* What else the file may be, "" when that cannot be told. */
    const char *(*guess)(const uint8_t *bytes, size_t n_bytes);
};

extern const struct dt_packing dt_gzip;

#endif
