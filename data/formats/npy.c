#include "data/formats/npy.h"

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

struct text {
    const char *name, *begin, *at, *end;
};

static enum dt_status malformed(const struct text *t, const char *expected)
{
    return dt_error(DT_BAD_DATA,
                    "%s: malformed header of a NumPy array at its byte %zu: expected %s (write it "
                    "with numpy.save)",
                    t->name, (size_t)(t->at - t->begin), expected);
}

static void skip_blanks(struct text *t)
{
    while (t->at < t->end && (*t->at == ' ' || *t->at == '\n' || *t->at == '\t')) {
        t->at++;
    }
}

/* Whether the next is this character, which is then passed. */
static bool take(struct text *t, char c)
{
    skip_blanks(t);
    const bool is_there = t->at < t->end && *t->at == c;
    t->at += is_there;
    DT_ASSERT(t->at >= t->begin && t->at <= t->end);
    return is_there;
}

static bool take_word(struct text *t, const char *word)
{
    const size_t n = strlen(word);
    skip_blanks(t);
    const bool is_there = (size_t)(t->end - t->at) >= n && memcmp(t->at, word, n) == 0;
    t->at += is_there ? n : 0;
    return is_there;
}

/* A string in quotes of either kind, without escapes. */
static enum dt_status take_string(struct text *t, char *out, size_t size)
{
    DT_ASSERT(size > 1);
    const char quote = take(t, '\'') ? '\'' : take(t, '"') ? '"' : '\0';
    size_t n = 0;
    while (quote != '\0' && t->at < t->end && *t->at != quote && n + 1 < size) {
        out[n++] = *t->at++;
    }
    out[n] = '\0';
    return quote != '\0' && take(t, quote) ? DT_OK : malformed(t, "a short string");
}

static enum dt_status take_size(struct text *t, size_t *out)
{
    const char *first = t->at;
    bool fits = true;
    *out = 0;
    for (; t->at < t->end && *t->at >= '0' && *t->at <= '9'; t->at++) {
        fits = fits && !__builtin_mul_overflow(*out, 10, out) &&
               !__builtin_add_overflow(*out, (size_t)(*t->at - '0'), out);
    }
    return t->at == first ? malformed(t, "a number")
           : fits         ? DT_OK
                          : malformed(t, "a smaller number");
}

static enum dt_status take_dims(struct text *t, struct dt_npy *out)
{
    if (!take(t, '(')) {
        return malformed(t, "(");
    }
    out->n_elems = 1;
    for (out->n_dims = 0; !take(t, ')'); out->n_dims++) {
        if (out->n_dims == DT_NPY_MAX_DIMS) {
            return dt_error(DT_BAD_DATA, "%s: more than %d dimensions", t->name, DT_NPY_MAX_DIMS);
        }
        size_t *dim = &out->dims[out->n_dims];
        DT_ASSERT(out->n_dims < DT_NPY_MAX_DIMS);
        DT_TRY(take_size(t, dim));
        if (__builtin_mul_overflow(out->n_elems, *dim, &out->n_elems)) {
            return malformed(t, "smaller dimensions");
        }
        if (!take(t, ',')) {
            out->n_dims++;
            return take(t, ')') ? DT_OK : malformed(t, ")");
        }
    }
    return DT_OK;
}

/* "<i8": its byte order, its kind and its bytes. */
static enum dt_status take_type(struct text *t, struct dt_npy *out)
{
    char type[16];
    if (take(t, '[')) {
        return dt_error(DT_BAD_DATA, "%s: an array of structures (save one of plain numbers)",
                        t->name);
    }
    DT_TRY(take_string(t, type, sizeof type));
    const bool has_order = type[0] != '\0' && strchr("<>|=", type[0]) != NULL;
    const char *kind = type + has_order;
    if (kind[0] != '\0' && strchr("OSU", kind[0]) != NULL) { /* texts: the caller refuses them */
        out->kind = kind[0];
        out->n_bytes = (int)(strtoul(kind + 1, NULL, 10) % 100000);
        return DT_OK;
    }
    if (kind[0] == '\0' || kind[1] < '0' || kind[1] > '9' || kind[2] != '\0') {
        const bool wide = kind[0] != '\0' && kind[1] >= '0' && kind[1] <= '9';
        return dt_error(DT_BAD_DATA, "%s: elements of type %s%s", t->name, type,
                        wide ? " are too wide (save plain numbers)" : " (save plain numbers)");
    }
    out->kind = kind[0];
    out->n_bytes = kind[1] - '0';
    out->big_endian = type[0] == '>';
    return DT_OK;
}

static enum dt_status take_order(struct text *t)
{
    if (take_word(t, "True")) {
        return dt_error(DT_BAD_DATA,
                        "%s: in Fortran order (save numpy.ascontiguousarray of the array)",
                        t->name);
    }
    return take_word(t, "False") ? DT_OK : malformed(t, "True or False");
}

/* One entry; `seen` has a bit for each of the three. */
static enum dt_status take_entry(struct text *t, unsigned *seen, struct dt_npy *out)
{
    DT_ASSERT(*seen <= 7);
    static const char *const keys[] = {"descr", "fortran_order", "shape"};
    char key[24];
    unsigned i = 0;
    DT_TRY(take_string(t, key, sizeof key));
    while (i < 3 && strcmp(key, keys[i]) != 0) {
        i++;
    }
    if (i == 3 || (*seen & 1u << i) != 0) {
        return malformed(t, "descr, fortran_order and shape, each once");
    }
    *seen |= 1u << i;
    if (!take(t, ':')) {
        return malformed(t, ":");
    }
    return i == 0 ? take_type(t, out) : i == 1 ? take_order(t) : take_dims(t, out);
}

enum dt_status dt_npy_parse(const char *name, const char *text, size_t n_text, struct dt_npy *out)
{
    struct text t = {.name = name, .begin = text, .at = text, .end = text + n_text};
    unsigned seen = 0;
    *out = (struct dt_npy){0};
    if (!take(&t, '{')) {
        return malformed(&t, "{");
    }
    bool more = true;
    while (more && !take(&t, '}')) {
        DT_TRY(take_entry(&t, &seen, out));
        more = take(&t, ',');
        if (!more && !take(&t, '}')) {
            return malformed(&t, "}");
        }
    }
    skip_blanks(&t);
    return seen == 7 && t.at == t.end ? DT_OK : malformed(&t, "descr, fortran_order and shape");
}

int64_t dt_npy_integer(const struct dt_npy *npy, const uint8_t *bytes, size_t i)
{
    DT_ASSERT(npy->n_bytes >= 1 && npy->n_bytes <= 8 && i < npy->n_elems);
    const unsigned n = (unsigned)npy->n_bytes;
    uint64_t value = 0;
    bytes += i * n;
    for (unsigned b = 0; b < n; b++) {
        value = value << 8 | bytes[npy->big_endian ? b : n - 1 - b];
    }
    const unsigned n_left = 64 - 8 * n;
    if (npy->kind == 'i') { /* the sign goes up to the top */
        return (int64_t)(value << n_left) >> n_left;
    }
    return value <= INT64_MAX ? (int64_t)value : INT64_MIN;
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
