/* A run's folder while its start may still be refused, and beside other starts: what another
 * process does between two calls of this one is done here in the middle of flock and mkdir. */
#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/resource.h>

#include "tests/lib/folder.h"
#include "tests/lib/wrap.h"
#include "train/save/run_dir.h"

typedef void (*act_fn)(const char *path);
static act_fn before_flock, before_mkdir; /* once */
static const char *mkdir_of;              /* of the path that begins so */

static void act(act_fn *what, const char *path)
{
    const act_fn now = *what;
    *what = NULL;
    if (now != NULL) {
        now(path);
    }
}

/* Errors that these calls give, always; 0: none. */
static int flock_error, mkdir_error, pwrite_error, fsync_error;

static int error_of(int error)
{
    errno = error;
    return -1;
}

WRAP(int, flock, int fd, int operation)
{
    act(&before_flock, "run");
    return flock_error != 0 ? error_of(flock_error) : __real_flock(fd, operation);
}

WRAP(ssize_t, pwrite, int fd, const void *bytes, size_t n, off_t at)
{
    return pwrite_error != 0 ? error_of(pwrite_error) : __real_pwrite(fd, bytes, n, at);
}

WRAP(int, fsync, int fd)
{
    return fsync_error != 0 ? error_of(fsync_error) : __real_fsync(fd);
}

WRAP(int, mkdir, const char *path, mode_t mode)
{
    const bool meant = mkdir_of != NULL && strncmp(path, mkdir_of, strlen(mkdir_of)) == 0;
    if (meant) {
        act(&before_mkdir, path);
    }
    return mkdir_error != 0 && meant ? error_of(mkdir_error) : __real_mkdir(path, mode);
}

static struct dt_comm *comm;
static struct dt_world world = {.size = 1, .local_size = 1, .host = "here"};
static struct dt_run_dir run;

static enum dt_status open_run(const char *wanted, bool resume)
{
    return dt_run_dir_open(&world, wanted, "words", resume, &run);
}

/* The names below the test's folder, in their order; each entry's kind is not told. */
static const char *tree(void)
{
    char *text = (char *)temporary(2048);
    FILE *names = popen("find . -mindepth 1 | sort | cut -c 3- | paste -sd' '", "r");
    CHECK(names != NULL);
    text[fread(text, 1, 2047, names)] = '\0';
    text[strcspn(text, "\n")] = '\0';
    CHECK_INT(pclose(names), 0);
    return text;
}

static void clear(void)
{
    CHECK_INT(system("rm -rf ./*"), 0);
}

/* ---- a start that is refused leaves what was there */

static void test_refused(void)
{
    static const struct {
        const char *before, *wanted, *after; /* before: a command */
    } cases[] = {
        {"true", "run", ""},
        {"true", "a/b/run", ""},
        {"true", "./a//run/", ""},
        {"true", NULL, ""},
        {"mkdir runs", NULL, "runs"},
        {"mkdir -p runs/words", NULL, "runs runs/words"},
        {"mkdir a", "a/b/run", "a"},
        {"mkdir run", "run", "run run/run.lock"},
        {"mkdir -p run/checkpoints", "run", "run run/checkpoints run/run.lock"},
        {"mkdir run; touch run/notes", "run", "run run/notes run/run.lock"},
        {"mkdir -p run/checkpoints; touch run/.tmp-config.json-1999999999", "run",
         "run run/.tmp-config.json-1999999999 run/checkpoints run/run.lock"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        CHECK_INT(system(cases[i].before), 0);
        CHECK_OK(open_run(cases[i].wanted, true));
        CHECK(access(run.checkpoints, W_OK) == 0);
        dt_run_dir_close(&run);
        CHECK_TEXT(tree(), cases[i].after);
        clear();
    }
}

static void test_begun(void)
{
    CHECK_INT(system("mkdir -p a/run; touch a/run/.tmp-config.json-1999999999"), 0);
    CHECK_OK(open_run("a/run", false));
    dt_run_dir_begin(&run);
    dt_run_dir_close(&run);
    CHECK_TEXT(tree(), "a a/run a/run/checkpoints a/run/run.lock");
    clear();
}

/* One that fails while it begins takes along what it has begun, but no other file. */
static void test_half_begun(void)
{
    CHECK_OK(open_run("run", false));
    CHECK_INT(system("touch run/metrics.jsonl run/metrics.csv"), 0);
    dt_run_dir_close(&run);
    CHECK_TEXT(tree(), "");
    CHECK_OK(open_run("run", false));
    CHECK_INT(system("touch run/metrics.jsonl run/notes"), 0);
    dt_run_dir_close(&run);
    CHECK_TEXT(tree(), "run run/notes");
    clear();
}

/* ---- other starts */

static void run_there(const char *path)
{
    (void)path;
    CHECK_INT(system("mkdir -p run/checkpoints && touch run/config.json run/summary.json"), 0);
}

static void remove_there(const char *path)
{
    (void)path;
    CHECK_INT(system("rm -r run"), 0);
}

static void replace_there(const char *path)
{
    remove_there(path);
    CHECK_INT(system("mkdir run && touch run/run.lock"), 0);
}

static void make_there(const char *path)
{
    CHECK(__real_mkdir(path, 0777) == 0);
}

static void remove_parent(const char *path)
{
    (void)path;
    CHECK_INT(system("rmdir runs/words runs"), 0);
}

/* While it waits for the lock. */
static void test_lock_comes_late(void)
{
    static const struct {
        act_fn act;
        const char *error, *after;
    } cases[] = {
        {run_there, "run: already holds a run (choose another --run",
         "run run/checkpoints run/config.json run/run.lock run/summary.json"},
        {remove_there, "run: another process has removed it (start again)", ""},
        {replace_there, "run: another process has removed it (start again)", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        before_flock = cases[i].act;
        CHECK_FAILS(open_run("run", false), DT_CANT_CREATE, cases[i].error);
        CHECK(cases[i].after == NULL || strcmp(tree(), cases[i].after) == 0);
        clear();
    }
}

/* A resume that came late, and is refused for another reason, leaves the other's lock, too. */
static void test_late_resume(void)
{
    before_flock = run_there;
    CHECK_OK(open_run("run", true));
    dt_run_dir_close(&run);
    CHECK_TEXT(tree(), "run run/checkpoints run/config.json run/run.lock run/summary.json");
    clear();
}

static void test_held(void)
{
    struct dt_run_dir first;
    CHECK_OK(dt_run_dir_open(&world, "run", "words", false, &first));
    CHECK_FAILS(open_run("run", false), DT_CANT_CREATE, "run: in use by pid ");
    CHECK_TEXT(tree(), "run run/checkpoints run/run.lock");
    dt_run_dir_close(&first);
    CHECK_TEXT(tree(), "");
}

/* The name that dtrain chooses is the one that it has made. */
static void test_default(void)
{
    static const struct {
        act_fn act;
        const char *of;
        bool second;
    } cases[] = {{NULL, NULL, false},
                 {make_there, "runs/words/", true},
                 {remove_parent, "runs/words/", true},
                 {make_there, "runs/words", false},
                 {make_there, "runs", false}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        before_mkdir = cases[i].act;
        mkdir_of = cases[i].of;
        CHECK_OK(open_run(NULL, false));
        CHECK(before_mkdir == NULL);
        CHECK_INT(strcmp(run.path + strlen(run.path) - 2, "-2") == 0, cases[i].second);
        dt_run_dir_begin(&run);
        dt_run_dir_close(&run);
        CHECK(access(run.checkpoints, W_OK) == 0);
        clear();
    }
    mkdir_of = NULL;
}

/* Calls that fail: each start ends with 73 and leaves nothing. */
static void test_failing_calls(void)
{
    static const struct {
        const char *wanted;
        int *call, error;
        int flock_error;
        const char *words;
    } cases[] = {{NULL, &mkdir_error, EACCES, 0, "Permission denied"},
                 {"run", &pwrite_error, ENOSPC, 0, "run.lock: No space left"},
                 {"run", &pwrite_error, 0, EIO, "run.lock: Input/output error"},
                 {"run", &fsync_error, EIO, ENOLCK, "run.lock: Input/output error"}};
    mkdir_of = "runs/words/";
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        *cases[i].call = cases[i].error;
        flock_error = cases[i].flock_error;
        CHECK_FAILS(open_run(cases[i].wanted, false), DT_CANT_CREATE, cases[i].words);
        *cases[i].call = flock_error = 0;
        dt_run_dir_close(&run);
        clear();
    }
    mkdir_of = NULL;
    CHECK_INT(system("touch runs"), 0);
    CHECK_FAILS(open_run(NULL, false), DT_CANT_CREATE, "runs");
    clear();
    CHECK_INT(system("mkdir run && touch run/run.lock"), 0);
    const int fd = open("run/run.lock", O_RDWR);
    CHECK(fd >= 0 && __real_flock(fd, LOCK_EX) == 0);
    CHECK_FAILS(open_run("run", false), DT_CANT_CREATE, "in use by another process");
    close(fd);
    clear();
}

/* No descriptor is left for the lock, or for what stands in for flock. */
static void test_no_descriptor(void)
{
    struct rlimit limit;
    CHECK_INT(getrlimit(RLIMIT_NOFILE, &limit), 0);
    const int next = dup(0);
    close(next);
    for (int n = 0; n < 2; n++) {
        const struct rlimit few = {.rlim_cur = (rlim_t)(next + n), .rlim_max = limit.rlim_max};
        CHECK_INT(system("mkdir -p run/checkpoints"), 0);
        CHECK_INT(setrlimit(RLIMIT_NOFILE, &few), 0);
        flock_error = ENOLCK;
        CHECK_FAILS(open_run("run", false), DT_CANT_CREATE, "Too many open files");
        flock_error = 0;
        CHECK_INT(setrlimit(RLIMIT_NOFILE, &limit), 0);
        dt_run_dir_close(&run);
        clear();
    }
}

int main(void)
{
    folder_open();
    CHECK(chdir(folder) == 0);
    CHECK_OK(dt_comm_open_self(&comm));
    world.comm = comm;
    test_refused();
    test_begun();
    test_half_begun();
    test_lock_comes_late();
    test_late_resume();
    test_held();
    test_default();
    test_failing_calls();
    test_no_descriptor();
    dt_comm_close(comm);
    free(world.reports);
    folder_remove();
    return 0;
}
