/* Saving on a failing disk: each system call in turn fails, falls short or lies, and no older
 * checkpoint is lost. */
#include <sys/resource.h>

#include "tests/lib/checkpoint_sample.h"
#include "tests/unit/base/file_faults.h"

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

int main(void)
{
    sample_open(4, 8, &sample);
    test_failing_calls();
    folder_open();
    sample_save(&sample, 1, 1);
    test_file_size_limit();
    test_read_back();
    dt_error_clear();
    CHECK_INT(count_entries(), 1);
    CHECK_INT(sample_newest(&sample), 1);
    folder_remove();
    sample_close(&sample);
    return 0;
}
