/* Files that are written: whole or not at all, and what a user names as the place of a result. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/text.h"

#define PATH_SIZE 4096
#define TEMPORARY_SIZE (DT_FILE_NAME_SHOWN + 32)
#define MAX_LINKS 40   /* as the kernel */
#define WAIT_LIMIT_S 2 /* for a reader, or for the end of one */
#define WAIT_POLL_MS 10

static enum dt_status write_all(int fd, const struct dt_file_part *part)
{
    for (size_t n_done = 0; n_done < part->n_bytes;) {
        const ssize_t n = write(fd, (const char *)part->bytes + n_done, part->n_bytes - n_done);
        if (n > 0) {
            n_done += (size_t)n;
        } else if (n < 0 && errno == EAGAIN) { /* a full pipe */
            poll(&(struct pollfd){.fd = fd, .events = POLLOUT}, 1, -1);
        } else if (n == 0 || errno != EINTR) {
            errno = n == 0 ? ENOSPC : errno;
            return DT_IO;
        }
    }
    return DT_OK;
}

static enum dt_status write_parts(int fd, const struct dt_file_part *parts, size_t n_parts)
{
    DT_ASSERT(parts != NULL || n_parts == 0);
    for (size_t i = 0; i < n_parts; i++) {
        DT_TRY(write_all(fd, &parts[i]));
    }
    return DT_OK;
}

/* ---- whole or not at all ---- */

/* A full disk shows here, before a byte is written. A file system that cannot reserve says so, and
 * then writing has to show it. */
static enum dt_status reserve(int fd, const struct dt_file_part *parts, size_t n_parts)
{
    size_t n_bytes = 0;
    for (size_t i = 0; i < n_parts; i++) {
        n_bytes += parts[i].n_bytes;
    }
    if (n_bytes == 0) {
        return DT_OK;
    }
    int result;
    do {
        result = fallocate(fd, 0, 0, (off_t)n_bytes);
    } while (result != 0 && errno == EINTR);
    return result == 0 || dt_file_lacks(DT_CALL_RESERVE) ? DT_OK : DT_IO;
}

static mode_t usual_mode(void)
{
    const mode_t mask = umask(0);
    umask(mask);
    return 0666 & ~mask;
}

/* The mode of the file that is replaced, and its owner as far as we may give files away: what only
 * some may read stays so. */
static enum dt_status take_over_mode(int fd, int folder, const char *name)
{
    struct stat old;
    const bool replaces =
        fstatat(folder, name, &old, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(old.st_mode);
    int kept = replaces ? fchown(fd, old.st_uid, old.st_gid) : 0;
    kept = kept != 0 ? fchown(fd, (uid_t)-1, old.st_gid) : 0;
    (void)kept; /* if not, the file is ours */
    const mode_t mode = replaces ? old.st_mode & 0777 : usual_mode();
    return fchmod(fd, mode) == 0 || dt_file_lacks(DT_CALL_MODE) ? DT_OK : DT_IO;
}

/* A failed fsync is final: the kernel may have dropped the pages. */
static enum dt_status sync_to_disk(int fd)
{
    return fsync(fd) == 0 || dt_file_lacks(DT_CALL_SYNC) ? DT_OK : DT_IO;
}

/* Fills the open temporary file and makes it durable. */
static enum dt_status fill(int fd, int folder, const char *name, const struct dt_file_part *parts,
                           size_t n_parts)
{
    DT_TRY(reserve(fd, parts, n_parts));
    DT_TRY(write_parts(fd, parts, n_parts));
    DT_TRY(take_over_mode(fd, folder, name));
    return sync_to_disk(fd);
}

/* ".tmp-NAME-4711", or as much of NAME as fits, cut between characters of UTF-8. */
static void name_temporary(const char *name, char temporary[TEMPORARY_SIZE])
{
    size_t n = strnlen(name, DT_FILE_NAME_SHOWN);
    while (n > 0 && (name[n] & 0xC0) == 0x80) {
        n--;
    }
    snprintf(temporary, TEMPORARY_SIZE, DT_FILE_TEMPORARY "%.*s-%ld", (int)n, name, (long)getpid());
}

/* The temporary file under way, for a signal handler to remove; folder -1: none. */
static struct {
    volatile int folder;
    char name[TEMPORARY_SIZE];
} under_way = {.folder = -1};

void dt_file_abandon(void)
{
    if (under_way.folder >= 0) {
        unlinkat(under_way.folder, under_way.name, 0);
    }
}

/* A process that was killed may have left a file of this name, if it had our number. */
static int create_temporary(int folder, const char *name)
{
    snprintf(under_way.name, sizeof under_way.name, "%s", name);
    under_way.folder = folder;
    const int flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
    const int fd = openat(folder, name, flags, 0600);
    if (fd >= 0 || errno != EEXIST || unlinkat(folder, name, 0) != 0) {
        return fd;
    }
    return openat(folder, name, flags, 0600);
}

/* Where a file that somebody has open cannot be replaced (file servers of Windows), its reader is
 * given time to close it. */
static int rename_in(int folder, const char *from, const char *to)
{
    const double begin_s = dt_clock_s();
    int result;
    while ((result = renameat(folder, from, folder, to)) != 0 &&
           (errno == EBUSY || errno == ETXTBSY || errno == EACCES) &&
           dt_clock_s() - begin_s < WAIT_LIMIT_S) {
        const int error = errno;
        dt_sleep_ms(WAIT_POLL_MS);
        errno = error;
    }
    return result;
}

/* Everything inside the open folder; on failure errno tells why. */
static enum dt_status write_in_folder(int folder, const char *name,
                                      const struct dt_file_part *parts, size_t n_parts)
{
    DT_ASSERT(name[0] != '\0' && strchr(name, '/') == NULL);
    char temporary[TEMPORARY_SIZE];
    name_temporary(name, temporary);
    const int fd = create_temporary(folder, temporary);
    if (fd < 0) {
        under_way.folder = -1;
        return DT_IO;
    }
    enum dt_status status = fill(fd, folder, name, parts, n_parts);
    int error = errno;
    if (close(fd) != 0 && status == DT_OK) {
        status = DT_IO;
        error = errno;
    }
    if (status == DT_OK && rename_in(folder, temporary, name) != 0) {
        status = DT_IO;
        error = errno;
    }
    if (status != DT_OK) {
        unlinkat(folder, temporary, 0);
    }
    under_way.folder = -1;
    if (status != DT_OK) {
        errno = error;
        return status;
    }
    return sync_to_disk(folder);
}

static int open_folder(const char *dir)
{
    return openat(AT_FDCWD, dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static enum dt_status write_and_close(int folder, const char *dir, const char *name,
                                      const struct dt_file_part *parts, size_t n_parts)
{
    if (folder < 0) {
        return dt_error_errno(DT_IO, "%s", dir);
    }
    const enum dt_status status = write_in_folder(folder, name, parts, n_parts);
    const int error = errno;
    close(folder); /* nothing was written through it that could be lost */
    if (status != DT_OK) {
        errno = error;
        return dt_error_errno(status, "%s/%s: cannot be written", dir, name);
    }
    return DT_OK;
}

enum dt_status dt_file_write_atomic(const char *dir, const char *name,
                                    const struct dt_file_part *parts, size_t n_parts)
{
    return write_and_close(open_folder(dir), dir, name, parts, n_parts);
}

int dt_dir_open_real(const char *dir)
{
    return openat(AT_FDCWD, dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
}

enum dt_status dt_file_write_atomic_real(const char *dir, const char *name,
                                         const struct dt_file_part *parts, size_t n_parts)
{
    return write_and_close(dt_dir_open_real(dir), dir, name, parts, n_parts);
}

/* A link takes no other file's place; a file system without links has to be asked before. */
static bool put_first(int folder, const char *from, const char *to)
{
    struct stat info;
    if (linkat(folder, from, folder, to, 0) == 0 || errno == EEXIST) {
        return true;
    }
    return dt_file_lacks(DT_CALL_LINK) && (fstatat(folder, to, &info, AT_SYMLINK_NOFOLLOW) == 0 ||
                                           rename_in(folder, from, to) == 0);
}

bool dt_file_leave(const char *dir, const char *name, const char *text, size_t n, bool first)
{
    DT_ASSERT(name[0] != '\0' && strchr(name, '/') == NULL);
    char temporary[TEMPORARY_SIZE];
    const struct dt_file_part part = {text, n};
    const int folder = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    snprintf(temporary, sizeof temporary, DT_FILE_TEMPORARY "%.*s-%ld", DT_FILE_NAME_SHOWN, name,
             (long)gettid());
    const int fd = openat(folder, temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    bool done = fd >= 0 && write_all(fd, &part) == DT_OK && sync_to_disk(fd) == DT_OK;
    close(fd);
    done = done &&
           (first ? put_first(folder, temporary, name) : rename_in(folder, temporary, name) == 0);
    unlinkat(folder, temporary, 0);
    fsync(folder);
    close(folder);
    return done;
}

/* ---- a folder ---- */

enum dt_status dt_dir_try(const char *dir)
{
    char temporary[TEMPORARY_SIZE];
    const int folder = open_folder(dir);
    name_temporary(DT_FILE_TRIED, temporary);
    const int fd = folder >= 0 ? create_temporary(folder, temporary) : -1;
    const bool done = fd >= 0 && fill(fd, folder, DT_FILE_TRIED, NULL, 0) == DT_OK &&
                      sync_to_disk(folder) == DT_OK;
    const int error = errno;
    if (fd >= 0) {
        close(fd);
        unlinkat(folder, temporary, 0);
    }
    under_way.folder = -1;
    if (folder >= 0) {
        close(folder);
    }
    errno = error;
    return done ? DT_OK
                : dt_error_errno(DT_CANT_CREATE,
                                 folder < 0 ? "%s" : "%s: no file can be created there", dir);
}

/* ---- what a user names ---- */

/* The kind of file that a path names. */
struct target {
    char path[PATH_SIZE]; /* of a file: behind all symbolic links */
    const char *name;     /* of a file: the last part of `path` */
    bool file; /* a regular one, or there is none yet; else something to write into as it is */
    bool there;
    int standard; /* standard output's or error's number, if it is that; else -1 */
};

/* Opened once more, a file that is standard output would be written from its beginning, over what
 * was printed. */
static int find_standard(const struct stat *info)
{
    struct stat standard;
    for (int fd = STDOUT_FILENO; fd <= STDERR_FILENO; fd++) {
        if (fstat(fd, &standard) == 0 && standard.st_dev == info->st_dev &&
            standard.st_ino == info->st_ino) {
            return fd;
        }
    }
    return -1;
}

/* Opening a disk would write over what it holds, and a socket cannot be opened. */
static enum dt_status check_kind(const char *path, mode_t mode)
{
    const char *what = S_ISDIR(mode)    ? "a directory"
                       : S_ISSOCK(mode) ? "a socket"
                       : S_ISBLK(mode)  ? "a block device"
                                        : NULL;
    return what == NULL ? DT_OK : dt_error(DT_CANT_CREATE, "%s: is %s (name a file)", path, what);
}

static char *name_in(char *path)
{
    char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

/* To where the file is, or will be. The caller has had the kernel follow the path, which may refuse
 * links of others. */
static enum dt_status follow_links(char path[PATH_SIZE])
{
    char link[PATH_SIZE];
    ssize_t n = 0;
    for (int i = 0; i < MAX_LINKS && (n = readlink(path, link, sizeof link - 1)) >= 0; i++) {
        char *at = link[0] == '/' ? path : name_in(path); /* beside the link */
        if ((size_t)(at - path) + (size_t)n >= PATH_SIZE) {
            errno = ENAMETOOLONG;
            return DT_CANT_CREATE;
        }
        memcpy(at, link, (size_t)n);
        at[n] = '\0';
    }
    errno = ELOOP;
    return n < 0 ? DT_OK : DT_CANT_CREATE;
}

static enum dt_status find_target(const char *path, struct target *out)
{
    struct stat info = {0};
    *out = (struct target){.standard = -1};
    if (snprintf(out->path, sizeof out->path, "%s", path) >= PATH_SIZE) {
        return dt_error(DT_USAGE, "%.200s...: the path is too long (at most %d bytes)", path,
                        PATH_SIZE - 1);
    }
    out->there = stat(path, &info) == 0;
    out->standard = out->there ? find_standard(&info) : -1;
    out->file = out->standard < 0 && (!out->there || S_ISREG(info.st_mode));
    if (!out->there && errno != ENOENT) {
        return dt_error_errno(DT_CANT_CREATE, "%s", path);
    }
    if (out->there && out->standard < 0) {
        DT_TRY(check_kind(path, info.st_mode));
        if (access(path, W_OK) != 0) {
            return dt_error_errno(DT_CANT_CREATE, "%s", path);
        }
    }
    if (out->file && follow_links(out->path) != DT_OK) {
        return dt_error_errno(DT_CANT_CREATE, "%s", path);
    }
    out->name = name_in(out->path);
    return out->name[0] != '\0' ? DT_OK
                                : dt_error(DT_USAGE, "%.200s: no name of a file (add one)", path);
}

/* The folder of the target, with `path` for room. */
static const char *folder_of(const struct target *target, char path[PATH_SIZE])
{
    snprintf(path, PATH_SIZE, "%.*s", (int)(target->name - target->path), target->path);
    return path[0] != '\0' ? path : ".";
}

enum dt_status dt_file_try(const char *path, bool *replaces)
{
    struct target target;
    char folder[PATH_SIZE];
    if (path == NULL) {
        return DT_OK;
    }
    DT_TRY(find_target(path, &target));
    if (replaces != NULL) {
        *replaces = target.file && target.there;
    }
    return target.file ? dt_dir_try(folder_of(&target, folder)) : DT_OK;
}

/* A pipe that nobody has opened for reading may still get its reader. */
static int open_stream(const char *path)
{
    const double begin_s = dt_clock_s();
    int fd;
    while ((fd = openat(AT_FDCWD, path, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0)) < 0 &&
           errno == ENXIO && dt_clock_s() - begin_s < WAIT_LIMIT_S) {
        dt_sleep_ms(WAIT_POLL_MS);
        errno = ENXIO;
    }
    return fd;
}

static enum dt_status write_stream(const struct target *target, const struct dt_file_part *parts,
                                   size_t n_parts)
{
    fflush(stdout); /* what was printed before comes before */
    const int fd = target->standard >= 0 ? target->standard : open_stream(target->path);
    if (fd < 0 && errno == ENXIO) {
        return dt_error(DT_IO, "%s: nobody reads from it (start its reader first)", target->path);
    }
    enum dt_status s = fd >= 0 ? write_parts(fd, parts, n_parts) : DT_IO;
    const int error = errno;
    if (fd >= 0 && fd != target->standard && close(fd) != 0 && s == DT_OK) {
        return dt_error_errno(DT_IO, "%s: cannot be written", target->path);
    }
    errno = error;
    return s == DT_OK ? DT_OK : dt_error_errno(DT_IO, "%s: cannot be written", target->path);
}

enum dt_status dt_file_write(const char *path, const struct dt_file_part *parts, size_t n_parts)
{
    struct target target;
    char folder[PATH_SIZE];
    if (path == NULL) {
        return DT_OK;
    }
    DT_TRY(find_target(path, &target));
    return target.file
               ? dt_file_write_atomic(folder_of(&target, folder), target.name, parts, n_parts)
               : write_stream(&target, parts, n_parts);
}

enum dt_status dt_file_collect(const char *path, dt_file_put_fn put, const void *context,
                               char **text, size_t *n)
{
    *text = NULL;
    FILE *out = open_memstream(text, n);
    const bool waiting = dt_error_text()[0] != '\0';
    if (out != NULL) {
        put(out, context);
    }
    if (dt_text_close(out, text) && (waiting || dt_error_text()[0] == '\0')) {
        return DT_OK;
    }
    free(*text);
    *text = NULL;
    return dt_error(DT_NO_MEMORY, "no memory for %.200s", path);
}

enum dt_status dt_file_print(const char *path, dt_file_put_fn put, const void *context)
{
    char *text = NULL;
    size_t n = 0;
    if (path == NULL) {
        return DT_OK;
    }
    DT_TRY(dt_file_collect(path, put, context, &text, &n));
    const enum dt_status s = dt_file_write(path, &(struct dt_file_part){text, n}, 1);
    free(text);
    return s;
}

/* ---- folders */

/* Is this a temporary file, whose writer is no longer alive, of a name that is `ours`? A process
 * sweeps where it is not writing, so that one with its own number is a leftover too. */
static bool is_leftover(const char *temporary, bool (*ours)(const char *name))
{
    const size_t n_prefix = sizeof DT_FILE_TEMPORARY - 1;
    const char *dash = strrchr(temporary, '-');
    char name[DT_FILE_NAME_SHOWN + 1], *end = NULL;
    if (strncmp(temporary, DT_FILE_TEMPORARY, n_prefix) != 0 ||
        (size_t)(dash - temporary) < n_prefix) {
        return false;
    }
    const long pid = strtol(dash + 1, &end, 10);
    snprintf(name, sizeof name, "%.*s", (int)(dash - temporary - (long)n_prefix),
             temporary + n_prefix);
    if (dash[1] < '1' || dash[1] > '9' || *end != '\0' ||
        (strcmp(name, DT_FILE_TRIED) != 0 && !ours(name))) {
        return false;
    }
    return pid == (long)getpid() || dt_process_start(pid) == 0;
}

void dt_dir_sweep(const char *dir, bool (*ours)(const char *name))
{
    DIR *folder = opendir(dir);
    const struct dirent *entry;
    while (folder != NULL && (entry = readdir(folder)) != NULL) {
        if (is_leftover(entry->d_name, ours)) {
            unlinkat(dirfd(folder), entry->d_name, 0);
        }
    }
    if (folder != NULL) {
        closedir(folder);
    }
}

static enum dt_status create_one(const char *path)
{
    struct stat info;
    if (mkdir(path, 0777) == 0) {
        return DT_OK;
    }
    const int error = errno;
    if (error == EEXIST && stat(path, &info) == 0) {
        return S_ISDIR(info.st_mode)
                   ? DT_OK
                   : dt_error(DT_CANT_CREATE, "%s: is in the way, and not a folder", path);
    }
    errno = error;
    return dt_error_errno(DT_CANT_CREATE, "%s: cannot create the folder", path);
}

enum dt_status dt_dir_create(const char *path)
{
    char part[4096];
    const size_t length = strlen(path);
    if (length == 0 || length >= sizeof part) {
        return dt_error(DT_CANT_CREATE, "a folder's name is %s",
                        length == 0 ? "empty" : "too long");
    }
    memcpy(part, path, length + 1);
    for (size_t i = 1; i < length; i++) {
        if (path[i] == '/') {
            part[i] = '\0';
            struct stat info;
            if (stat(part, &info) !=
                0) { /* an existing parent on a read-only file system is fine */
                DT_TRY(create_one(part));
            }
            part[i] = '/';
        }
    }
    return create_one(path);
}
