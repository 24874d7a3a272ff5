/* The header of a NumPy array file: "NEP 1, a simple file format for NumPy arrays", versions 1.0 to
 * 3.0. Files are untrusted: every number is checked before it is used. */
#ifndef DT_DATA_FORMATS_NPY_H
#define DT_DATA_FORMATS_NPY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

#define DT_NPY_MAX_DIMS 4
#define DT_NPY_PREFIX_BYTES 12 /* magic, version, and how long the header is, of any version */
#define DT_NPY_MAX_HEADER 4096 /* bytes of the dictionary */

struct dt_npy {
    char kind;   /* 'u' and 'i': integers without and with a sign; others are as NumPy names them */
    int n_bytes; /* of an element */
    bool big_endian;
    int n_dims;
    size_t dims[DT_NPY_MAX_DIMS];
    size_t n_elems;
};

/* How many bytes lie before the header's dictionary, and how many it has. `bytes`: the file's first
 * DT_NPY_PREFIX_BYTES. DT_BAD_DATA: no array file, or another version. `name` is for messages. */
enum dt_status dt_npy_prefix(const char *name, const uint8_t bytes[DT_NPY_PREFIX_BYTES],
                             size_t *n_prefix, size_t *n_header);

/* The dictionary. DT_BAD_DATA: malformed, a structured type, Fortran order, more than
 * DT_NPY_MAX_DIMS dimensions, or more elements than a size_t counts. */
enum dt_status dt_npy_parse(const char *name, const char *text, size_t n_text, struct dt_npy *out);

/* Whether elements are numbers that are read: integers, booleans, and floats of 4 or 8 bytes. */
bool dt_npy_is_number(const struct dt_npy *npy);
/* Element i of an array of such. */
double dt_npy_number(const struct dt_npy *npy, const uint8_t *bytes, size_t i);

/* "(60000, 28, 28)" */
#define DT_NPY_DIMS_SIZE 96
const char *dt_npy_dims(const struct dt_npy *npy, char text[DT_NPY_DIMS_SIZE]);

#endif
