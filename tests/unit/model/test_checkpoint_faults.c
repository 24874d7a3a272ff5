/* Saving on a failing disk: each system call in turn fails, falls short or lies, and no older
 * checkpoint is lost. */
#include <sys/resource.h>

#include "tests/lib/checkpoint_sample.h"
#include "tests/unit/base/file_faults.h"

static struct sample sample; /* shared; every test leaves it as it was */

/* No checkpoint may be reported as damaged. */
static void never_damaged(void *context, const char *text)
{
    (void)context;
    CHECK_FAIL("damaged: %s", text);
}

static const struct dt_checkpoint_judge judge = {.on_damaged = never_damaged};

/* Each call of a save fails in turn, with each errno: the file of the step before must live, and
 * nothing else may be left. */
static void test_failing_calls(void)
{
    const int errors[] = {ENOSPC, EIO, EDQUOT};
    char dir[256], path[DT_CHECKPOINT_PATH_SIZE];
    int n_failed = 0;
    for (size_t e = 0; e < sizeof errors / sizeof errors[0]; e++) {
        bool reached = true;
        half_written = errors[e] == ENOSPC; /* the disk is full half-way through a write */
        for (int k = 0; reached; k++) {
            sample_dir_make(dir);
            sample_save(&sample, dir, 1, 1, path);
            set_fault(FAULT_ERROR, k, errors[e]);
            sample.checkpoint.state.step = 2;
            const enum dt_status status =
                dt_checkpoint_save(dir, 1, &sample.model, &sample.checkpoint, path);
            calls = real;
            reached = n_calls > k;
            n_failed += status != DT_OK;
            if (status != DT_OK) {
                CHECK_INT(status, DT_IO);
                CHECK(strlen(dt_error_text()) > 0);
                CHECK(sample_exists(dir, "step-000000000001.safetensors"));
                dt_error_clear();
            }
            CHECK_INT(sample_count_files(dir),
                      sample_exists(dir, "step-000000000001.safetensors") +
                          sample_exists(dir, "step-000000000002.safetensors"));
            struct dt_checkpoint_file file;
            CHECK_OK(dt_checkpoint_newest(dir, &judge, path, &file));
            CHECK(file.state.step == 2 || (file.state.step == 1 && status != DT_OK));
            dt_checkpoint_close(&file);
            sample_save(&sample, dir, 3, 1, path); /* and the next save clears up */
            CHECK_INT(sample_count_files(dir), 1);
            sample_dir_remove(dir);
        }
    }
    CHECK(n_failed > 30); /* 3 errnos, and more than ten calls that matter */
}

static void test_file_size_limit(void)
{
    char dir[256], path[DT_CHECKPOINT_PATH_SIZE];
    struct rlimit limit;
    sample_dir_make(dir);
    sample_save(&sample, dir, 1, 1, path);
    signal(SIGXFSZ, SIG_IGN);
    CHECK_INT(getrlimit(RLIMIT_FSIZE, &limit), 0);
    const struct rlimit small = {.rlim_cur = 4096, .rlim_max = limit.rlim_max};
    CHECK_INT(setrlimit(RLIMIT_FSIZE, &small), 0);
    sample.checkpoint.state.step = 2;
    CHECK_INT(dt_checkpoint_save(dir, 1, &sample.model, &sample.checkpoint, path), DT_IO);
    CHECK_INT(setrlimit(RLIMIT_FSIZE, &limit), 0);
    CHECK_HAS(dt_error_text(), "step-000000000002.safetensors");
    CHECK_HAS(dt_error_text(), "File too large");
    dt_error_clear();
    CHECK_INT(sample_count_files(dir), 1);
    struct dt_checkpoint_file file;
    CHECK_OK(dt_checkpoint_newest(dir, &judge, path, &file));
    CHECK_INT(file.state.step, 1);
    dt_checkpoint_close(&file);
    sample_dir_remove(dir);
}

/* A disk that says it wrote, and did not: found when the file is read back. */
static ssize_t lying_write(int fd, const void *bytes, size_t n_bytes)
{
    uint8_t *changed = malloc(n_bytes);
    CHECK(changed != NULL);
    memcpy(changed, bytes, n_bytes);
    changed[n_bytes / 2] ^= 4;
    const ssize_t n = real.write(fd, changed, n_bytes);
    free(changed);
    return n;
}

static void test_read_back(void)
{
    char dir[256], path[DT_CHECKPOINT_PATH_SIZE];
    sample_dir_make(dir);
    sample_save(&sample, dir, 1, 1, path);
    calls.write = lying_write;
    sample.checkpoint.state.step = 2;
    CHECK_INT(dt_checkpoint_save(dir, 1, &sample.model, &sample.checkpoint, path), DT_IO);
    calls = real;
    CHECK_HAS(dt_error_text(), "damaged");
    dt_error_clear();
    CHECK(sample_exists(dir, "step-000000000001.safetensors"));
    CHECK_INT(sample_count_files(dir), 1);
    sample_dir_remove(dir);
}

int main(void)
{
    sample_open(4, 8, &sample);
    test_failing_calls();
    test_file_size_limit();
    test_read_back();
    sample_close(&sample);
    return 0;
}
