#include "data/formats/zip.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/arithmetic.h"
#include "base/file.h"
#include "base/file_open.h"
#include "data/idx.h"

#define END_BYTES ((size_t)22) /* the end record, without its comment */
#define MAX_COMMENT ((size_t)65535)
#define ENTRY_BYTES ((size_t)46)
#define LOCAL_BYTES ((size_t)30)
#define LOCATOR_BYTES ((size_t)20)
#define MAX_DIRECTORY ((size_t)1 << 20)

static uint32_t u16(const uint8_t *b)
{
    return b[0] | (uint32_t)b[1] << 8;
}

static uint32_t u32(const uint8_t *b)
{
    return u16(b) | u16(b + 2) << 16;
}

static bool is_signed(const uint8_t *b, char c, char d)
{
    return b[0] == 'P' && b[1] == 'K' && b[2] == (uint8_t)c && b[3] == (uint8_t)d;
}

static enum dt_status damaged(const char *path, const char *what)
{
    return dt_error(DT_BAD_DATA, "%s: damaged zip archive: %s (write or copy it again)", path,
                    what);
}

static enum dt_status is_zip64(const char *path)
{
    return dt_error(DT_BAD_DATA,
                    "%s: a ZIP64 archive, which is not read (save the arrays as .npy files)", path);
}

/* All n bytes at a place of the file. */
static enum dt_status read_at(int fd, const char *path, size_t at, void *bytes, size_t n)
{
    for (size_t done = 0; done < n;) {
        const ssize_t got = pread(fd, (uint8_t *)bytes + done, n - done, (off_t)(at + done));
        if (got < 0 && errno != EINTR) {
            return dt_error_errno(DT_IO, "%s", path);
        }
        if (got == 0) {
            return dt_error(DT_BAD_DATA, "%s: changed while it was read", path);
        }
        done += got > 0 ? (size_t)got : 0;
    }
    DT_ASSERT(n <= SIZE_MAX / 2);
    return DT_OK;
}

/* ---- the directory */

struct directory {
    size_t at, n_bytes, n_entries; /* `at` in the file */
};

/* The end record is the last thing of the file but for its comment. `tail`: the end of the file. */
static enum dt_status parse_end(const char *path, const uint8_t *tail, size_t n_tail, size_t n_file,
                                struct directory *out)
{
    DT_ASSERT(n_tail >= END_BYTES && n_tail <= n_file);
    size_t i = n_tail - END_BYTES + 1;
    do {
        i--;
    } while (i > 0 && !(is_signed(tail + i, 5, 6) && i + END_BYTES + u16(tail + i + 20) == n_tail));
    const uint8_t *end = tail + i;
    if (!is_signed(end, 5, 6) || i + END_BYTES + u16(end + 20) != n_tail) {
        const char *kind = n_tail == n_file ? dt_file_kind(tail, n_tail) : NULL;
        const bool other = kind != NULL && !is_signed(tail, 3, 4);
        return dt_error(DT_BAD_DATA, "%s: no zip archive%s%s", path, other ? "; looks like " : "",
                        other ? kind
                              : ", or one that is cut off (write it with numpy.savez, or copy it "
                                "again)");
    }
    const bool has_locator = i >= LOCATOR_BYTES && is_signed(end - LOCATOR_BYTES, 6, 7);
    *out = (struct directory){
        .n_entries = u16(end + 10), .n_bytes = u32(end + 12), .at = u32(end + 16)};
    if (has_locator || out->n_entries == UINT16_MAX || out->n_bytes == UINT32_MAX ||
        out->at == UINT32_MAX) {
        return is_zip64(path);
    }
    const size_t n_before = n_file - n_tail + i;
    if (u16(end + 4) != 0 || u16(end + 6) != 0 || u16(end + 8) != out->n_entries) {
        return damaged(path, "it continues in other files");
    }
    return out->n_bytes <= MAX_DIRECTORY && out->at + out->n_bytes == n_before
               ? DT_OK
               : damaged(path, "its directory is not where it says");
}

static enum dt_status find_directory(int fd, const char *path, size_t n_file, struct directory *out)
{
    const size_t n_tail = dt_min_size(n_file, END_BYTES + MAX_COMMENT);
    if (n_file < END_BYTES) {
        return damaged(path, "too short");
    }
    uint8_t *tail = malloc(n_tail);
    if (tail == NULL) {
        return dt_error(DT_NO_MEMORY, "%s: no memory for its directory", path);
    }
    enum dt_status s = read_at(fd, path, n_file - n_tail, tail, n_tail);
    s = s == DT_OK ? parse_end(path, tail, n_tail, n_file, out) : s;
    free(tail);
    return s;
}

/* ---- a member */

/* What the directory says of it, which has to lie before the directory. */
static enum dt_status take_entry(const uint8_t *entry, const struct directory *dir,
                                 struct dt_zip_member *out)
{
    const uint32_t flags = u16(entry + 8), method = u16(entry + 10);
    out->crc = u32(entry + 16);
    out->n_packed = u32(entry + 20);
    out->n_bytes = u32(entry + 24);
    out->at = u32(entry + 42);
    out->deflated = method == 8;
    if (out->n_packed == UINT32_MAX || out->n_bytes == UINT32_MAX || out->at == UINT32_MAX) {
        return is_zip64(out->path);
    }
    if ((flags & 1) != 0) {
        return dt_error(DT_BAD_DATA, "%s: %s is encrypted (save it without)", out->path, out->name);
    }
    if (method != 0 && method != 8) {
        return dt_error(DT_BAD_DATA,
                        "%s: %s is compressed by method %u (write it with numpy.savez or "
                        "savez_compressed)",
                        out->path, out->name, method);
    }
    return out->at + LOCAL_BYTES + out->n_packed <= dir->at &&
                   (out->deflated ? out->n_bytes <= out->n_packed * DT_MAX_DEFLATE_RATIO
                                  : out->n_bytes == out->n_packed)
               ? DT_OK
               : damaged(out->path, "a member's size is impossible");
}

/* Goes through all entries: a second one of the name makes it unclear which is meant. */
static enum dt_status find_entry(const uint8_t *bytes, const struct directory *dir,
                                 struct dt_zip_member *out)
{
    const size_t n_name = strlen(out->name);
    size_t at = 0, n_found = 0;
    for (size_t i = 0; i < dir->n_entries; i++) {
        const uint8_t *entry = bytes + at;
        if (dir->n_bytes - at < ENTRY_BYTES || !is_signed(entry, 1, 2)) {
            return damaged(out->path, "its directory is cut off");
        }
        const size_t n = u16(entry + 28),
                     n_entry = ENTRY_BYTES + n + u16(entry + 30) + u16(entry + 32);
        if (n_entry > dir->n_bytes - at) {
            return damaged(out->path, "its directory is cut off");
        }
        if (n == n_name && memcmp(entry + ENTRY_BYTES, out->name, n) == 0) {
            DT_TRY(take_entry(entry, dir, out));
            n_found++;
        }
        at += n_entry;
        DT_ASSERT(at <= dir->n_bytes);
    }
    return n_found == 1 ? DT_OK
           : n_found > 1
               ? damaged(out->path, "two members of one name")
               : dt_error(DT_BAD_DATA,
                          "%s: no array %.*s in it (write it with numpy.savez(file, images=..., "
                          "labels=...))",
                          out->path, (int)n_name - 4, out->name);
}

/* The local header repeats the name; sizes there may be those of ZIP64, which NumPy writes in any
 * case. Its packed bytes are behind. */
static enum dt_status pass_local(const struct directory *dir, struct dt_zip_member *out)
{
    uint8_t head[LOCAL_BYTES], name[sizeof out->name];
    const size_t n_name = strlen(out->name);
    DT_TRY(read_at(out->fd, out->path, out->at, head, sizeof head));
    if (!is_signed(head, 3, 4) || u16(head + 26) != n_name ||
        (u16(head + 8) == 8) != out->deflated) {
        return damaged(out->path, "a member is not where its directory says");
    }
    DT_TRY(read_at(out->fd, out->path, out->at + LOCAL_BYTES, name, n_name));
    out->at += LOCAL_BYTES + n_name + u16(head + 28);
    return memcmp(name, out->name, n_name) == 0 && out->at + out->n_packed <= dir->at
               ? DT_OK
               : damaged(out->path, "a member is not where its directory says");
}

static enum dt_status find_member(struct dt_zip_member *out)
{
    struct directory dir = {0};
    DT_TRY(find_directory(out->fd, out->path, (size_t)out->info.st_size, &dir));
    uint8_t *bytes = malloc(dir.n_bytes + 1);
    if (bytes == NULL) {
        return dt_error(DT_NO_MEMORY, "%s: no memory for its directory", out->path);
    }
    enum dt_status s = read_at(out->fd, out->path, dir.at, bytes, dir.n_bytes);
    s = s == DT_OK ? find_entry(bytes, &dir, out) : s;
    free(bytes);
    DT_TRY(s);
    return pass_local(&dir, out);
}

enum dt_status dt_zip_open(const char *path, const char *name, struct dt_zip_member *out)
{
    DT_ASSERT(strlen(name) < sizeof out->name);
    memset(out, 0, sizeof *out);
    out->path = path;
    memcpy(out->name, name, strlen(name) + 1);
    DT_TRY(dt_file_open(path, &out->fd, &out->info));
    enum dt_status s = find_member(out);
    if (s == DT_OK && out->deflated) {
        out->inflating = inflateInit2(&out->z, -MAX_WBITS) == Z_OK;
        s = out->inflating ? DT_OK : dt_error(DT_NO_MEMORY, "%s: no memory for zlib", path);
    }
    if (s != DT_OK) {
        dt_zip_close(out);
    }
    return s;
}

void dt_zip_close(struct dt_zip_member *member)
{
    if (member->inflating) {
        inflateEnd(&member->z);
    }
    close(member->fd);
}

/* ---- its bytes */

static enum dt_status next_piece(struct dt_zip_member *m, uint8_t *to, size_t most, size_t *n)
{
    *n = dt_min_size(most, m->n_packed);
    DT_TRY(read_at(m->fd, m->path, m->at, to, *n));
    m->at += *n;
    m->n_packed -= *n;
    DT_ASSERT(m->at + m->n_packed <= (size_t)m->info.st_size);
    return DT_OK;
}

/* Exactly n bytes, which are left by what the directory says. */
static enum dt_status inflate_bytes(struct dt_zip_member *m, uint8_t *bytes, size_t n)
{
    DT_ASSERT(n <= m->n_bytes);
    m->z.next_out = bytes;
    m->z.avail_out = (uInt)n;
    while (m->z.avail_out > 0) {
        size_t n_piece;
        if (m->z.avail_in == 0) {
            DT_TRY(next_piece(m, m->piece, sizeof m->piece, &n_piece));
            m->z.next_in = m->piece;
            m->z.avail_in = (uInt)n_piece;
        }
        const int code = inflate(&m->z, Z_NO_FLUSH);
        if (code == Z_MEM_ERROR) {
            return dt_error(DT_NO_MEMORY, "%s: no memory for zlib", m->path);
        }
        if (m->z.avail_out > 0 && code != Z_OK) {
            return damaged(m->path, code == Z_STREAM_END ? "a member is shorter than it says"
                                                         : "a member does not expand");
        }
    }
    return DT_OK;
}

/* Behind the last byte. */
static enum dt_status check_end(const struct dt_zip_member *m)
{
    DT_ASSERT(m->n_bytes == 0);
    DT_TRY(dt_file_check_unchanged(m->fd, m->path, &m->info));
    return m->crc == m->crc_so_far ? DT_OK : damaged(m->path, "a member's CRC is wrong");
}

enum dt_status dt_zip_read(struct dt_zip_member *m, uint8_t *bytes, size_t n_wanted, size_t *n_got)
{
    *n_got = dt_min_size(n_wanted, m->n_bytes);
    if (m->deflated) {
        DT_TRY(inflate_bytes(m, bytes, *n_got));
    } else {
        size_t n;
        DT_TRY(next_piece(m, bytes, *n_got, &n));
    }
    m->n_bytes -= *n_got;
    m->crc_so_far = (uint32_t)crc32(m->crc_so_far, bytes, (uInt)*n_got);
    return m->n_bytes == 0 ? check_end(m) : DT_OK;
}
