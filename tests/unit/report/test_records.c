/* Records: their fields, written without memory, whole or not there, and failures said once. */
#include <cjson/cJSON.h>

#include "base/json.h"
#include "cli/sinks/fields.h"
#include "tests/lib/folder.h"
#include "train/hooks/timeline_hook.h"

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
static struct dt_config config = {.name = "test"};
static const struct dt_fit lines[2] = {{1, 2}, {3, 4}};
static const struct dt_run_event start = {
    .global_batch = 64,
    .averaging = {.allreduce = "ring", .traffic = {.known = true, .messages = 6, .bytes = 48}}};
static const struct dt_phase_times times[2] = {{{1, 2}}, {{3, 4}}};
static const struct dt_end_event end = {.test = {.loss_sum = 1, .n_samples = 2},
                                        .checkpoint = "",
                                        .allreduce = "ring",
                                        .lines = lines,
                                        .rank0 = {{1, 2}},
                                        .ranks = times,
                                        .n_timed_steps = 3,
                                        .memory = {.host_peak = 1}};

static struct dt_sinks new_sinks(void)
{
    return (struct dt_sinks){.folder = {.config = &config, .dir = &run, .world_size = 2}};
}

/* metrics.jsonl of a run that begins; false: the record could not be written. */
static bool record_start(enum dt_status expected)
{
    struct dt_sinks sinks = new_sinks();
    CHECK_INT(dt_metrics_jsonl_take(
                  &sinks, &(struct dt_event){.kind = DT_EVENT_FOLDER, .folder = &sinks.folder}),
              expected);
    if (expected == DT_OK) {
        dt_metrics_jsonl_take(&sinks, &(struct dt_event){.kind = DT_EVENT_RUN, .run = &start});
    }
    const bool failed = sinks.files.failed;
    const enum dt_status s =
        dt_metrics_jsonl_take(&sinks, &(struct dt_event){.kind = DT_EVENT_END, .end = &end});
    CHECK_INT(s, failed ? DT_IO : DT_OK);
    dt_error_clear();
    dt_sinks_close(&sinks);
    return !failed;
}

static enum dt_status record_end(void)
{
    struct dt_sinks sinks = new_sinks();
    return dt_summary_take(&sinks, &(struct dt_event){.kind = DT_EVENT_END, .end = &end});
}

/* A record is written without memory: none is asked for here. */
static void test_run_record(void)
{
    fail_allocation(0);
    CHECK(record_start(DT_OK));
    CHECK_INT(n_allocations, 0);
    cJSON_InitHooks(NULL);
    const char *whole = text_of(path_of("metrics.jsonl"));
    CHECK_HAS(whole, "\"version\":");
    CHECK_HAS(whole, ",\"allreduce\":\"ring\",\"messages\":6,\"bytes_sent\":48,\"messages_between_"
                     "hosts\":0,\"bytes_between_hosts\":0}\n");
}

/* Only numbers go into the table and, where there are some, to TensorBoard; no name appears twice.
 * `set`: the fields of an epoch that are there. */
static void check_fields(const struct dt_fields *fields, const struct dt_event *event,
                         enum dt_csv set)
{
    struct dt_field_value values[DT_MAX_FIELDS];
    const struct dt_sinks sinks = new_sinks();
    dt_fields_read(fields, &sinks, event, values);
    for (int i = 0; i < fields->n; i++) {
        const struct dt_field *f = &fields->rows[i];
        const bool conditional = f->csv == DT_CSV_TESTED || f->csv == DT_CSV_VALIDATED,
                   r2 = strstr(f->name, "r2") != NULL, /* these samples have classes */
            none = values[i].text == NULL && values[i].put == NULL;
        CHECK(!r2 || !values[i].is_number);
        CHECK(values[i].is_number || conditional || r2 || (!f->csv && (none || f->tag[0] == '\0')));
        CHECK(!conditional || values[i].is_number == (f->csv == set));
        CHECK(f->meaning[0] != '\0');
        for (int k = 0; k < i; k++) {
            CHECK(strcmp(f->name, fields->rows[k].name) != 0);
        }
    }
}

static void test_fields(void)
{
    static const struct dt_step_event step = {.step = 1};
    static const struct dt_epoch_event tested = {.test = {.n_samples = 1}},
                                       validated = {.validation = {.n_samples = 1}}, neither;
    check_fields(&dt_step_fields, &(struct dt_event){.kind = DT_EVENT_STEP, .step = &step},
                 DT_CSV_NO);
    check_fields(&dt_epoch_fields, &(struct dt_event){.kind = DT_EVENT_EPOCH, .epoch = &tested},
                 DT_CSV_TESTED);
    check_fields(&dt_epoch_fields, &(struct dt_event){.kind = DT_EVENT_EPOCH, .epoch = &neither},
                 DT_CSV_NO);
    check_fields(&dt_epoch_fields, &(struct dt_event){.kind = DT_EVENT_EPOCH, .epoch = &validated},
                 DT_CSV_VALIDATED);
}

static void test_kept_records(void)
{
    const char *before = text_of(path_of("metrics.jsonl"));
    fail_allocation(3);
    record_start(DT_NO_MEMORY);
    cJSON_InitHooks(NULL);
    const char *after = text_of(path_of("metrics.jsonl"));
    CHECK_TEXT(after, before);
}

/* Where one sink fails, those after it see that, and all get the event. */
static void test_failures_travel(void)
{
    struct dt_sinks sinks = new_sinks();
    sinks.files.failed = true;
    CHECK_INT(dt_sinks_emit(&sinks, &(struct dt_event){.kind = DT_EVENT_END, .end = &end}), DT_IO);
    const char *text = text_of(path_of("summary.json"));
    CHECK_HAS(text, "\"exit_code\":\t74,");
    CHECK_HAS(text, "records are missing");
    CHECK_OK(dt_sinks_emit(
        &sinks, &(struct dt_event){.kind = DT_EVENT_END, .status = DT_STOPPED, .end = &end}));
    dt_error_clear();
}

/* A trace that cannot be written is said by who shows things, and comes up again at the end. */
static void test_trace_fails(void)
{
    static const struct dt_model model = {.n_blocks = 0};
    static const struct dt_timeline_rank rank = {.n_spans = 0};
    const struct dt_timeline_event timeline = {
        .first = 1, .last = 2, .model = &model, .n_ranks = 1, .ranks = &rank};
    struct dt_run_dir gone = {.path = "/tmp/dtrain-no-such-folder", .lock = -1};
    struct dt_sinks sinks = new_sinks();
    sinks.folder.dir = &gone;
    CHECK_INT(dt_timeline_take(
                  &sinks, &(struct dt_event){.kind = DT_EVENT_TIMELINE, .timeline = &timeline}),
              DT_IO);
    CHECK_FAILS(dt_timeline_take(&sinks, &(struct dt_event){.kind = DT_EVENT_END, .end = &end}),
                DT_IO, "trace.json could not be written, as the warning above says");
}

static bool is_json(const char *text)
{
    struct dt_json_fault fault;
    cJSON *tree = dt_json_parse(text, strlen(text), &fault);
    cJSON_Delete(tree);
    return tree != NULL;
}

/* Names of hosts, and what people type, may be in any encoding. */
static void test_bytes_that_are_no_utf8(void)
{
    static const struct dt_rank_info ranks[2] = {{.host = "n\xF6rd", .device = "\xC3"},
                                                 {.host = "s\xC3\xBC"
                                                          "d",
                                                  .device = "cpu"}};
    struct dt_run_event begun = start;
    struct dt_sinks sinks = new_sinks();
    begun.ranks = ranks;
    sinks.command = "dtrain --run \xFF\xFE";
    unlink(path_of("metrics.jsonl"));
    CHECK_OK(dt_metrics_jsonl_take(
        &sinks, &(struct dt_event){.kind = DT_EVENT_FOLDER, .folder = &sinks.folder}));
    CHECK_OK(
        dt_metrics_jsonl_take(&sinks, &(struct dt_event){.kind = DT_EVENT_RUN, .run = &begun}));
    dt_sinks_close(&sinks);
    const char *text = text_of(path_of("metrics.jsonl"));
    CHECK(is_json(text));
    CHECK_HAS(text, "\"n\xEF\xBF\xBDrd\"");
    CHECK_HAS(text, "\"s\xC3\xBC"
                    "d\"");
    CHECK_HAS(text, "\"dtrain --run \xEF\xBF\xBD\xEF\xBF\xBD\"");
    (void)dt_error(DT_IO, "\xE2\x82");
    CHECK_OK(record_end());
    dt_error_clear();
    text = text_of(path_of("summary.json"));
    CHECK(is_json(text));
}

static void test_summary(void)
{
    CHECK_OK(record_end());
    const char *whole = text_of(path_of("summary.json"));
    CHECK_HAS(whole, "\"intercept\":\t4");
    CHECK_HAS(whole, "\"version\":");
}

int main(void)
{
    folder_open();
    strcpy(run.path, folder);
    test_run_record();
    test_fields();
    test_kept_records();
    test_summary();
    test_failures_travel();
    test_trace_fails();
    test_bytes_that_are_no_utf8();
    unlink(path_of("metrics.jsonl"));
    unlink(path_of("metrics.csv"));
    unlink(path_of("summary.json"));
    folder_close();
    return 0;
}
