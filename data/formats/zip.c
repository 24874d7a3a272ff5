#include "data/formats/zip.h"

#include <dlfcn.h>
#include <string.h>
#include <unistd.h>
#include <zip.h>

#include "base/arithmetic.h"
#include "base/file.h"
#include "base/file_open.h"
#include "data/formats/folder.h"
#include "data/idx.h"

#define CALL_LIST(X)            \
    X(zip_discard)              \
    X(zip_error_init_with_code) \
    X(zip_error_strerror)       \
    X(zip_fclose)               \
    X(zip_fdopen)               \
    X(zip_file_get_error)       \
    X(zip_fopen_index)          \
    X(zip_fread)                \
    X(zip_get_error)            \
    X(zip_get_name)             \
    X(zip_get_num_entries)      \
    X(zip_name_locate)          \
    X(zip_stat_index)

#define FIELD(call) __typeof__(call) *call;
static struct {
    CALL_LIST(FIELD)
} lib;

static enum dt_status load_library(const char *path)
{
    void *library = dlopen("libzip.so.5", RTLD_NOW | RTLD_LOCAL);
    library = library != NULL ? library : dlopen("libzip.so.4", RTLD_NOW | RTLD_LOCAL);
#define FIND(call)                                                        \
    *(void **)&lib.call = library != NULL ? dlsym(library, #call) : NULL; \
    library = lib.call != NULL ? library : NULL;
    CALL_LIST(FIND)
    return library != NULL ? DT_OK
                           : dt_error(DT_UNAVAILABLE,
                                      "%s: libzip is not here, which reads it (install the package "
                                      "libzip4 or libzip5, or save the arrays as .npy files)",
                                      path);
}

static enum dt_status damaged(const struct dt_zip_member *m, const char *what)
{
    DT_TRY(dt_file_check_unchanged(m->fd, m->path, &m->info));
    return dt_error(DT_BAD_DATA, "%s: damaged zip archive: %s (write or copy it again)", m->path,
                    what);
}

static enum dt_status failed(const struct dt_zip_member *m, zip_error_t *e)
{
    return e->zip_err == ZIP_ER_MEMORY
               ? dt_error(DT_NO_MEMORY, "%s: no memory to read the archive", m->path)
           : e->zip_err == ZIP_ER_READ
               ? dt_error(DT_IO, "%s: %s", m->path, lib.zip_error_strerror(e))
               : damaged(m, e->zip_err == ZIP_ER_EXISTS ? "two members of one name"
                                                        : lib.zip_error_strerror(e));
}

static enum dt_status open_archive(struct dt_zip_member *m)
{
    uint8_t head[64];
    size_t n_head;
    zip_error_t error;
    int code = ZIP_ER_MEMORY;
    DT_TRY(dt_file_open(m->path, &m->fd, &m->info));
    DT_TRY(dt_file_read_piece(m->fd, m->path, head, sizeof head, &n_head));
    const int fd = dup(m->fd);
    m->archive = fd >= 0 ? lib.zip_fdopen(fd, ZIP_CHECKCONS, &code) : NULL;
    if (m->archive != NULL) {
        return DT_OK;
    }
    if (fd >= 0) {
        close(fd);
    }
    const char *kind =
        n_head >= 2 && memcmp(head, "PK", 2) == 0 ? NULL : dt_file_kind(head, n_head);
    if (code == ZIP_ER_NOZIP) {
        return dt_error(DT_BAD_DATA, "%s: no zip archive%s%s", m->path,
                        kind != NULL ? "; looks like " : "",
                        kind != NULL ? kind
                                     : ", or one that is cut off (write it with numpy.savez, or "
                                       "copy it again)");
    }
    lib.zip_error_init_with_code(&error, code);
    return failed(m, &error);
}

static enum dt_status refuse_members(const struct dt_zip_member *m)
{
    struct dt_names there = {0};
    char some[DT_SOME_NAMES_SIZE];
    enum dt_status s = DT_OK;
    for (zip_int64_t i = 0; s == DT_OK && i < lib.zip_get_num_entries(m->archive, 0); i++) {
        const char *name = lib.zip_get_name(m->archive, (zip_uint64_t)i, ZIP_FL_ENC_RAW);
        s = dt_names_add(m->path, name != NULL ? name : "?", &there);
    }
    dt_names_some(&there, some);
    dt_names_close(&there);
    return s != DT_OK ? s
                      : dt_error(DT_NO_INPUT,
                                 "%s: no array %.*s in it, nor of another name for that, but %s "
                                 "(numpy.savez(file, x_train=..., y_train=..., x_test=..., "
                                 "y_test=...) names all four)",
                                 m->path, (int)strlen(m->name) - 4, m->name, some);
}

static enum dt_status open_member(struct dt_zip_member *m, const char (*names)[DT_ZIP_NAME_SIZE],
                                  int n)
{
    zip_stat_t member = {.valid = 0};
    zip_int64_t i = -1;
    while (n > 0 && i < 0) {
        m->name = names[--n];
        i = lib.zip_name_locate(m->archive, m->name, ZIP_FL_ENC_RAW);
    }
    if (i < 0) {
        return refuse_members(m);
    }
    if (lib.zip_stat_index(m->archive, (zip_uint64_t)i, 0, &member) != 0) {
        return failed(m, lib.zip_get_error(m->archive));
    }
    if (member.encryption_method != ZIP_EM_NONE) {
        return dt_error(DT_BAD_DATA, "%s: %s is encrypted (save it without)", m->path, m->name);
    }
    if (member.comp_method != ZIP_CM_STORE && member.comp_method != ZIP_CM_DEFLATE) {
        return dt_error(DT_BAD_DATA,
                        "%s: %s is compressed by method %u (write it with numpy.savez or "
                        "savez_compressed)",
                        m->path, m->name, member.comp_method);
    }
    if (member.comp_size > (zip_uint64_t)m->info.st_size ||
        (member.comp_method == ZIP_CM_DEFLATE
             ? member.size > member.comp_size * DT_MAX_DEFLATE_RATIO
             : member.size != member.comp_size)) {
        return damaged(m, "a member's size is impossible");
    }
    m->n_bytes = member.size;
    m->file = lib.zip_fopen_index(m->archive, (zip_uint64_t)i, 0);
    return m->file != NULL ? DT_OK : failed(m, lib.zip_get_error(m->archive));
}

enum dt_status dt_zip_open(const char *path, const char (*names)[DT_ZIP_NAME_SIZE], int n,
                           struct dt_zip_member *out)
{
    *out = (struct dt_zip_member){.path = path, .fd = -1};
    enum dt_status s = lib.zip_stat_index != NULL ? DT_OK : load_library(path);
    s = s == DT_OK ? open_archive(out) : s;
    s = s == DT_OK ? open_member(out, names, n) : s;
    if (s != DT_OK) {
        dt_zip_close(out);
    }
    return s;
}

void dt_zip_close(struct dt_zip_member *member)
{
    if (member->file != NULL) {
        lib.zip_fclose(member->file);
    }
    if (member->archive != NULL) {
        lib.zip_discard(member->archive);
    }
    if (member->fd >= 0) {
        close(member->fd);
    }
}

/* libzip checks size and CRC when it finds the end. */
enum dt_status dt_zip_read(struct dt_zip_member *m, uint8_t *bytes, size_t n_wanted, size_t *n_got)
{
    uint8_t past;
    *n_got = dt_min_size(n_wanted, m->n_bytes);
    const zip_int64_t n = lib.zip_fread(m->file, bytes, *n_got);
    m->n_bytes -= *n_got;
    if (n == (zip_int64_t)*n_got && m->n_bytes > 0) {
        return DT_OK;
    }
    const zip_int64_t n_past = n < 0 ? n : lib.zip_fread(m->file, &past, 1);
    return n_past < 0 ? failed(m, lib.zip_file_get_error(m->file))
           : n_past > 0 || n != (zip_int64_t)*n_got
               ? damaged(m, "a member's size is wrong")
               : dt_file_check_unchanged(m->fd, m->path, &m->info);
}
