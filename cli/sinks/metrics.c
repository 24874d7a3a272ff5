/* metrics.jsonl, metrics.csv and summary.json: the rows of cli/sinks/fields.h. Losses and
 * accuracies come from counts summed over all ranks. A resumed run first takes out what came after
 * its checkpoint. */
#include "cli/sinks/fields.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "cli/output.h"

#define MAX_METRICS_BYTES ((size_t)1 << 30)

/* The position of a resumed run: later records are dropped. */
struct position {
    uint64_t step, n_epochs; /* done */
};

/* Drops a line that is no record of ours, such as a line that a crash cut short, or a line that is
 * too long. */
static enum dt_status keep_jsonl(const char *line, const struct position *at, bool *out)
{
    struct dt_json_fault fault = {.problem = "too long"};
    const size_t n = strlen(line);
    cJSON *record = n <= DT_METRICS_LINE_BYTES ? dt_json_parse(line, n, &fault) : NULL;
    if (record == NULL && fault.problem == NULL) {
        return dt_error(DT_NO_MEMORY, "out of memory for the records in metrics.jsonl");
    }
    const char *type = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(record, "type"));
    const cJSON *step = cJSON_GetObjectItemCaseSensitive(record, "step");
    bool keep = type != NULL && cJSON_IsNumber(step) && step->valuedouble <= (double)at->step;
    if (keep && strcmp(type, "epoch") == 0) {
        const cJSON *epoch = cJSON_GetObjectItemCaseSensitive(record, "epoch");
        keep = cJSON_IsNumber(epoch) && epoch->valuedouble <= (double)at->n_epochs;
    }
    cJSON_Delete(record);
    *out = keep;
    return DT_OK;
}

static enum dt_status keep_csv(const char *line, const struct position *at, bool *out)
{
    unsigned long long epoch, step;
    const bool row = sscanf(line, "%llu,%llu,", &epoch, &step) == 2,
               header = strncmp(line, "epoch,", 6) == 0;
    *out = row ? epoch <= at->n_epochs && step <= at->step : header;
    return DT_OK;
}

/* Says whether to keep a line, given the position of the run. */
typedef enum dt_status (*keep_fn)(const char *line, const struct position *at, bool *out);

/* Rewrites a file of lines without the records after the run's position. A last line that was cut
 * short goes, too, and so does a line with a NUL byte. */
static enum dt_status keep_until(const struct dt_run_dir *run, const char *name,
                                 const struct position *at, keep_fn keep)
{
    char path[DT_PATH_SIZE + 32];
    uint8_t *bytes = NULL;
    size_t n_bytes = 0, n_kept = 0;
    struct stat status;
    snprintf(path, sizeof path, "%s/%s", run->path, name);
    if (access(path, F_OK) != 0) {
        return DT_OK;
    }
    if (stat(path, &status) == 0 && status.st_size > 0) {
        DT_TRY(dt_file_read(path, MAX_METRICS_BYTES, &bytes, &n_bytes));
    }
    char *text = (char *)bytes, *end;
    enum dt_status s = DT_OK;
    for (char *line = text; s == DT_OK && line != NULL && line < text + n_bytes; line = end + 1) {
        bool kept = false;
        end = memchr(line, '\n', (size_t)(text + n_bytes - line));
        if (end == NULL) {
            break;
        }
        *end = '\0';
        s = strlen(line) == (size_t)(end - line) ? keep(line, at, &kept) : DT_OK;
        *end = '\n';
        if (kept) {
            const size_t n = (size_t)(end - line) + 1;
            memmove(text + n_kept, line, n);
            n_kept += n;
        }
    }
    const struct dt_file_part part = {text != NULL ? text : "", n_kept};
    s = s == DT_OK ? dt_file_write_atomic(run->path, name, &part, 1) : s;
    free(bytes);
    return s;
}

static enum dt_status open_append(const struct dt_run_dir *run, const char *name, FILE **out)
{
    int fd = -1;
    DT_TRY(dt_run_dir_open_file(run, name, O_WRONLY | O_APPEND, &fd));
    *out = fdopen(fd, "a");
    if (*out == NULL) {
        close(fd);
        return dt_error(DT_NO_MEMORY, "%s/%s: out of memory", run->path, name);
    }
    fseek(*out, 0, SEEK_END); /* as fopen does, so that ftell is 0 for an empty file */
    return DT_OK;
}

static enum dt_status open_records(const struct dt_sinks *sinks, const char *name, keep_fn keep,
                                   FILE **out)
{
    const struct position at = {sinks->folder.step, sinks->folder.n_epochs};
    DT_TRY(keep_until(sinks->folder.dir, name, &at, keep));
    return open_append(sinks->folder.dir, name, out);
}

void dt_metrics_close(struct dt_metrics_files *files)
{
    if (files->jsonl != NULL) {
        fclose(files->jsonl);
    }
    if (files->csv != NULL) {
        fclose(files->csv);
    }
    files->jsonl = files->csv = NULL;
}

/* A full disk must not end a run that can still compute; it is reported once. */
static void note_failure(struct dt_metrics_files *files, const char *name, int error)
{
    if (!files->failed) {
        files->failed = true;
        dt_text_print(stderr,
                      "dtrain: warning: %s: %s (training continues, records may be missing)", name,
                      strerror(error));
    }
}

static void flush(struct dt_metrics_files *files, FILE *file, const char *name)
{
    if (fflush(file) != 0 || ferror(file)) {
        note_failure(files, name, errno);
    }
    clearerr(file);
}

/* A line of metrics.jsonl. */
static void put_line(struct dt_sinks *sinks, const char *type, dt_record_put_fn put,
                     const struct dt_event *event)
{
    struct dt_json json = {.out = sinks->files.jsonl};
    dt_json_begin(&json, NULL, '{');
    dt_json_text(&json, "type", type);
    put(&json, sinks, event);
    dt_json_end(&json, '{');
    fputc('\n', json.out);
    flush(&sinks->files, json.out, "metrics.jsonl");
}

/* Finds the seconds of earlier starts, including steps whose records are removed and which are
 * repeated now. */
static enum dt_status find_seconds_before(struct dt_sinks *sinks)
{
    double seconds = 0;
    if (sinks->folder.step > 0 && sinks->reader != NULL) {
        DT_TRY(sinks->reader->seconds(sinks->folder.dir->path, &seconds));
    }
    sinks->seconds_before = isfinite(seconds) ? round(1e3 * seconds) * 1e-3 : 0;
    return DT_OK;
}

/* Repeats at the end that records are missing: the warning came long before. */
static enum dt_status check_records(const struct dt_sinks *sinks, enum dt_status status)
{
    if (status != DT_OK || !sinks->files.failed) {
        return DT_OK;
    }
    return dt_error(
        DT_IO,
        "%s: records are missing from the metrics, as the warning above says (the result is whole)",
        sinks->folder.dir->path);
}

enum dt_status dt_metrics_jsonl_take(struct dt_sinks *sinks, const struct dt_event *event)
{
    if (event->kind == DT_EVENT_FOLDER) {
        DT_TRY(find_seconds_before(sinks));
        return open_records(sinks, "metrics.jsonl", keep_jsonl, &sinks->files.jsonl);
    }
    if (event->kind == DT_EVENT_RUN) {
        put_line(sinks, "run", dt_run_put, event);
    }
    if (event->kind == DT_EVENT_END) {
        return check_records(sinks, event->status);
    }
    if (event->kind == DT_EVENT_STEP && event->step->recorded) {
        put_line(sinks, "step", dt_step_put, event);
    }
    if (event->kind == DT_EVENT_AUDIT) {
        put_line(sinks, "audit", dt_audit_put, event);
    }
    if (event->kind == DT_EVENT_EPOCH) {
        put_line(sinks, "epoch", dt_epoch_put, event);
    }
    return DT_OK;
}

/* ---- metrics.csv */

static bool is_column(const struct dt_sinks *sinks, int field)
{
    const enum dt_csv csv = dt_epoch_fields.rows[field].csv;
    const bool validates = sinks->folder.config->data.validation > 0;
    return csv == DT_CSV_YES || csv == (validates ? DT_CSV_VALIDATED : DT_CSV_TESTED) ||
           (csv == DT_CSV_R2 && dt_config_has_r2(sinks->folder.config));
}

static void put_header(const struct dt_sinks *sinks, FILE *csv)
{
    const char *separator = "";
    for (int i = 0; i < dt_epoch_fields.n; i++) {
        if (is_column(sinks, i)) {
            fprintf(csv, "%s%s", separator, dt_epoch_fields.rows[i].name);
            separator = ",";
        }
    }
    fputc('\n', csv);
}

static enum dt_status open_table(struct dt_sinks *sinks)
{
    FILE **csv = &sinks->files.csv;
    DT_TRY(open_records(sinks, "metrics.csv", keep_csv, csv));
    if (ftell(*csv) == 0) {
        put_header(sinks, *csv);
    }
    return DT_OK;
}

static void put_row(struct dt_sinks *sinks, const struct dt_event *event)
{
    struct dt_field_value values[DT_MAX_FIELDS];
    const char *separator = "";
    dt_fields_read(&dt_epoch_fields, sinks, event, values);
    for (int i = 0; i < dt_epoch_fields.n; i++) {
        if (is_column(sinks, i)) {
            fputs(separator, sinks->files.csv);
            if (values[i].is_number) { /* else the cell is empty */
                dt_json_digits(sinks->files.csv, values[i].digits, values[i].number);
            }
            separator = ",";
        }
    }
    fputc('\n', sinks->files.csv);
    flush(&sinks->files, sinks->files.csv, "metrics.csv");
}

enum dt_status dt_metrics_csv_take(struct dt_sinks *sinks, const struct dt_event *event)
{
    if (event->kind == DT_EVENT_FOLDER && event->status == DT_OK) {
        return open_table(sinks);
    }
    if (event->kind == DT_EVENT_EPOCH) {
        put_row(sinks, event);
    }
    return DT_OK;
}

/* ---- summary.json */

/* A dt_file_put_fn. */
struct summary {
    const struct dt_sinks *sinks;
    const struct dt_event *event;
};
static void put_summary(FILE *out, const void *context)
{
    const struct summary *summary = context;
    struct dt_json json = {.out = out, .in_lines = true};
    dt_json_begin(&json, NULL, '{');
    dt_end_put(&json, summary->sinks, summary->event);
    dt_json_end(&json, '{');
}

enum dt_status dt_summary_take(struct dt_sinks *sinks, const struct dt_event *event)
{
    const bool ended = event->kind == DT_EVENT_END || event->kind == DT_EVENT_FAULT;
    return ended ? dt_output_write(sinks->folder.dir, "summary.json", put_summary,
                                   &(struct summary){sinks, event})
                 : DT_OK;
}
