/* Any bytes as a NumPy array's header and as a zip archive: an error with a text, or what is really
 * there; never a crash, a leak or a read out of bounds. */
#include "data/formats/npy.h"
#include "data/formats/zip.h"
#include "tests/fuzz/fuzz.h"

static volatile uint64_t sink;

/* Elements lie behind the header. */
static void parse_array(const uint8_t *bytes, size_t n_bytes)
{
    size_t n_prefix, n_header, n_elems = 1;
    struct dt_npy npy;
    if (n_bytes < DT_NPY_PREFIX_BYTES ||
        dt_npy_prefix("array", bytes, &n_prefix, &n_header) != DT_OK ||
        n_header > n_bytes - n_prefix) {
        return;
    }
    char *text = (char *)copy_of(bytes + n_prefix, n_header);
    const enum dt_status s = dt_npy_parse("array", text, n_header, &npy);
    free(text);
    require(s == DT_OK || s == DT_BAD_DATA);
    if (s != DT_OK) {
        require(strncmp(dt_error_text(), "array: ", 7) == 0);
        return;
    }
    require(npy.n_dims >= 0 && npy.n_dims <= DT_NPY_MAX_DIMS && npy.n_bytes <= 9);
    for (int i = 0; i < npy.n_dims; i++) {
        n_elems *= npy.dims[i];
    }
    require(n_elems == npy.n_elems);
    const size_t n_there = n_bytes - n_prefix - n_header;
    for (size_t i = 0; dt_npy_is_number(&npy) && i < npy.n_elems; i++) {
        if ((i + 1) * (size_t)npy.n_bytes > n_there) {
            break;
        }
        sink += dt_npy_number(&npy, bytes + n_prefix + n_header, i) > 0;
    }
}

static void parse_archive(const char *path)
{
    static struct dt_zip_member member;
    uint8_t piece[1000];
    size_t n = 1, n_all = 0;
    dt_error_clear();
    enum dt_status s =
        dt_zip_open(path, (const char[][DT_ZIP_NAME_SIZE]){"images.npy"}, 1, &member);
    if (s == DT_OK) {
        const size_t n_declared = member.n_bytes;
        while (s == DT_OK && n > 0) {
            s = dt_zip_read(&member, piece, sizeof piece, &n);
            for (size_t i = 0; s == DT_OK && i < n; i++) {
                sink += piece[i];
            }
            n_all += n;
        }
        require(s != DT_OK || n_all == n_declared);
        dt_zip_close(&member);
    }
    require(s == DT_OK || s == DT_BAD_DATA || s == DT_NO_MEMORY || s == DT_NO_INPUT);
    require(s == DT_OK || strncmp(dt_error_text(), path, strlen(path)) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes)
{
    dt_error_clear();
    parse_array(bytes, n_bytes);
    parse_archive(path_of(bytes, n_bytes));
    return 0;
}
