/* Members of a zip archive, stored or deflated, as numpy.savez and savez_compressed write them:
 * APPNOTE.TXT of PKWARE, without ZIP64, encryption or several disks. Files are untrusted: the
 * central directory alone says where members are and how large, and is checked against the file
 * before anything is allocated; every member that is read to its end has its CRC checked. */
#ifndef DT_DATA_FORMATS_ZIP_H
#define DT_DATA_FORMATS_ZIP_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include <zlib.h>

#include "base/status.h"

#define DT_ZIP_PIECE ((size_t)1 << 15)

struct dt_zip_member {
    const char *path; /* of the archive, for messages; borrowed */
    char name[64];
    int fd; /* owned */
    struct stat info;
    bool deflated, inflating;
    uint32_t crc, crc_so_far;
    size_t at;                /* of its packed bytes that are not read yet */
    size_t n_packed, n_bytes; /* that are left, packed and expanded */
    z_stream z;
    uint8_t piece[DT_ZIP_PIECE];
};

/* Opens the member of this name, to be read once from its begin. DT_NO_INPUT, DT_NO_PERMISSION: the
 * file; DT_BAD_DATA: no zip archive, damaged, of a kind that is not read, or no such member. */
enum dt_status dt_zip_open(const char *path, const char *name, struct dt_zip_member *out);
void dt_zip_close(struct dt_zip_member *member);

/* Up to n_wanted bytes; fewer only where the member ends, whose CRC is then right. DT_BAD_DATA:
 * damaged, or changed meanwhile. */
enum dt_status dt_zip_read(struct dt_zip_member *member, uint8_t *bytes, size_t n_wanted,
                           size_t *n_got);

#endif
