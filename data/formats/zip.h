/* Members of a zip archive, stored or deflated, as numpy.savez and savez_compressed write them, by
 * libzip. It is loaded when the first archive is opened: few runs need it, and it brings a library
 * of ciphers along. Files are untrusted: a member's size is checked against its packed bytes before
 * anything is allocated for it, and one that is read to its end has its size and its CRC checked.
 */
#ifndef DT_DATA_FORMATS_ZIP_H
#define DT_DATA_FORMATS_ZIP_H

#include <stdint.h>
#include <sys/stat.h>

#include "base/status.h"

struct dt_zip_member {
    const char *path, *name; /* of the archive and in it, for messages; borrowed */
    int fd;                  /* owned, as the next two */
    struct zip *archive;
    struct zip_file *file;
    struct stat info;
    size_t n_bytes; /* that are left, expanded */
};

/* Opens the member that has the last of n names that is there, to be read once from its begin.
 * DT_NO_INPUT, DT_NO_PERMISSION: the file, or there is no such member; DT_BAD_DATA: no zip archive,
 * damaged, or of a kind that is not read. DT_UNAVAILABLE: no libzip. */
#define DT_ZIP_NAME_SIZE 32
enum dt_status dt_zip_open(const char *path, const char (*names)[DT_ZIP_NAME_SIZE], int n,
                           struct dt_zip_member *out);
void dt_zip_close(struct dt_zip_member *member);

/* Up to n_wanted bytes; fewer only where the member ends, whose CRC is then right. DT_BAD_DATA:
 * damaged, or changed meanwhile. */
enum dt_status dt_zip_read(struct dt_zip_member *member, uint8_t *bytes, size_t n_wanted,
                           size_t *n_got);

#endif
