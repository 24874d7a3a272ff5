/* Records for which there is no memory: whole or not there, never with keys missing, and said once. */
#include <cjson/cJSON.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/file.h"
#include "check.h"
#include "cli/report.h"

static int n_allocations, fail_at;

static void *allocate(size_t n_bytes)
{
    return n_allocations++ == fail_at ? NULL : malloc(n_bytes);
}

static void fail_allocation(int at)
{
    cJSON_InitHooks(&(cJSON_Hooks){.malloc_fn = allocate, .free_fn = free});
    n_allocations = 0;
    fail_at = at;
}

static struct dt_run_dir run = {.lock = -1};
static struct dt_world world = {.size = 2};
static struct dt_line lines[2] = {{1, 2}, {3, 4}};
static struct dt_trainer trainer = {.world = &world, .seconds = {1, 2}, .n_timed_steps = 3};
static const struct dt_outcome outcome = {.test = {.loss_sum = 1, .n_samples = 2}, .lines = lines, .memory = {.host_peak = 1}};

static void path_of(const char *name, char path[DT_PATH_SIZE + 32])
{
    snprintf(path, DT_PATH_SIZE + 32, "%s/%s", run.path, name);
}

/* The text of a file, "" of an empty or missing one; the caller frees it. */
static char *text_of(const char *name)
{
    char path[DT_PATH_SIZE + 32];
    uint8_t *bytes = NULL;
    size_t n;
    path_of(name, path);
    if (dt_file_read(path, 1 << 20, &bytes, &n) != DT_OK) {
        dt_error_clear();
        bytes = calloc(1, 1);
    }
    return (char *)bytes;
}

static void remove_file(const char *name)
{
    char path[DT_PATH_SIZE + 32];
    path_of(name, path);
    unlink(path);
}

/* False once nothing failed any more. */
static bool write_run_record(int at, const char *whole)
{
    struct dt_metrics_files files;
    remove_file("metrics.jsonl");
    CHECK_INT(dt_metrics_open(&run, 0, 0, &files), DT_OK);
    fail_allocation(at);
    dt_metrics_run(&files, &trainer.config, &trainer.model, 2, 0, 64);
    const bool failed = n_allocations > fail_at;
    cJSON_InitHooks(NULL);
    CHECK(files.failed == failed);
    dt_metrics_close(&files);
    char *text = text_of("metrics.jsonl");
    CHECK(strcmp(text, failed ? "" : whole) == 0);
    free(text);
    return failed;
}

static void test_run_record(void)
{
    struct dt_metrics_files files;
    CHECK_INT(dt_metrics_open(&run, 0, 0, &files), DT_OK);
    dt_metrics_run(&files, &trainer.config, &trainer.model, 2, 0, 64);
    dt_metrics_close(&files);
    char *whole = text_of("metrics.jsonl");
    CHECK_HAS(whole, "\"version\":");
    int n = 0;
    while (write_run_record(n, whole)) {
        n++;
    }
    CHECK(n > 14);
    free(whole);
}

static void test_kept_records(void)
{
    struct dt_metrics_files files;
    char *before = text_of("metrics.jsonl");
    fail_allocation(3);
    CHECK_INT(dt_metrics_open(&run, 0, 0, &files), DT_NO_MEMORY);
    cJSON_InitHooks(NULL);
    dt_error_clear();
    char *after = text_of("metrics.jsonl");
    CHECK(strcmp(before, after) == 0);
    free(before);
    free(after);
}

static bool write_summary(int at, const char *whole)
{
    remove_file("summary.json");
    fail_allocation(at);
    const enum dt_status s = dt_report_summary(&trainer, &run, &outcome, DT_OK);
    const bool failed = n_allocations > fail_at;
    cJSON_InitHooks(NULL);
    CHECK_INT(s, failed ? DT_IO : DT_OK);
    dt_error_clear();
    char *text = text_of("summary.json");
    CHECK(strcmp(text, failed ? "" : whole) == 0);
    free(text);
    return failed;
}

static void test_summary(void)
{
    CHECK_INT(dt_report_summary(&trainer, &run, &outcome, DT_OK), DT_OK);
    char *whole = text_of("summary.json");
    CHECK_HAS(whole, "\"intercept\":\t4");
    CHECK_HAS(whole, "\"version\":");
    int n = 0;
    while (write_summary(n, whole)) {
        n++;
    }
    CHECK(n > 30);
    free(whole);
}

int main(void)
{
    snprintf(run.path, sizeof run.path, "/tmp/dtrain-records.XXXXXX");
    CHECK(mkdtemp(run.path) != NULL);
    snprintf(trainer.config.name, sizeof trainer.config.name, "test");
    test_run_record();
    test_kept_records();
    test_summary();
    remove_file("metrics.jsonl");
    remove_file("metrics.csv");
    remove_file("summary.json");
    CHECK_INT(rmdir(run.path), 0);
    return 0;
}
