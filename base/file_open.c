/* Files that are read, and what a file system lacks. */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file_open.h"

static enum dt_status open_error(const char *path)
{
    return dt_error_errno(errno == EACCES || errno == EPERM ? DT_NO_PERMISSION : DT_NO_INPUT, "%s",
                          path);
}

/* O_NONBLOCK: opening a pipe that nobody writes to would wait for ever. */
enum dt_status dt_file_open(const char *path, int *fd, struct stat *info)
{
    *fd = openat(AT_FDCWD, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (*fd < 0) {
        return open_error(path);
    }
    enum dt_status status = DT_OK;
    if (fstat(*fd, info) != 0) {
        status = dt_error_errno(DT_IO, "%s", path);
    } else if (S_ISDIR(info->st_mode)) {
        status = dt_error(DT_NO_INPUT, "%s: is a directory", path);
    } else if (!S_ISREG(info->st_mode)) {
        status = dt_error(DT_NO_INPUT, "%s: not a regular file", path);
    }
    if (status != DT_OK) {
        close(*fd);
    }
    return status;
}

enum dt_status dt_file_check_unchanged(int fd, const char *path, const struct stat *before)
{
    struct stat after;
    if (fstat(fd, &after) != 0) {
        return dt_error_errno(DT_IO, "%s", path);
    }
    return after.st_size == before->st_size && after.st_mtim.tv_sec == before->st_mtim.tv_sec &&
                   after.st_mtim.tv_nsec == before->st_mtim.tv_nsec
               ? DT_OK
               : dt_error(DT_BAD_DATA,
                          "%s: changed while it was read (wait until its writer is done)", path);
}

enum dt_status dt_file_exists(const char *path, bool *exists)
{
    struct stat info;
    *exists = lstat(path, &info) == 0;
    return *exists || errno == ENOENT || errno == ENOTDIR ? DT_OK : open_error(path);
}

/* ---- what a file system lacks */

static atomic_uint lacking; /* a bit each */

bool dt_file_lacks(enum dt_file_call call)
{
    static const int unsupported[] = {ENOSYS, EOPNOTSUPP, EINVAL, ENOLCK, EPERM, EACCES, EMLINK};
    for (size_t i = 0; i < sizeof unsupported / sizeof unsupported[0]; i++) {
        if (errno == unsupported[i]) {
            atomic_fetch_or(&lacking, 1u << call);
            return true;
        }
    }
    return false;
}

bool dt_file_lacking(char *text, size_t size)
{
#define LOSS(constant, loss) loss,
    static const char *const losses[] = {DT_FILE_CALL_LIST(LOSS)};
    const unsigned found = atomic_load(&lacking);
    text[0] = '\0';
    for (size_t i = 0; i < sizeof losses / sizeof losses[0]; i++) {
        if ((found & 1u << i) != 0 && losses[i] != NULL) {
            const size_t n = strlen(text);
            snprintf(text + n, size - n, "%s%s", n > 0 ? ", " : "", losses[i]);
        }
    }
    return text[0] != '\0';
}
