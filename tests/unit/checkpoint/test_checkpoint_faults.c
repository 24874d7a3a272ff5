/* Saving on a failing disk: each system call in turn fails, falls short or lies, and no older
 * checkpoint is lost. */
#include <cjson/cJSON.h>
#include <dirent.h>
#include <sys/resource.h>

#include "tests/lib/checkpoint_sample.h"
#include "tests/lib/wrap.h"
#include "tests/unit/base/file_faults.h"

#define n_calls n_calls_of_memory /* file_faults.h has its own */
#include "tests/lib/failing.h"
#undef n_calls

static int opendir_error, readdir_error; /* that these calls give, always; 0: none */

WRAP(DIR *, opendir, const char *path)
{
    errno = opendir_error;
    return opendir_error != 0 ? NULL : __real_opendir(path);
}

WRAP(struct dirent *, readdir, DIR *stream)
{
    struct dirent *entry = readdir_error != 0 ? NULL : __real_readdir(stream);
    errno = readdir_error != 0 ? readdir_error : errno;
    return entry;
}

static void allocations_begin(long failing)
{
    n_calls_of_memory = 0;
    failing_call = failing;
}

static bool allocations_end(void)
{
    const bool failed = n_calls_of_memory >= failing_call;
    failing_call = 0;
    return failed;
}

static struct sample sample;

static enum dt_status save_second(void)
{
    char path[DT_CHECKPOINT_PATH_SIZE];
    sample.checkpoint.state.step = 2;
    return dt_checkpoint_save(folder, 1, &sample.model, &sample.checkpoint, path);
}

static const char first[] = "step-000000000001.safetensors";

/* Each call of a save fails in turn, with each errno: the file of the step before must live, and
 * nothing else may be left. */
static void test_failing_calls(void)
{
    const int errors[] = {ENOSPC, EIO, EDQUOT};
    int n_failed = 0;
    for (size_t e = 0; e < sizeof errors / sizeof errors[0]; e++) {
        bool reached = true;
        half_written = errors[e] == ENOSPC; /* the disk is full half-way through a write */
        for (int k = 0; reached; k++) {
            folder_open();
            sample_save(&sample, 1, 1);
            set_fault(FAULT_ERROR, k, errors[e]);
            const enum dt_status status = save_second();
            calls = real;
            reached = n_calls > k;
            n_failed += status != DT_OK;
            if (status != DT_OK) {
                CHECK_INT(status, DT_IO);
                CHECK(strlen(dt_error_text()) > 0);
                CHECK(exists(first));
                dt_error_clear();
            }
            CHECK_INT(count_entries(), exists(first) + exists("step-000000000002.safetensors"));
            const uint64_t step = sample_newest(&sample);
            CHECK(step == 2 || (step == 1 && status != DT_OK));
            sample_save(&sample, 3, 1); /* and the next save clears up */
            CHECK_INT(count_entries(), 1);
            folder_remove();
        }
    }
    CHECK(n_failed > 30); /* 3 errnos, and more than ten calls that matter */
}

static void test_file_size_limit(void)
{
    struct rlimit limit;
    signal(SIGXFSZ, SIG_IGN);
    CHECK_INT(getrlimit(RLIMIT_FSIZE, &limit), 0);
    const struct rlimit small = {.rlim_cur = 4096, .rlim_max = limit.rlim_max};
    CHECK_INT(setrlimit(RLIMIT_FSIZE, &small), 0);
    CHECK_FAILS(save_second(), DT_IO, "File too large");
    CHECK_INT(setrlimit(RLIMIT_FSIZE, &limit), 0);
    CHECK_HAS(dt_error_text(), "step-000000000002.safetensors");
}

/* A disk that says it wrote, and did not: found when the file is read back. */
static ssize_t lying_write(int fd, const void *bytes, size_t n_bytes)
{
    uint8_t *changed = temporary(n_bytes);
    memcpy(changed, bytes, n_bytes);
    changed[n_bytes / 2] ^= 4;
    return real.write(fd, changed, n_bytes);
}

static void test_read_back(void)
{
    calls.write = lying_write;
    CHECK_FAILS(save_second(), DT_IO, "damaged");
    calls = real;
}

/* Each allocation of a save, ours and cJSON's, fails in turn. */
static void test_no_memory(void)
{
    enum dt_status s = DT_NO_MEMORY;
    cJSON_InitHooks(&(cJSON_Hooks){.malloc_fn = json_malloc, .free_fn = free});
    for (long n = 1; s != DT_OK; n++) {
        allocations_begin(n);
        s = save_second();
        const bool failed = allocations_end();
        CHECK_MESSAGE(s == (failed ? DT_NO_MEMORY : DT_OK) && (failed || n > 20),
                      "allocation %ld: status %d, \"%s\"", n, (int)s, dt_error_text());
        dt_error_clear();
    }
    cJSON_InitHooks(NULL);
}

/* A folder that cannot be opened, or read to its end. */
static void test_folder(void)
{
    uint64_t *steps;
    size_t n_steps;
    opendir_error = EACCES;
    CHECK_FAILS(dt_checkpoint_list(folder, &steps, &n_steps), DT_NO_PERMISSION, folder);
    opendir_error = EMFILE;
    CHECK_FAILS(dt_checkpoint_list(folder, &steps, &n_steps), DT_IO, "Too many open files");
    opendir_error = 0;
    readdir_error = EIO;
    CHECK_FAILS(dt_checkpoint_list(folder, &steps, &n_steps), DT_IO, "cannot be read");
    readdir_error = 0;
}

int main(void)
{
    sample_open(4, 8, &sample);
    test_failing_calls();
    folder_open();
    sample_save(&sample, 1, 1);
    test_file_size_limit();
    test_read_back();
    test_folder();
    dt_error_clear();
    CHECK_INT(count_entries(), 1);
    CHECK_INT(sample_newest(&sample), 1);
    test_no_memory();
    folder_remove();
    sample_close(&sample);
    return 0;
}
