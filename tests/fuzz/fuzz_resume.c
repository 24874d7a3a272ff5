/* Any bytes as the files that a resumed run finds in its folder: run.lock, which names its
 * owner and the step, and metrics.jsonl and metrics.csv, of which it keeps the records up to its
 * checkpoint. Never a crash, a leak or a read out of bounds; an owner's name in an error without
 * control characters; what is kept are lines of the file in their order, of metrics.jsonl only
 * records up to the checkpoint, and a second time all of them are kept.
 *
 * An input is a file's text, a line "@", the next one's text, and so on. */
#include <cjson/cJSON.h>
#include <fcntl.h>
#include <math.h>
#include <sys/file.h>

#include "base/json.h"
#include "base/text.h"
#include "report/record.h"
#include "tests/fuzz/fuzz.h"
#include "tests/unit/base/file_calls.h"
#include "train/save/run_dir.h"

#define STEP 3 /* of the checkpoint, in the second epoch */

static const char config_text[] =
    "{\"data\": {\"format\": \"synthetic\"}, \"model\": {\"input\": [1, 8, 8], \"layers\": ["
    "{\"type\": \"flatten\"}, {\"type\": \"dense\", \"units\": 4}]}}";

struct text {
    char *bytes; /* n and a 0 */
    size_t n;
};

static struct dt_run_dir dir = {.path = "/tmp/dtrain-fuzz-XXXXXX"};
static struct dt_world world = {.size = 1};

static int done(int fd)
{
    (void)fd;
    return 0;
}

static int open_file(const char *name, int flags)
{
    char path[64];
    snprintf(path, sizeof path, "%.32s/%s", dir.path, name);
    const int fd = open(path, flags | O_CLOEXEC, 0600);
    require(fd >= 0);
    return fd;
}

static void write_file(const char *name, const char *bytes, size_t n)
{
    const int fd = open_file(name, O_CREAT | O_WRONLY | O_TRUNC);
    require(write(fd, bytes, n) == (ssize_t)n && close(fd) == 0);
}

static struct text read_file(const char *name)
{
    const int fd = open_file(name, O_RDONLY);
    const off_t n = lseek(fd, 0, SEEK_END);
    struct text text = {.bytes = calloc((size_t)n + 1, 1), .n = (size_t)n};
    require(text.bytes != NULL && pread(fd, text.bytes, text.n, 0) == n && close(fd) == 0);
    return text;
}

static void remove_folder(void)
{
    dt_run_dir_remove(&dir);
}

static void open_all(void)
{
    calls.fsync = done; /* no disk has to keep anything */
    dt_error_format = dt_text_format;
    require(mkdtemp(dir.path) != NULL && atexit(remove_folder) == 0);
    require(dt_comm_open_self(&world.comm) == DT_OK);
    write_file("config.json", config_text, sizeof config_text - 1);
}

/* Writes the files of the input. */
static void write_files(const char *text, size_t n)
{
    static const char *const names[] = {"run.lock", "metrics.jsonl", "metrics.csv"};
    const char *const end = text + n;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const char *stop = memmem(text, (size_t)(end - text), "\n@\n", 3);
        write_file(names[i], text, (size_t)((stop != NULL ? stop + 1 : end) - text));
        text = stop != NULL ? stop + 3 : end;
    }
}

/* ---- run.lock */

static void check_owner(const char *text)
{
    require(text[0] != '\0');
    for (; *text != '\0'; text++) {
        require((unsigned char)*text >= ' ' && *text != 0x7f);
    }
}

/* While another process holds it. */
static void check_lock(void)
{
    struct dt_run_dir second;
    struct dt_record record;
    const int fd = open_file("run.lock", O_RDWR);
    require(flock(fd, LOCK_EX | LOCK_NB) == 0);
    require(dt_record_open(dir.path, &record) == DT_OK);
    require(isnan(record.noted_step) || record.noted_step >= 0);
    dt_record_close(&record);
    require(dt_run_dir_open(&world, dir.path, "fuzz", true, &second) == DT_CANT_CREATE);
    check_owner(dt_error_text());
    dt_error_clear();
    close(fd);
}

/* ---- the records */

static void check_record(const char *line, size_t n)
{
    struct dt_json_fault fault;
    cJSON *record = dt_json_parse(line, n, &fault);
    require(record != NULL);
    require(dt_record_number(record, "step") <= STEP);
    cJSON_Delete(record);
}

/* The lines of `after` are lines of `before`, in their order. */
static void check_lines(struct text before, struct text after, bool are_records)
{
    const char *from = before.bytes, *end = from + before.n;
    for (const char *line = after.bytes, *next; line < after.bytes + after.n; line = next) {
        next = memchr(line, '\n', (size_t)(after.bytes + after.n - line));
        require(next != NULL);
        next++;
        const size_t n = (size_t)(next - line);
        while (from < end && ((size_t)(end - from) < n || memcmp(from, line, n) != 0)) {
            const char *stop = memchr(from, '\n', (size_t)(end - from));
            from = stop != NULL ? stop + 1 : end;
        }
        require(from < end);
        from += n;
        if (are_records) {
            check_record(line, n - 1);
        }
    }
}

typedef enum dt_status (*take_fn)(struct dt_sinks *sinks, const struct dt_event *event);

/* What a new start keeps of a file. */
static struct text go_on(const char *name, take_fn take)
{
    static struct dt_config config;
    const struct dt_run_event run = {.averaging.allreduce = "ring"};
    const struct dt_folder_event folder = {
        .config = &config, .dir = &dir, .world_size = 1, .step = STEP, .n_epochs = 1};
    struct dt_sinks sinks = {.folder = folder};
    require(take(&sinks, &(struct dt_event){.kind = DT_EVENT_FOLDER, .folder = &folder}) == DT_OK);
    require(take(&sinks, &(struct dt_event){.kind = DT_EVENT_RUN, .run = &run}) == DT_OK);
    dt_metrics_close(&sinks.files);
    struct text kept = read_file(name);
    if (take == dt_metrics_jsonl_take) { /* the start's own line */
        char *last = memrchr(kept.bytes, '\n', kept.n - 1);
        kept.n = last != NULL ? (size_t)(last + 1 - kept.bytes) : 0;
    }
    return kept;
}

/* A head alone, which is written where there is none. */
static bool is_new_table(struct text kept)
{
    return strncmp(kept.bytes, "epoch,", 6) == 0 &&
           memchr(kept.bytes, '\n', kept.n) == kept.bytes + kept.n - 1;
}

static void check_records(const char *name, take_fn take)
{
    const bool are_records = take == dt_metrics_jsonl_take;
    const struct text before = read_file(name), kept = go_on(name, take);
    if (!is_new_table(kept)) {
        check_lines(before, kept, are_records);
    }
    write_file(name, kept.bytes, kept.n);
    const struct text again = go_on(name, take);
    require(kept.n == 0 || (again.n == kept.n && memcmp(again.bytes, kept.bytes, kept.n) == 0));
    free(before.bytes);
    free(kept.bytes);
    free(again.bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes)
{
    if (world.comm == NULL) {
        open_all();
    }
    write_files((const char *)bytes, n_bytes);
    check_lock();
    check_records("metrics.jsonl", dt_metrics_jsonl_take);
    check_records("metrics.csv", dt_metrics_csv_take);
    return 0;
}
