#include "base/file_open.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

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
