/* The disk, by way of the system calls on files (tests/unit/base/file_calls.h). What was written
 * and not synced may be gone after a power cut: bytes of a file without fsync, a new name without
 * fsync of its folder. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "tests/simulate/sim.h"
#include "tests/unit/base/file_calls.h"

#define MOST_FILES 32
#define MOST_DESCRIPTORS 1024
#define PATH_SIZE 600
#define MOST_CALLS_BEFORE 24 /* about a checkpoint's */

/* A file that was written, or renamed, since its last sync. */
struct change {
    int fd; /* -1: it is closed */
    char path[PATH_SIZE], before[PATH_SIZE], folder[PATH_SIZE];
    bool dirty;   /* its bytes are not synced */
    bool renamed; /* from `before`, and its folder is not synced */
};

static bool on_disk[MOST_DESCRIPTORS]; /* not memory that ranks share, for one */
static struct change changes[MOST_FILES];
static int n_changes;
static int error_now;    /* that the next call gives; 0: none */
static bool error_stays; /* and all calls that write, until error_until_ns */
static uint64_t error_until_ns;
static int n_before_error; /* calls that still work */

static void path_of(int folder, const char *name, char path[PATH_SIZE])
{
    char link[64], there[300];
    snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
    const ssize_t n = folder == AT_FDCWD ? 0 : readlink(link, there, sizeof there - 1);
    there[n > 0 ? n : 0] = '\0';
    snprintf(path, PATH_SIZE, "%s%s%.250s", there, n > 0 && name[0] != '\0' ? "/" : "", name);
}

static struct change *find_fd(int fd)
{
    for (int i = 0; i < n_changes; i++) {
        if (changes[i].fd == fd) {
            return &changes[i];
        }
    }
    return NULL;
}

static struct change *find_path(const char *path)
{
    for (int i = 0; i < n_changes; i++) {
        if (strcmp(changes[i].path, path) == 0) {
            return &changes[i];
        }
    }
    return NULL;
}

static struct change *note(const char *path, int fd)
{
    struct change *change = find_path(path);
    if (change == NULL && n_changes == MOST_FILES) { /* the oldest is synced by now, or never */
        memmove(changes, changes + 1, sizeof changes - sizeof *changes);
        n_changes--;
    }
    change = change != NULL ? change : &changes[n_changes++];
    *change = (struct change){.fd = fd};
    snprintf(change->path, PATH_SIZE, "%s", path);
    return change;
}

void sim_disk_fail(const struct sim_fault *fault)
{
    static const int errors[] = {EIO, ENOSPC, EDQUOT, EINTR};
    error_stays = fault->kind == SIM_DISK_FULL;
    n_before_error = error_stays ? 0 : (int)sim_below(&sim.random, MOST_CALLS_BEFORE);
    error_now = error_stays ? ENOSPC : errors[sim_below(&sim.random, 4)];
    error_until_ns =
        fault->seconds > 0 ? sim.now->time_ns + (uint64_t)(fault->seconds * 1e9) : SIM_NEVER;
}

static bool is_on_disk(int fd)
{
    return fd >= 0 && fd < MOST_DESCRIPTORS && on_disk[fd];
}

/* True if a call fails. */
static bool fails(const char *call, bool writes)
{
    if (sim.now == NULL) {
        return false;
    }
    sim_point(call);
    if (sim_call_fails(SIM_CALL_FILE)) {
        errno = writes ? ENOSPC : EIO;
        sim_trace("%s gives: %s", call, strerror(errno));
        return true;
    }
    if (error_now == 0 || (error_stays && (!writes || sim.now->time_ns >= error_until_ns))) {
        return false;
    }
    if (n_before_error-- > 0) {
        return false;
    }
    errno = error_now;
    sim_trace("%s gives: %s", call, strerror(errno));
    n_before_error = error_stays ? 0 : (int)sim_below(&sim.random, MOST_CALLS_BEFORE);
    error_now = error_stays ? error_now : 0;
    return true;
}

static int sim_openat(int folder, const char *path, int flags, mode_t mode)
{
    if (fails("openat", (flags & O_CREAT) != 0)) {
        return -1;
    }
    const int fd = real.openat(folder, path, flags, mode);
    if (fd >= 0 && fd < MOST_DESCRIPTORS) {
        on_disk[fd] = true;
    }
    if (fd >= 0 && (flags & O_CREAT) != 0) {
        char whole[PATH_SIZE];
        path_of(folder, path, whole);
        note(whole, fd);
    }
    return fd;
}

static int sim_fstat(int fd, struct stat *info)
{
    return is_on_disk(fd) && fails("fstat", false) ? -1 : real.fstat(fd, info);
}

static ssize_t sim_read(int fd, void *bytes, size_t n_bytes)
{
    if (!is_on_disk(fd)) {
        return real.read(fd, bytes, n_bytes);
    }
    const size_t most = sim_chance(&sim.random, 10) ? 1 + n_bytes / 2 : n_bytes;
    return fails("read", false) ? -1 : real.read(fd, bytes, most < n_bytes ? most : n_bytes);
}

/* Often in two parts, between which anything may happen. */
static ssize_t sim_write(int fd, const void *bytes, size_t n_bytes)
{
    struct change *change = find_fd(fd);
    if (!is_on_disk(fd)) {
        return real.write(fd, bytes, n_bytes);
    }
    if (fails("write", true)) {
        return -1;
    }
    if (change != NULL) {
        change->dirty = true;
    }
    return real.write(fd, bytes, sim_chance(&sim.random, 50) ? (n_bytes + 1) / 2 : n_bytes);
}

static int sim_fallocate(int fd, int mode, off_t offset, off_t n_bytes)
{
    return fails("fallocate", true) ? -1 : real.fallocate(fd, mode, offset, n_bytes);
}

static int sim_fchmod(int fd, mode_t mode)
{
    return fails("fchmod", false) ? -1 : real.fchmod(fd, mode);
}

/* The real disk is spared. */
static int sim_fsync(int fd)
{
    struct change *change = find_fd(fd);
    char path[PATH_SIZE];
    if (fails("fsync", true)) {
        return -1;
    }
    sim_sleep(sim_below(&sim.random, 10 * SIM_MS));
    if (change != NULL) {
        change->dirty = false;
        return 0;
    }
    path_of(fd, "", path);
    for (int i = 0; i < n_changes; i++) {
        changes[i].renamed = changes[i].renamed && strcmp(changes[i].folder, path) != 0;
    }
    return 0;
}

static int sim_close(int fd)
{
    struct change *change = find_fd(fd);
    if (change != NULL) {
        change->fd = -1;
    }
    const bool failed = is_on_disk(fd) && fails("close", true);
    if (is_on_disk(fd)) {
        on_disk[fd] = false;
    }
    const int error = errno, result = real.close(fd);
    errno = failed ? error : errno;
    return failed ? -1 : result;
}

static int sim_renameat(int from_folder, const char *from, int to_folder, const char *to)
{
    char before[PATH_SIZE], after[PATH_SIZE];
    if (fails("renameat", true)) {
        return -1;
    }
    path_of(from_folder, from, before);
    path_of(to_folder, to, after);
    struct change *change = find_path(before);
    const struct change moved = change != NULL ? *change : (struct change){.fd = -1};
    const bool replaces = access(after, F_OK) == 0;
    const int result = real.renameat(from_folder, from, to_folder, to);
    if (result == 0) {
        change = note(after, moved.fd);
        change->dirty = moved.dirty;
        change->renamed = !replaces; /* else the old file would be there again, which is as good */
        snprintf(change->before, PATH_SIZE, "%s", before);
        path_of(to_folder, "", change->folder);
    }
    return result;
}

static int sim_unlinkat(int folder, const char *path, int flags)
{
    return fails("unlinkat", false) ? -1 : real.unlinkat(folder, path, flags);
}

static int sim_mkdir(const char *path, mode_t mode)
{
    return fails("mkdir", true) ? -1 : real.mkdir(path, mode);
}

static void lose(struct change *change)
{
    struct stat info;
    if (change->dirty && stat(change->path, &info) == 0) {
        const off_t n = (off_t)sim_below(&sim.random, (uint64_t)info.st_size + 1);
        sim_trace("of %s %lld of %lld bytes are left", strrchr(change->path, '/') + 1, (long long)n,
                  (long long)info.st_size);
        (void)!truncate(change->path, n);
    }
    if (change->renamed && sim_chance(&sim.random, 50)) {
        sim_trace("%s has its name before", strrchr(change->path, '/') + 1);
        (void)!rename(change->path, change->before);
    }
}

void sim_disk_power_cut(void)
{
    for (int i = 0; i < n_changes; i++) {
        lose(&changes[i]);
    }
}

void sim_disk_begin(void)
{
    calls = (struct file_calls){.openat = sim_openat,
                                .fstat = sim_fstat,
                                .read = sim_read,
                                .write = sim_write,
                                .fallocate = sim_fallocate,
                                .fchmod = sim_fchmod,
                                .fsync = sim_fsync,
                                .close = sim_close,
                                .renameat = sim_renameat,
                                .unlinkat = sim_unlinkat,
                                .mkdir = sim_mkdir};
    n_changes = 0;
    error_now = 0;
}
