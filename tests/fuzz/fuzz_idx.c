/* Any bytes as an IDX file: an error with a text, or rows that are really there; never a crash, a
 * leak or a read out of bounds. */
#include "data/idx.h"
#include "tests/fuzz/fuzz.h"

static volatile unsigned sink;

static void parse(const char *path, int wanted, size_t limit, uint32_t first, uint32_t stride)
{
    const struct dt_alive nobody = {NULL};
    const struct dt_idx_reader reader = {.alive = &nobody, .refuse = dt_idx_refuse};
    struct dt_idx idx;
    dt_error_clear();
    const enum dt_status status = dt_idx_open(path, wanted, limit, first, stride, &reader, &idx);
    if (status != DT_OK) {
        require(status == DT_BAD_DATA || status == DT_NO_MEMORY);
        require(strncmp(dt_error_text(), path, strlen(path)) == 0);
        require(idx.data == NULL);
        return;
    }
    require(idx.n_dims == wanted || (wanted == 3 && idx.n_dims == 4));
    require(idx.n_rows <= idx.dims[0] && (limit == 0 || idx.n_rows <= limit));
    for (size_t i = 0; i < idx.n_rows * idx.n_item_bytes; i++) {
        sink += idx.data[i];
    }
    dt_idx_close(&idx);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes)
{
    const char *path = path_of(bytes, n_bytes);
    parse(path, 1, 0, 0, 1);
    parse(path, 3, 0, 0, 1);
    parse(path, 3, 5, 1, 3);
    return 0;
}
