/* The error of a file that is no IDX file, with the line of NumPy that makes it one. */
#include "base/file.h"
#include "data/idx.h"

static const char *kind_name(int n_dims)
{
    return n_dims == 1 ? "labels" : "images";
}

enum dt_status dt_idx_refuse(const char *path, const uint8_t *head, size_t n_head,
                             int n_dims_wanted)
{
    static const char *const types[] = {"signed byte", "unknown", "short",
                                        "int",         "float",   "double"};
    const char *wanted = kind_name(n_dims_wanted);
    const unsigned magic = (unsigned)head[0] << 24 | (unsigned)head[1] << 16 |
                           (unsigned)head[2] << 8 | (unsigned)head[3];
    const int n_dims = head[3], type = head[2];
    const char *type_name = types[type >= 0x09 && type <= 0x0e ? type - 0x09 : 1];
    const char *mend =
        n_dims_wanted > 1
            ? type == 0x0d || type == 0x0e
                  ? "save numpy.rint(255 * images).astype(numpy.uint8) if they are 0 to 1, "
                    "numpy.rint(images).astype(numpy.uint8) if they are 0 to 255"
                  : "save images.astype(numpy.uint8) if they are 0 to 255"
        : n_dims == 2 ? "save labels.argmax(1).astype(numpy.uint8) if they are one-hot, "
                        "labels[:, 0].astype(numpy.uint8) if they are QMNIST's or one column"
                      : "save labels.astype(numpy.uint8) if they are whole numbers up to 255";
    if (head[0] != 0 || head[1] != 0) {
        const bool swapped = head[1] == DT_IDX_U8 && head[2] == 0 && head[3] == 0;
        const char *kind = swapped ? NULL : dt_file_kind(head, n_head);
        return dt_error(DT_BAD_DATA,
                        "%s: not an IDX%d ubyte file, raw or gzip (magic 0x%08x%s%s)%s", path,
                        n_dims_wanted, magic,
                        swapped        ? "; little-endian, IDX is big-endian"
                        : kind != NULL ? "; looks like "
                                       : "",
                        kind != NULL ? kind : "",
                        head[0] == '<' ? " (a download that failed? fetch it again)" : "");
    }
    if (type != DT_IDX_U8) {
        return dt_error(DT_BAD_DATA,
                        "%s: element type 0x%02x (%s) is not supported, expected 0x08 (%s)", path,
                        (unsigned)type, type_name, mend);
    }
    if (n_dims == 1 || n_dims == 3 || n_dims == 4) {
        return dt_error(
            DT_BAD_DATA,
            "%s: holds %s (magic 0x%08x), but %s are expected here (are the files swapped?)", path,
            kind_name(n_dims), magic, wanted);
    }
    return dt_error(DT_BAD_DATA, "%s: %d dimensions, but %s have %s (%s)", path, n_dims, wanted,
                    n_dims_wanted == 1 ? "1" : "3 (N H W) or 4 (N C H W)",
                    n_dims_wanted == 1 ? mend : "save images.reshape(-1, HEIGHT, WIDTH)");
}
