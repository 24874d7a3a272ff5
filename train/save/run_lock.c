#include "train/save/run_lock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"

#define NAME "run.lock"
#define MUTEX "run.lock.mutex"
#define TRIES 400
#define POLL_MS 5
#define TEXT_SIZE 256
#define FLOCK "flock"
#define NO_FLOCK "no flock"

/* The first line of run.lock. */
struct owner {
    char host[65]; /* "": nobody */
    long pid;
    unsigned long long start;         /* 0: not noted */
    unsigned long long pid_namespace; /* whose processes have such numbers; 0: not noted */
    bool by_flock;                    /* its flock tells whether it is alive */
};

static struct owner this_process(bool by_flock)
{
    struct owner me = {.pid = (long)getpid(), .by_flock = by_flock};
    struct stat info;
    if (gethostname(me.host, sizeof me.host - 1) != 0 || me.host[0] == '\0') {
        snprintf(me.host, sizeof me.host, "unknown");
    }
    me.start = dt_process_start(me.pid);
    me.pid_namespace = stat("/proc/self/ns/pid", &info) == 0 ? info.st_ino : 0;
    return me;
}

/* `line`: room for TEXT_SIZE bytes. */
static struct owner read_owner(int fd, char *line)
{
    struct owner owner = {.by_flock = true};
    char how[16] = FLOCK;
    const ssize_t n = pread(fd, line, TEXT_SIZE - 1, 0);
    line[n > 0 ? n : 0] = '\0';
    line[strcspn(line, "\n")] = '\0';
    const int n_read =
        sscanf(line, "pid %18ld on host %64[^,], start %20llu, namespace %20llu, %15[^\n]",
               &owner.pid, owner.host, &owner.start, &owner.pid_namespace, how);
    owner.host[n_read < 2 ? 0 : sizeof owner.host - 1] = '\0';
    owner.by_flock = strcmp(how, NO_FLOCK) != 0;
    return owner;
}

static enum dt_status write_owner(struct dt_run_dir *run, const struct owner *owner)
{
    char line[TEXT_SIZE];
    const int n = snprintf(
        line, sizeof line, "pid %ld on host %s, start %llu, namespace %llu, %s\n", owner->pid,
        owner->host, owner->start, owner->pid_namespace, owner->by_flock ? FLOCK : NO_FLOCK);
    DT_ASSERT(n > 0 && n < TEXT_SIZE);
    if (pwrite(run->lock, line, (size_t)n, 0) != n || ftruncate(run->lock, n) != 0) {
        return dt_error_errno(DT_CANT_CREATE, "%s/" NAME, run->path);
    }
    run->lock_size = n;
    return DT_OK;
}

/* ---- is it alive? */

/* Another host's processes cannot be seen, nor those of another container. */
static bool is_near(const struct owner *owner)
{
    const struct owner me = this_process(false);
    return strcmp(owner->host, me.host) == 0 &&
           (owner->pid_namespace == 0 || owner->pid_namespace == me.pid_namespace);
}

static bool may_be_alive(const struct owner *owner)
{
    const uint64_t start = is_near(owner) ? dt_process_start(owner->pid) : DT_PROCESS_START_UNKNOWN;
    return start == DT_PROCESS_START_UNKNOWN ||
           (start != 0 && (owner->start == 0 || owner->start == DT_PROCESS_START_UNKNOWN ||
                           owner->start == start));
}

/* With `flocked`, flock works, and nobody holds it. */
static bool is_used(const struct owner *owner, bool flocked)
{
    return owner->host[0] != '\0' && !(flocked && owner->by_flock) && may_be_alive(owner);
}

bool dt_run_lock_is_held(int fd)
{
    char line[TEXT_SIZE];
    const bool flocked = flock(fd, LOCK_SH | LOCK_NB) == 0,
               another = !flocked && errno == EWOULDBLOCK;
    const struct owner owner = read_owner(fd, line);
    return another || is_used(&owner, flocked);
}

/* ---- taking it */

static enum dt_status refuse(const struct dt_run_dir *run, const struct owner *owner, char *line)
{
    DT_ASSERT(strlen(line) < TEXT_SIZE);
    const bool near = owner->host[0] == '\0' || is_near(owner);
    line[strcspn(line, ",")] = '\0';
    return near
               ? dt_error(DT_CANT_CREATE, "%s: in use by %s (wait for it, or choose another --run)",
                          run->path, line[0] != '\0' ? line : "another process")
               : dt_error(DT_CANT_CREATE,
                          "%s: in use by %s (if that process is gone, remove %s/" NAME
                          "; else wait for it, or choose another --run)",
                          run->path, line, run->path);
}

/* A report that only asks whether a run trains here shares the lock for a moment: wait for it. On
 * failure errno is EWOULDBLOCK where another process has it. */
static bool lock(int fd)
{
    for (int i = 0; i < TRIES; i++) {
        if (flock(fd, LOCK_EX | LOCK_NB) == 0) {
            return true;
        }
        if (errno != EWOULDBLOCK || flock(fd, LOCK_SH | LOCK_NB) != 0) {
            return false;
        }
        flock(fd, LOCK_UN);
        dt_sleep_ms(POLL_MS);
    }
    errno = EWOULDBLOCK;
    return false;
}

static enum dt_status take_over(struct dt_run_dir *run, bool flocked)
{
    char line[TEXT_SIZE];
    const struct owner owner = read_owner(run->lock, line), me = this_process(flocked);
    return is_used(&owner, flocked) ? refuse(run, &owner, line) : write_owner(run, &me);
}

/* Of several that want a dead process's lock, one at a time looks and takes it. */
static enum dt_status open_mutex(const char *path)
{
    int fd;
    for (int i = 0; (fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666)) < 0; i++) {
        if (errno == EEXIST && i == TRIES) {
            return dt_error(DT_CANT_CREATE,
                            "%s: another process is starting here, or was killed then (if it was "
                            "killed, remove this file)",
                            path);
        }
        if (errno != EEXIST) {
            return dt_error_errno(DT_CANT_CREATE, "%s", path);
        }
        dt_sleep_ms(POLL_MS);
    }
    close(fd);
    return DT_OK;
}

/* Opened once more: a file server's client shows what others have written to those that open. */
static enum dt_status take_by_name(struct dt_run_dir *run)
{
    char mutex[DT_PATH_SIZE + 16], self[32];
    snprintf(mutex, sizeof mutex, "%s/" MUTEX, run->path);
    DT_TRY(open_mutex(mutex));
    snprintf(self, sizeof self, "/proc/self/fd/%d", run->lock);
    const int again = open(self, O_RDWR | O_CLOEXEC);
    if (again >= 0) {
        close(run->lock);
        run->lock = again;
    }
    enum dt_status s = take_over(run, false);
    if (s == DT_OK && fsync(run->lock) != 0 && !dt_file_lacks(DT_CALL_SYNC)) {
        s = dt_error_errno(DT_CANT_CREATE, "%s/" NAME, run->path);
    }
    unlink(mutex);
    return s;
}

static enum dt_status take(struct dt_run_dir *run)
{
    char line[TEXT_SIZE];
    if (lock(run->lock)) {
        return take_over(run, true);
    }
    if (errno != EWOULDBLOCK && dt_file_lacks(DT_CALL_LOCK)) {
        return take_by_name(run);
    }
    if (errno != EWOULDBLOCK) {
        return dt_error_errno(DT_CANT_CREATE, "%s/" NAME, run->path);
    }
    const struct owner owner = read_owner(run->lock, line);
    return refuse(run, &(struct owner){.pid = owner.pid}, line);
}

/* Without the lock nothing of the folder is ours. */
enum dt_status dt_run_lock_take(struct dt_run_dir *run)
{
    DT_ASSERT(run->lock >= 0);
    const enum dt_status s = take(run);
    if (s != DT_OK) {
        close(run->lock);
        run->lock = -1;
    }
    return s;
}

/* The steps stay in the second line. */
void dt_run_lock_release(struct dt_run_dir *run)
{
    char nobody[TEXT_SIZE];
    const size_t n = run->lock_size > 0 ? (size_t)run->lock_size - 1 : 0;
    memset(nobody, ' ', sizeof nobody);
    if (run->lock >= 0) {
        const ssize_t done = pwrite(run->lock, nobody, n, 0);
        (void)done; /* if not, the process is seen to be gone */
        close(run->lock);
        run->lock = -1;
    }
}
