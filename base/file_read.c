/* Reads files, tells a file's kind by its first bytes, and tells when a process started. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
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
    DT_ASSERT(*n_read <= n_wanted);
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
    } else if ((content = malloc((size_t)info.st_size + 2)) == NULL) {
        status =
            dt_error(DT_NO_MEMORY, "%s: no memory for %lld bytes", path, (long long)info.st_size);
    } else {
        status = dt_file_read_piece(fd, path, content, (size_t)info.st_size + 1, n_bytes);
        info.st_size = (off_t)*n_bytes; /* it must have as many bytes as were read */
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

#define CONVERT " (scripts/convert-data makes NumPy's arrays of it)"
static const struct {
    const char *start, *kind;
} known[] = {
    {"\x89PNG", "a PNG image"},
    {"\xff\xd8\xff", "a JPEG image"},
    {"GIF8", "a GIF image"},
    {"RIFF", "a RIFF file, as WebP images are"},
    {"BM", "a BMP image"},
    {"II*", "a TIFF image"},
    {"PAR1", "a Parquet file" CONVERT},
    {"MATLAB 5.0", "a MATLAB file" CONVERT},
    {"\xff\xfe", "text in UTF-16"},
    {"\xfe\xff", "text in UTF-16"},
    {"PK\x03\x04", "a zip archive, as .pt files of PyTorch are" CONVERT},
    {"\x80\x02", "a Python pickle, as old .pth files of PyTorch are" CONVERT},
    {"\x80\x03", "a Python pickle"},
    {"\x80\x04", "a Python pickle"},
    {"\x80\x05", "a Python pickle"},
    {"\x89HDF", "an HDF5 file, as Keras writes them" CONVERT},
    {"\x1f\x8b", "gzip"},
    {"\xfd"
     "7zX",
     "xz"},
    {"BZh", "bzip2"},
    {"\x28\xb5\x2f\xfd", "zstd"},
    {"\x93NUMPY", "a NumPy file"},
    {"version http", "a Git LFS pointer: git lfs pull fetches the file"},
    {"<!doc", "HTML"},
    {"<html", "HTML"},
    {"<head", "HTML"},
    {"<?xml", "HTML"},
    {"{", "JSON"},
};

const char *dt_file_kind(const uint8_t *bytes, size_t n_bytes)
{
    size_t blank = 0;
    if (n_bytes >= 8 && memcmp(bytes + 4, "ftyp", 4) == 0) {
        return "a video, or an image as AVIF and HEIC are";
    }
    while (blank < n_bytes && strchr(" \t\r\n", bytes[blank]) != NULL && bytes[blank] != '\0') {
        blank++;
    }
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        const size_t length = strlen(known[i].start);
        if (n_bytes - blank >= length &&
            strncasecmp((const char *)bytes + blank, known[i].start, length) == 0) {
            return known[i].kind;
        }
    }
    return NULL;
}

/* ---- processes */

#define SKIPPED "%*s %*s %*s %*s %*s %*s "

/* Another user's process may not be shown in /proc, but kill tells that it is there. */
uint64_t dt_process_start(long pid)
{
    char path[32], text[1024], state;
    unsigned long long start;
    if (pid <= 0 || pid > INT_MAX || (kill((pid_t)pid, 0) != 0 && errno == ESRCH)) {
        return 0;
    }
    snprintf(path, sizeof path, "/proc/%ld/stat", pid);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    const ssize_t n = fd >= 0 ? read(fd, text, sizeof text - 1) : 0;
    if (fd >= 0) {
        close(fd);
    }
    text[n > 0 ? n : 0] = '\0';
    const char *rest = strrchr(text, ')'); /* behind the program's name */
    if (rest == NULL ||
        sscanf(rest, ") %c " SKIPPED SKIPPED SKIPPED "%20llu", &state, &start) != 2) {
        return DT_PROCESS_START_UNKNOWN;
    }
    return state == 'Z' || state == 'X' ? 0 : start;
}
