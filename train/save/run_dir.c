#include "train/save/run_dir.h"

#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "model/checkpoint.h"

#define LOCK_TRIES 400
#define LOCK_POLL_MS 5

void dt_run_dir_default(const char *config_name, char path[DT_PATH_SIZE])
{
    char stamp[32];
    const time_t now = time(NULL);
    struct tm utc;
    strftime(stamp, sizeof stamp, "%Y%m%dT%H%M%SZ", gmtime_r(&now, &utc));
    int n = snprintf(path, DT_PATH_SIZE, "runs/%s/%s", config_name, stamp);
    for (int i = 2; access(path, F_OK) == 0 && i < 100; i++) { /* two runs in one second */
        snprintf(path + n, DT_PATH_SIZE - (size_t)n, "-%d", i);
    }
}

static const char *const files[] = {"run.lock",     "config.json", "metrics.jsonl", "metrics.csv",
                                    "summary.json", "trace.json",  "report.html",   "status.json"};

static bool is_file_of_run(const char *name)
{
    bool found = strncmp(name, "flight-", 7) == 0;
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        found = found || strcmp(name, files[i]) == 0;
    }
    return found;
}

/* A prepared folder must not redirect writing or reading to another place. */
static enum dt_status refuse(const char *path, const char *what)
{
    return dt_error(DT_CANT_CREATE, "%s: is %s (remove it, or choose another --run)", path, what);
}

static enum dt_status check_plain(const char *path, const struct stat *info)
{
    const char *what = S_ISLNK(info->st_mode)    ? "a symbolic link"
                       : !S_ISREG(info->st_mode) ? "not a regular file"
                                                 : NULL;
    what = what == NULL && info->st_nlink > 1 ? "a hard link" : what;
    return what == NULL ? DT_OK : refuse(path, what);
}

static enum dt_status check_folder(const char *path)
{
    struct stat info;
    return lstat(path, &info) == 0 && S_ISLNK(info.st_mode) ? refuse(path, "a symbolic link")
                                                            : DT_OK;
}

enum dt_status dt_run_dir_check_file(const char *dir, const char *name)
{
    char path[DT_PATH_SIZE + 16];
    struct stat info;
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return lstat(path, &info) == 0 ? check_plain(path, &info) : DT_OK;
}

/* A folder in which root would leave its files beside bin and etc. */
enum dt_status dt_run_dir_check(const char *wanted)
{
    struct stat root, info;
    if (wanted != NULL && strlen(wanted) > DT_RUN_DIR_MOST) {
        return dt_error(DT_USAGE, "--run: the path is longer than %d bytes", DT_RUN_DIR_MOST);
    }
    const bool both = wanted != NULL && stat("/", &root) == 0 && stat(wanted, &info) == 0;
    if (both && root.st_dev == info.st_dev && root.st_ino == info.st_ino) {
        return dt_error(DT_CANT_CREATE,
                        "--run %s: is the root of the file system (name a folder for the run)",
                        wanted);
    }
    return DT_OK;
}

enum dt_status dt_run_dir_open_file(const struct dt_run_dir *run, const char *name, int flags,
                                    int *out)
{
    char path[DT_PATH_SIZE + 16];
    struct stat info;
    snprintf(path, sizeof path, "%s/%s", run->path, name);
    const int fd =
        open(path, flags | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0666);
    if (fd < 0 || fstat(fd, &info) != 0) {
        const enum dt_status s = dt_error_errno(DT_CANT_CREATE, "%s", path);
        close(fd);
        return s;
    }
    const enum dt_status s = check_plain(path, &info);
    if (s != DT_OK) {
        close(fd);
        return s;
    }
    *out = fd;
    return DT_OK;
}

/* Text of a lock file: who holds it. */
static void read_owner(int fd, char *text, size_t size)
{
    const ssize_t n = pread(fd, text, size - 1, 0);
    text[n > 0 ? n : 0] = '\0';
    text[strcspn(text, "\n")] = '\0';
}

/* A report that only asks whether a run trains here (cli/sinks/record.c) shares the lock for a
 * moment: wait for it. */
static bool lock(int fd)
{
    for (int i = 0; i < LOCK_TRIES; i++) {
        if (flock(fd, LOCK_EX | LOCK_NB) == 0) {
            return true;
        }
        if (flock(fd, LOCK_SH | LOCK_NB) != 0) {
            return false;
        }
        flock(fd, LOCK_UN);
        dt_sleep_ms(LOCK_POLL_MS);
    }
    return false;
}

static enum dt_status take_lock(struct dt_world *world, struct dt_run_dir *run)
{
    char owner[160];
    DT_TRY(dt_run_dir_open_file(run, "run.lock", O_RDWR, &run->lock));
    if (!lock(run->lock)) {
        read_owner(run->lock, owner, sizeof owner);
        close(run->lock);
        run->lock = -1;
        return dt_error(DT_CANT_CREATE, "%s: in use by %s (wait for it, or choose another --run)",
                        run->path, owner[0] != '\0' ? owner : "another process");
    }
    const int n =
        snprintf(owner, sizeof owner, "pid %ld on host %s\n", (long)getpid(), world->host);
    if (ftruncate(run->lock, 0) != 0 || pwrite(run->lock, owner, (size_t)n, 0) != n) {
        return dt_error_errno(DT_CANT_CREATE, "%s/run.lock", run->path);
    }
    run->lock_size = n;
    return DT_OK;
}

/* As long as any other, so that it is written over in place. */
void dt_run_dir_note_step(const struct dt_run_dir *run, uint64_t step)
{
    char line[32];
    const int n = snprintf(line, sizeof line, "step %020llu\n", (unsigned long long)step);
    if (pwrite(run->lock, line, (size_t)n, run->lock_size) != n) {
        return; /* the records have the steps, too */
    }
}

static enum dt_status create(struct dt_world *world, const char *wanted, const char *config_name,
                             bool resume, struct dt_run_dir *run)
{
    char path[DT_PATH_SIZE + 16];
    DT_TRY(dt_run_dir_check(wanted));
    if (wanted != NULL) {
        snprintf(run->path, sizeof run->path, "%s", wanted);
    } else {
        dt_run_dir_default(config_name, run->path);
    }
    snprintf(run->checkpoints, sizeof run->checkpoints, "%.1000s/checkpoints", run->path);
    snprintf(path, sizeof path, "%s/config.json", run->path);
    const bool used = access(path, F_OK) == 0;
    DT_TRY(check_folder(run->checkpoints));
    DT_TRY(dt_dir_create(run->checkpoints));
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        DT_TRY(dt_run_dir_check_file(run->path, files[i]));
    }
    DT_TRY(take_lock(world, run));
    if (used && !resume) {
        return dt_error(
            DT_CANT_CREATE,
            "%s: already holds a run (choose another --run; a training resumes with --resume)",
            run->path);
    }
    dt_dir_sweep(run->path, is_file_of_run);
    dt_checkpoint_sweep(run->checkpoints);
    return dt_dir_try(run->checkpoints);
}

enum dt_status dt_run_dir_open(struct dt_world *world, const char *wanted, const char *config_name,
                               bool resume, struct dt_run_dir *out)
{
    *out = (struct dt_run_dir){.lock = -1};
    enum dt_status s = DT_OK;
    if (world->rank == 0) {
        s = create(world, wanted, config_name, resume, out);
    }
    s = dt_world_agree(world, s);
    if (s != DT_OK) {
        dt_run_dir_close(out);
        return s;
    }
    DT_TRY(dt_comm_broadcast(world->comm, out->path, sizeof out->path, 0,
                             "broadcast of the run folder's path"));
    return dt_comm_broadcast(world->comm, out->checkpoints, sizeof out->checkpoints, 0,
                             "broadcast of the run folder's path");
}

/* A function of nftw. */
static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *place)
{
    (void)info;
    (void)kind;
    (void)place;
    return remove(path);
}

void dt_run_dir_remove(const struct dt_run_dir *run)
{
    nftw(run->path, remove_one, 8, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
}

void dt_run_dir_close(struct dt_run_dir *run)
{
    if (run->lock >= 0) {
        close(run->lock);
        run->lock = -1;
    }
}

enum dt_status dt_run_dir_write(const struct dt_run_dir *run, const char *name, const char *text)
{
    const size_t n = strlen(text);
    const bool ended = n > 0 && text[n - 1] == '\n';
    const struct dt_file_part parts[] = {{text, n}, {"\n", ended ? 0 : 1}};
    return dt_file_write_atomic(run->path, name, parts, 2);
}
