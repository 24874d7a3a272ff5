/* Implements reading of base/file.h. */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/file.h"

enum dt_status dt_file_read_piece(int fd, const char *path, uint8_t *bytes, size_t n_wanted,
                                  size_t *n_read)
{
    *n_read = 0;
    while (*n_read < n_wanted) {
        const ssize_t n = read(fd, bytes + *n_read, n_wanted - *n_read);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            return dt_error_errno(DT_IO, "%s", path);
        }
        if (n == 0) {
            break;
        }
        *n_read += (size_t)n;
    }
    return DT_OK;
}

enum dt_status dt_file_read(const char *path, size_t max_bytes, uint8_t **bytes, size_t *n_bytes)
{
    int fd = -1;
    struct stat info = {0};
    uint8_t *content = NULL;
    DT_TRY(dt_file_open(path, &fd, &info));
    enum dt_status status = DT_OK;
    if (info.st_size == 0) {
        status = dt_error(DT_BAD_DATA, "%s: empty file", path);
    } else if ((uint64_t)info.st_size > max_bytes) {
        status = dt_error(DT_BAD_DATA, "%s: too large: %lld bytes, at most %zu are read", path,
                          (long long)info.st_size, max_bytes);
    } else if ((content = malloc((size_t)info.st_size + 1)) == NULL) {
        status =
            dt_error(DT_NO_MEMORY, "%s: no memory for %lld bytes", path, (long long)info.st_size);
    } else {
        status = dt_file_read_piece(fd, path, content, (size_t)info.st_size + 1, n_bytes);
        status = status == DT_OK ? dt_file_check_unchanged(fd, path, &info) : status;
    }
    close(fd);
    if (status != DT_OK || content == NULL) {
        free(content);
        return status;
    }
    content[*n_bytes] = '\0';
    *bytes = content;
    return DT_OK;
}
