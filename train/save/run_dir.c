#include "train/save/run_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "checkpoint/checkpoint.h"
#include "train/save/run_lock.h"

#define MOST_IN_A_SECOND 1000 /* runs of one configuration */

/* mkdir decides who has the name: jobs that start together all find it free. */
enum dt_status dt_run_dir_default(const char *config_name, char path[DT_PATH_SIZE])
{
    char stamp[32];
    const time_t now = time(NULL);
    struct tm utc;
    strftime(stamp, sizeof stamp, "%Y%m%dT%H%M%SZ", gmtime_r(&now, &utc));
    const int n_parent = snprintf(path, DT_PATH_SIZE, "runs/%s", config_name);
    int made = -1;
    for (int i = 1; made != 0 && i <= MOST_IN_A_SECOND; i++) {
        char number[16] = "";
        path[n_parent] = '\0';
        DT_TRY(dt_dir_create(path)); /* again: a start that was refused removes it */
        snprintf(number, sizeof number, i > 1 ? "-%d" : "", i);
        snprintf(path + n_parent, DT_PATH_SIZE - (size_t)n_parent, "/%s%s", stamp, number);
        made = mkdir(path, 0777);
        if (made != 0 && errno != EEXIST && errno != ENOENT) {
            break;
        }
    }
    return made == 0 ? DT_OK : dt_error_errno(DT_CANT_CREATE, "%s", path);
}

static const char *const files[] = {"run.lock",     "config.json", "metrics.jsonl", "metrics.csv",
                                    "summary.json", "trace.json",  "report.html",   "status.json"};

static bool is_file_of_run(const char *name)
{
    DT_ASSERT(strchr(name, '/') == NULL);
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
    DT_ASSERT(strchr(name, '/') == NULL && run->path[0] != '\0');
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

/* As long as any other, so that it is written over in place. */
void dt_run_dir_note_step(const struct dt_run_dir *run, uint64_t step)
{
    DT_ASSERT(run->lock >= 0 && run->lock_size > 0);
    char line[32];
    const int n = snprintf(line, sizeof line, "step %020llu\n", (unsigned long long)step);
    if (pwrite(run->lock, line, (size_t)n, run->lock_size) != n) {
        return; /* the records have the steps, too */
    }
}

/* Bytes in the name of the first folder on the way that is not there; 0: all are. */
static size_t first_missing(const char *path)
{
    char part[DT_PATH_SIZE];
    for (size_t n = 1; n <= strlen(path); n++) {
        snprintf(part, sizeof part, "%.*s", (int)n, path);
        if ((path[n] == '/' || path[n] == '\0') && access(part, F_OK) != 0) {
            return n;
        }
    }
    return 0;
}

static enum dt_status make(const char *wanted, const char *config_name, struct dt_run_dir *run)
{
    snprintf(run->path, sizeof run->path, wanted != NULL ? "%s" : "runs/%s",
             wanted != NULL ? wanted : config_name);
    const size_t n_made = first_missing(run->path);
    DT_TRY(wanted != NULL ? dt_dir_create(run->path) : dt_run_dir_default(config_name, run->path));
    run->n_made = n_made > 0 || wanted != NULL ? n_made : strlen(run->path);
    snprintf(run->checkpoints, sizeof run->checkpoints, "%.1000s/checkpoints", run->path);
    return DT_OK;
}

/* Only whoever has the lock can tell: while it waited, another start may have trained here, or been
 * refused and have removed the folder. */
static enum dt_status check_free(struct dt_run_dir *run, bool resume)
{
    char path[DT_PATH_SIZE + 16];
    struct stat held, there;
    snprintf(path, sizeof path, "%s/config.json", run->path);
    const bool used = access(path, F_OK) == 0;
    run->n_made = used ? 0 : run->n_made; /* another start was first */
    if (used && !resume) {
        return dt_error(
            DT_CANT_CREATE,
            "%s: already holds a run (choose another --run; a training resumes with --resume)",
            run->path);
    }
    snprintf(path, sizeof path, "%s/run.lock", run->path);
    const bool same = fstat(run->lock, &held) == 0 && lstat(path, &there) == 0 &&
                      held.st_dev == there.st_dev && held.st_ino == there.st_ino;
    return same ? DT_OK
                : dt_error(DT_CANT_CREATE, "%s: another process has removed it (start again)",
                           run->path);
}

/* checkpoints/ is made under the lock: it is there as long as the lock is held. */
static enum dt_status create(const char *wanted, const char *config_name, bool resume,
                             struct dt_run_dir *run)
{
    DT_TRY(dt_run_dir_check(wanted));
    DT_TRY(make(wanted, config_name, run));
    DT_TRY(check_folder(run->checkpoints));
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        DT_TRY(dt_run_dir_check_file(run->path, files[i]));
    }
    DT_TRY(dt_run_dir_open_file(run, "run.lock", O_RDWR, &run->lock));
    DT_TRY(dt_run_lock_take(run));
    DT_TRY(check_free(run, resume));
    run->n_made = run->n_made > 0 ? run->n_made : first_missing(run->checkpoints);
    DT_TRY(dt_dir_create(run->checkpoints));
    return dt_dir_try(run->checkpoints);
}

enum dt_status dt_run_dir_open(struct dt_world *world, const char *wanted, const char *config_name,
                               bool resume, struct dt_run_dir *out)
{
    *out = (struct dt_run_dir){.lock = -1};
    enum dt_status s = DT_OK;
    if (world->rank == 0) {
        s = create(wanted, config_name, resume, out);
    }
    s = dt_world_agree(world, s);
    DT_ASSERT(s != DT_OK || world->rank > 0 || (out->lock >= 0 && out->checkpoints[0] != '\0'));
    if (s != DT_OK) {
        dt_run_dir_close(out);
        return s;
    }
    DT_TRY(dt_comm_broadcast(world->comm, out->path, sizeof out->path, 0,
                             "broadcast of the run folder's path"));
    return dt_comm_broadcast(world->comm, out->checkpoints, sizeof out->checkpoints, 0,
                             "broadcast of the run folder's path");
}

void dt_run_dir_begin(struct dt_run_dir *run)
{
    dt_dir_sweep(run->path, is_file_of_run);
    dt_checkpoint_sweep(run->checkpoints);
    run->n_made = 0;
}

/* With the files that a start which fails on its way has begun. */
static void remove_made(const struct dt_run_dir *run)
{
    DT_ASSERT(run->n_made >= 1 && run->n_made <= strlen(run->checkpoints));
    char path[DT_PATH_SIZE + 16];
    const size_t n_files = run->n_made <= strlen(run->path) ? sizeof files / sizeof files[0] : 0;
    for (size_t i = 0; i < n_files; i++) {
        snprintf(path, sizeof path, "%s/%s", run->path, files[i]);
        unlink(path);
    }
    snprintf(path, sizeof path, "%s", run->checkpoints);
    for (size_t n = strlen(path); n >= run->n_made; n--) {
        if (path[n] == '/' || path[n] == '\0') {
            path[n] = '\0';
            rmdir(path);
        }
    }
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
    if (run->lock >= 0) { /* another start that has the lock needs the folder */
        if (run->n_made > 0) {
            remove_made(run);
        }
        dt_run_lock_release(run);
    }
}

enum dt_status dt_run_dir_write(const struct dt_run_dir *run, const char *name, const char *text)
{
    const size_t n = strlen(text);
    const bool ended = n > 0 && text[n - 1] == '\n';
    const struct dt_file_part parts[] = {{text, n}, {"\n", ended ? 0 : 1}};
    return dt_file_write_atomic(run->path, name, parts, 2);
}
