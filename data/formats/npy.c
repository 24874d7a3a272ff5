#include "data/formats/npy.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"

enum dt_status dt_npy_prefix(const char *name, const uint8_t bytes[DT_NPY_PREFIX_BYTES],
                             size_t *n_prefix, size_t *n_header)
{
    const int major = bytes[6];
    if (memcmp(bytes, "\x93NUMPY", 6) != 0) {
        const char *kind = dt_file_kind(bytes, DT_NPY_PREFIX_BYTES);
        return dt_error(DT_BAD_DATA, "%s: no NumPy array%s%s%s", name,
                        kind != NULL ? "; looks like " : "", kind != NULL ? kind : "",
                        kind == NULL ? " (write it with numpy.save)" : "");
    }
    if (major < 1 || major > 3) {
        return dt_error(DT_BAD_DATA,
                        "%s: version %d of NumPy's format, 1 to 3 are known (write it with "
                        "numpy.save)",
                        name, major);
    }
    *n_prefix = major == 1 ? 10 : 12;
    *n_header = bytes[8] | (size_t)bytes[9] << 8;
    *n_header |= major == 1 ? 0 : (size_t)bytes[10] << 16 | (size_t)bytes[11] << 24;
    return *n_header <= DT_NPY_MAX_HEADER
               ? DT_OK
               : dt_error(DT_BAD_DATA, "%s: a header of %zu bytes, at most %d are read", name,
                          *n_header, DT_NPY_MAX_HEADER);
}

/* ---- the dictionary, a literal of Python: {'descr': '|u1', 'fortran_order': False, 'shape': (6,
 * 4, 3), } */

static enum dt_status malformed(const char *name, const char *what)
{
    return dt_error(DT_BAD_DATA,
                    "%s: malformed header of a NumPy array: %s (write it with numpy.save)", name,
                    what);
}

/* Behind the colon of a key, which is there once; NULL: it is not. */
static const char *find(const char *text, const char *key)
{
    const char *at = strstr(text, key);
    if (at == NULL || strstr(at + 1, key) != NULL) {
        return NULL;
    }
    at += strlen(key);
    at += strspn(at, "'\"");
    at += strspn(at, " ");
    return *at == ':' ? at + 1 + strspn(at + 1, " ") : NULL;
}

static enum dt_status take_dims(const char *name, const char *at, struct dt_npy *out)
{
    out->n_elems = 1;
    for (out->n_dims = 0; *at != ')'; out->n_dims++) {
        char *end;
        at += 1 + strspn(at + 1, " "); /* behind ( or , */
        if (*at == ')') {
            return DT_OK;
        }
        if (out->n_dims == DT_NPY_MAX_DIMS) {
            return dt_error(DT_BAD_DATA, "%s: more than %d dimensions", name, DT_NPY_MAX_DIMS);
        }
        errno = 0;
        out->dims[out->n_dims] = strtoull(at, &end, 10);
        if (*at < '0' || *at > '9' || errno != 0 ||
            __builtin_mul_overflow(out->n_elems, out->dims[out->n_dims], &out->n_elems)) {
            return malformed(name, "a dimension is no number, or too large");
        }
        at = end + (*end == 'L'); /* of Python 2 */
        if (*at != ',' && *at != ')') {
            return malformed(name, "its shape does not end");
        }
    }
    return DT_OK;
}

/* '<i8': its byte order, its kind and its bytes. */
static enum dt_status take_type(const char *name, const char *at, struct dt_npy *out)
{
    char type[16] = "";
    if (*at == '[') {
        return dt_error(DT_BAD_DATA, "%s: an array of structures (save one of plain numbers)",
                        name);
    }
    if (sscanf(at, "%*1['\"]%15[^'\"]", type) != 1) {
        return malformed(name, "no type");
    }
    const char *kind = type + (strchr("<>|=", type[0]) != NULL);
    const unsigned long n_bytes = kind[0] != '\0' ? strtoul(kind + 1, NULL, 10) : 0;
    if (n_bytes > 8 && strchr("OSU", kind[0]) == NULL) {
        return dt_error(DT_BAD_DATA, "%s: elements of type %s are too wide (save plain numbers)",
                        name, type);
    }
    out->kind = kind[0];
    out->n_bytes = (int)(n_bytes % 100000);
    out->big_endian = type[0] == '>';
    return DT_OK;
}

enum dt_status dt_npy_parse(const char *name, const char *text, size_t n_text, struct dt_npy *out)
{
    char copy[DT_NPY_MAX_HEADER + 1];
    memcpy(copy, text, n_text);
    copy[n_text] = '\0';
    const char *type = find(copy, "descr"), *order = find(copy, "fortran_order"),
               *shape = find(copy, "shape"), *last = strrchr(copy, '}');
    *out = (struct dt_npy){0};
    if (type == NULL || order == NULL || shape == NULL || *shape != '(' || last == NULL ||
        copy[0] != '{' || strspn(last + 1, " \n") != n_text - (size_t)(last + 1 - copy)) {
        return malformed(name, "expected descr, fortran_order and shape, each once");
    }
    DT_TRY(take_type(name, type, out));
    DT_TRY(take_dims(name, shape, out));
    return strncmp(order, "False", 5) == 0 || out->n_dims < 2
               ? DT_OK
               : dt_error(DT_BAD_DATA,
                          "%s: in Fortran order (save numpy.ascontiguousarray of the array)", name);
}

bool dt_npy_is_number(const struct dt_npy *npy)
{
    const int n = npy->n_bytes;
    return npy->kind == 'f' ? n == 4 || n == 8
                            : strchr("iub", npy->kind) != NULL && n >= 1 && n <= 8;
}

double dt_npy_number(const struct dt_npy *npy, const uint8_t *bytes, size_t i)
{
    DT_ASSERT(dt_npy_is_number(npy) && i < npy->n_elems);
    const unsigned n = (unsigned)npy->n_bytes, n_left = 64 - 8 * n;
    uint64_t bits = 0;
    bytes += i * n;
    for (unsigned b = 0; b < n; b++) {
        bits = bits << 8 | bytes[npy->big_endian ? b : n - 1 - b];
    }
    const union {
        uint32_t bits;
        float value;
    } single = {(uint32_t)bits};
    const union {
        uint64_t bits;
        double value;
    } twice = {bits};
    return npy->kind == 'f'   ? n == 4 ? (double)single.value : twice.value
           : npy->kind == 'i' ? (double)((int64_t)(bits << n_left) >> n_left) /* with its sign */
                              : (double)bits;
}

const char *dt_npy_dims(const struct dt_npy *npy, char text[DT_NPY_DIMS_SIZE])
{
    size_t used = (size_t)snprintf(text, DT_NPY_DIMS_SIZE, "(");
    for (int i = 0; i < npy->n_dims; i++) {
        used += (size_t)snprintf(text + used, DT_NPY_DIMS_SIZE - used, "%s%zu", i > 0 ? ", " : "",
                                 npy->dims[i]);
    }
    snprintf(text + used, DT_NPY_DIMS_SIZE - used, npy->n_dims == 1 ? ",)" : ")");
    return text;
}
