/* Atomic writes: one survives every failure at every system call. */
#include "tests/unit/base/file_faults.h"
#include "tests/unit/base/file_folder.h"

#include <errno.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static const char new_head[] = "the new ", new_tail[] = "content, which is longer";
static const struct dt_file_part new_parts[] = {
    {new_head, sizeof new_head - 1}, {"", 0}, {new_tail, sizeof new_tail - 1}};

static enum dt_status write_new(void)
{
    return dt_file_write_atomic(folder, "file", new_parts, 3);
}

static void test_writing(void)
{
    unlink(path_of("file"));
    CHECK_OK(write_new());
    CHECK_INT(content_of("file"), 'n');
    put("file", old_text);
    CHECK_OK(write_new());
    CHECK_INT(content_of("file"), 'n');
    struct stat info;
    const mode_t mask = umask(0);
    umask(mask);
    CHECK_INT(stat(path_of("file"), &info), 0);
    CHECK_INT(info.st_mode & 0777, 0666 & ~mask);
    CHECK_INT(count_entries(), 1);
    CHECK_FAILS(dt_file_write_atomic(path_of("nowhere"), "file", new_parts, 3), DT_IO,
                "nowhere: No such file or directory");
    CHECK_OK(dt_file_write_atomic(folder, "empty", NULL, 0));
    unlink(path_of("empty"));
}

/* The temporary file's name is shorter than the longest that a file may have, and cut between
 * characters. */
static void test_long_names(void)
{
    char name[256];
    for (int i = 0; i < 255; i++) {
        name[i] = "x\xC3\xA9"[i % 3];
    }
    name[255] = '\0';
    for (size_t n = 60; n <= 255; n += 195) {
        CHECK_OK(dt_file_write_atomic(folder, name + 255 - n, new_parts, 3));
        CHECK_INT(unlinkat(AT_FDCWD, path_of("%s", name + 255 - n), 0), 0);
    }
    CHECK_INT(count_entries(), 1);
}

/* A replaced file keeps its mode, and the target of a link is replaced instead of the link. */
static void test_what_a_user_names(void)
{
    char link[512];
    struct stat info;
    bool replaces = false;
    CHECK_OK(dt_file_write(NULL, new_parts, 3));
    CHECK_OK(dt_file_try(NULL, NULL));
    put("file", old_text);
    CHECK_INT(chmod(path_of("file"), 0600), 0);
    snprintf(link, sizeof link, "%s", path_of("link"));
    CHECK_INT(symlink("file", link), 0);
    CHECK_OK(dt_file_try(link, &replaces));
    CHECK(replaces);
    CHECK_INT(content_of("file"), 'o');
    CHECK_OK(dt_file_write(link, new_parts, 3));
    CHECK_INT(content_of("file"), 'n');
    CHECK_INT(stat(path_of("file"), &info), 0);
    CHECK_INT(info.st_mode & 0777, 0600);
    CHECK_INT(lstat(link, &info), 0);
    CHECK(S_ISLNK(info.st_mode));
    unlink(path_of("file"));
    CHECK_OK(dt_file_try(link, &replaces));
    CHECK(!replaces);
    CHECK_OK(dt_file_write(link, new_parts, 3));
    CHECK_INT(content_of("file"), 'n');
    unlink(link);
    CHECK_FAILS(dt_file_try(folder, NULL), DT_CANT_CREATE, ": is a directory (name a file)");
    CHECK_INT(count_entries(), 1);
}

/* A writer waits for a full pipe, and reports one without a reader. */
static void test_pipe(void)
{
    static char text[1 << 18];
    char path[512];
    snprintf(path, sizeof path, "%s", path_of("pipe"));
    CHECK_INT(mkfifo(path, 0600), 0);
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        const int fd = open(path, O_RDONLY);
        size_t n_all = 0;
        for (ssize_t n; (n = read(fd, text, 1000)) > 0; n_all += (size_t)n) {
        }
        _exit(n_all == sizeof text ? 0 : 1);
    }
    CHECK_OK(dt_file_try(path, NULL));
    CHECK_OK(dt_file_write(path, &(struct dt_file_part){text, sizeof text}, 1));
    int state;
    CHECK_INT(waitpid(child, &state, 0), child);
    CHECK_INT(state, 0);
    CHECK_FAILS(dt_file_write(path, new_parts, 3), DT_IO,
                "pipe: nobody reads from it (start its reader first)");
    unlink(path);
}

static bool is_kept(const char *name)
{
    return strcmp(name, "kept-1") == 0;
}

/* Files with our names whose writer is no longer alive; and those that only tried whether it can
 * write. */
static void test_sweep(void)
{
    static const struct {
        const char *before, *after; /* the number of a process that is gone */
        bool goes;
    } rows[] = {{DT_FILE_TEMPORARY "kept-1-", "", true},
                {DT_FILE_TEMPORARY "try-", "", true},
                {DT_FILE_TEMPORARY "kept-1-", "x", false},
                {DT_FILE_TEMPORARY "kept-", "", false},
                {DT_FILE_TEMPORARY, "", false},
                {"kept-1-", "", false}};
    const pid_t dead = fork();
    char name[64];
    if (dead == 0) {
        _exit(0);
    }
    CHECK(dead > 0 && waitid(P_PID, (id_t)dead, NULL, WEXITED | WNOWAIT) == 0); /* a zombie */
    snprintf(name, sizeof name, DT_FILE_TEMPORARY "kept-1-%ld", (long)dead);
    put(name, old_text);
    dt_dir_sweep(folder, is_kept);
    CHECK_INT(unlink(path_of("%s", name)), -1);
    CHECK(waitpid(dead, NULL, 0) == dead);
    for (int pass = 0; pass < 2; pass++) {
        for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
            snprintf(name, sizeof name, "%s%ld%s", rows[i].before, (long)dead, rows[i].after);
            if (pass == 0) {
                put(name, old_text);
            } else {
                CHECK_INT(unlink(path_of("%s", name)), rows[i].goes ? -1 : 0);
            }
        }
        dt_dir_sweep(folder, is_kept);
    }
    put(DT_FILE_TEMPORARY "kept-1-1", old_text); /* its writer is alive */
    dt_dir_sweep(folder, is_kept);
    CHECK_INT(unlink(path_of(DT_FILE_TEMPORARY "kept-1-1")), 0);
    CHECK_INT(count_entries(), 1);
}

/* A link somebody else put where the temporary file goes must not be followed: the name is taken
 * over instead. */
static void test_symbolic_link_in_the_way(void)
{
    char name[64];
    put("victim", old_text);
    snprintf(name, sizeof name, DT_FILE_TEMPORARY "file-%ld", (long)getpid());
    CHECK_INT(symlink("victim", path_of("%s", name)), 0);
    CHECK_OK(write_new());
    CHECK_INT(content_of("victim"), 'o');
    CHECK_INT(content_of("file"), 'n');
    unlink(path_of("victim"));
    CHECK_INT(count_entries(), 1);
}

static void test_short_and_interrupted_writes(void)
{
    put("file", old_text);
    set_fault(FAULT_NONE, -1, 0);
    short_and_interrupted = true;
    CHECK_OK(write_new());
    short_and_interrupted = false;
    no_fault();
    CHECK_INT(content_of("file"), 'n');
    CHECK_INT(count_entries(), 1);
}

static int count_write_calls(void)
{
    put("file", old_text);
    set_fault(FAULT_NONE, -1, 0);
    CHECK_OK(write_new());
    const int n = n_calls;
    no_fault();
    return n;
}

/* The k-th system call fails, for all k: an error, the old file whole, nothing left behind. The two
 * exceptions are the last: when the folder's fsync fails the new file is already in place, and
 * closing the folder loses nothing. */
static void test_every_write_call_failing(void)
{
    static const int errors[] = {ENOSPC, EIO, EROFS, EDQUOT, EFBIG};
    const int n = count_write_calls(), n_descriptors = count_descriptors();
    CHECK_TEXT(
        call_log,
        "ooawwmscnsc"); /* durable before the rename, and the rename durable before the end */
    for (size_t e = 0; e < sizeof errors / sizeof errors[0]; e++) {
        for (int k = 0; k < n; k++) {
            put("file", old_text);
            set_fault(FAULT_ERROR, k, errors[e]);
            const enum dt_status status = write_new();
            CHECK_INT(status, k == n - 1 ? DT_OK : DT_IO);
            if (status != DT_OK) {
                CHECK_HAS(dt_error_text(), strerror(errors[e]));
                CHECK_HAS(dt_error_text(), folder);
            }
            no_fault();
            CHECK_INT(content_of("file"), k >= n - 2 ? 'n' : 'o');
            CHECK_INT(count_entries(), 1);
            CHECK_INT(count_descriptors(), n_descriptors);
        }
    }
}

/* The real thing: a limit that the kernel enforces. */
static void test_file_size_limit(void)
{
    put("file", old_text);
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        const struct rlimit limit = {sizeof new_text / 2, sizeof new_text / 2};
        signal(SIGXFSZ, SIG_IGN);
        CHECK_INT(setrlimit(RLIMIT_FSIZE, &limit), 0);
        CHECK_FAILS(write_new(), DT_IO, "File too large");
        _exit(0);
    }
    int state;
    CHECK_INT(waitpid(child, &state, 0), child);
    CHECK_INT(state, 0);
    CHECK_INT(content_of("file"), 'o');
    CHECK_INT(count_entries(), 1);
}

/* A file system that cannot reserve space is written to all the same. */
static void test_no_fallocate(void)
{
    put("file", old_text);
    set_fault(FAULT_ERROR, 2, EOPNOTSUPP);
    CHECK_OK(write_new());
    no_fault();
    CHECK_INT(content_of("file"), 'n');
}

/* Killed at the k-th call: old or new, never neither; and the next write of the same name succeeds.
 */
static void test_killed_at_every_call(void)
{
    const int n = count_write_calls();
    for (int k = 0; k < n; k++) {
        put("file", old_text);
        const pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            set_fault(FAULT_KILL_BEFORE, k, 0);
            write_new();
            _exit(1);
        }
        int state;
        CHECK_INT(waitpid(child, &state, 0), child);
        CHECK(WIFSIGNALED(state) && WTERMSIG(state) == SIGKILL);
        CHECK_INT(content_of("file"), k >= n - 2 ? 'n' : 'o');
        CHECK(count_entries() <= 2);
        CHECK_OK(write_new());
        CHECK_INT(content_of("file"), 'n');
        char name[64];
        snprintf(name, sizeof name, DT_FILE_TEMPORARY "file-%ld", (long)child);
        unlink(path_of("%s", name));
        CHECK_INT(count_entries(), 1);
    }
}

/* ---- folders ---- */

static void test_creating_folders(void)
{
    CHECK_OK(dt_dir_create(path_of("a/b//c/")));
    CHECK_OK(dt_dir_create(path_of("a/b/c"))); /* again */
    put("a/b/c/file", "x");
    bool exists;
    CHECK_OK(dt_file_exists(path_of("a/b/c/file"), &exists));
    CHECK(exists);
    CHECK_OK(dt_file_exists(path_of("a/b/c/file/below"), &exists));
    CHECK(!exists);
    CHECK_FAILS(dt_dir_create(path_of("a/b/c/file")), DT_CANT_CREATE,
                "a/b/c/file: is in the way, and not a folder");
    CHECK_INT(dt_dir_create(path_of("a/b/c/file/below")), DT_CANT_CREATE);
    dt_error_clear();
    CHECK_INT(dt_dir_create(""), DT_CANT_CREATE);
    CHECK_FAILS(dt_dir_create("/proc/dtrain"), DT_CANT_CREATE,
                "/proc/dtrain: cannot create the folder: ");
    set_fault(FAULT_ERROR, 0, EROFS);
    CHECK_FAILS(dt_dir_create(path_of("new")), DT_CANT_CREATE, "Read-only file system");
    no_fault();
    unlink(path_of("a/b/c/file"));
    rmdir(path_of("a/b/c"));
    rmdir(path_of("a/b"));
    rmdir(path_of("a"));
}

int main(void)
{
    folder_open();
    test_writing();
    test_long_names();
    test_what_a_user_names();
    test_pipe();
    test_sweep();
    test_symbolic_link_in_the_way();
    test_short_and_interrupted_writes();
    test_every_write_call_failing();
    test_file_size_limit();
    test_no_fallocate();
    test_killed_at_every_call();
    test_creating_folders();
    unlink(path_of("file"));
    folder_close();
    return 0;
}
