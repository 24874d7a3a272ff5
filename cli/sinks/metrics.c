#include "cli/sinks/sinks.h"
#include "cli/sinks/staleness.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "base/version.h"
#include "cli/sinks/commit.h"
#include "cli/sinks/json.h"
#include "cli/sinks/record.h"
#include "train/watch/inject.h"

#define MAX_METRICS_BYTES ((size_t)1 << 30)
#define CSV_HEADER \
    "epoch,step,train_loss,train_accuracy,test_loss,test_accuracy,images_per_s,lr,world_size\n"

double dt_metrics_loss(const struct dt_metrics *m)
{
    return m->loss_sum / m->n_samples;
}

double dt_metrics_accuracy(const struct dt_metrics *m)
{
    return m->n_correct / m->n_samples;
}

/* Where a run that goes on stands: what its records may tell of. */
struct position {
    uint64_t step, n_epochs; /* done */
};

/* A line that is no record of ours, such as one cut short by a crash, is not kept. */
static enum dt_status keep_jsonl(const char *line, const struct position *at, bool *out)
{
    struct dt_json_fault fault;
    cJSON *record = cJSON_Parse(line);
    if (record == NULL && dt_json_check(line, strlen(line), &fault)) {
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

/* Rewrites a file of lines without those of what the run has still to do. */
static enum dt_status
keep_until(const struct dt_run_dir *run, const char *name, const struct position *at,
           enum dt_status (*keep)(const char *, const struct position *, bool *))
{
    char path[DT_PATH_SIZE + 32];
    snprintf(path, sizeof path, "%s/%s", run->path, name);
    if (access(path, F_OK) != 0) {
        return DT_OK;
    }
    uint8_t *bytes = NULL;
    size_t n_bytes = 0, n_kept = 0;
    struct stat status;
    if (stat(path, &status) == 0 && status.st_size > 0) {
        DT_TRY(dt_file_read(path, MAX_METRICS_BYTES, &bytes, &n_bytes));
    }
    char *text = (char *)bytes;
    enum dt_status s = DT_OK;
    for (char *line = text; line != NULL && line < text + n_bytes;) {
        char *end = memchr(line, '\n', (size_t)(text + n_bytes - line));
        if (end == NULL) {
            break; /* the last line was cut short */
        }
        *end = '\0';
        bool kept = false;
        s = keep(line, at, &kept);
        if (s != DT_OK) {
            break;
        }
        if (kept) {
            const size_t n = (size_t)(end - line);
            memmove(text + n_kept, line, n);
            text[n_kept + n] = '\n';
            n_kept += n + 1;
        }
        line = end + 1;
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
    fseek(*out, 0, SEEK_END); /* where fopen begins, so that an empty file shows */
    return DT_OK;
}

static enum dt_status
open_records(const struct dt_sinks *sinks, const struct dt_run_event *run, const char *name,
             enum dt_status (*keep)(const char *, const struct position *, bool *), FILE **out)
{
    const struct position at = {run->step, run->n_epochs};
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

/* A full disk must not end a run that can still compute; it is said once. */
static void note_failure(struct dt_metrics_files *files, const char *name, int error)
{
    if (!files->failed) {
        files->failed = true;
        dt_text_print(stderr, "dtrain: warning: %s: %s (training goes on, records may be missing)",
                      name, strerror(error));
    }
}

static void flush(struct dt_metrics_files *files, FILE *file, const char *name)
{
    if (fflush(file) != 0 || ferror(file)) {
        note_failure(files, name, errno);
    }
    clearerr(file);
}

/* JSON has no NaN; null says the same. */
static void put_number(FILE *file, const char *key, double value)
{
    if (isfinite(value)) {
        fprintf(file, ",\"%s\":%.9g", key, value);
    } else {
        fprintf(file, ",\"%s\":null", key);
    }
}

static void put_traffic(FILE *file, const char *allreduce, const struct dt_step_traffic *traffic)
{
    fprintf(file, ",\"allreduce\":\"%s\"", allreduce);
    put_number(file, "messages", traffic->known ? traffic->messages : (double)NAN);
    put_number(file, "bytes_sent", traffic->known ? traffic->bytes : (double)NAN);
    put_number(file, "messages_between_hosts",
               traffic->known ? traffic->messages_between : (double)NAN);
    put_number(file, "bytes_between_hosts", traffic->known ? traffic->bytes_between : (double)NAN);
}

/* How many gradients were 0, 1, 2, ... steps old. */
static void put_staleness(FILE *file, const struct dt_staleness *staleness)
{
    const int n = dt_staleness_n_bins(staleness);
    for (int i = 0; i < n; i++) {
        fprintf(file, "%s%llu", i == 0 ? ",\"staleness\":[" : ",",
                (unsigned long long)staleness->counts[i]);
    }
    fputs(n > 0 ? "]" : "", file);
}

static bool add_faults(cJSON *record, const struct dt_faults *faults)
{
    cJSON *texts = faults != NULL ? cJSON_AddArrayToObject(record, "injected") : NULL;
    bool complete = faults == NULL || texts != NULL;
    for (int i = 0; faults != NULL && i < faults->n && complete; i++) {
        complete = cJSON_AddItemToArray(texts, cJSON_CreateString(faults->faults[i].text));
    }
    return complete;
}

static bool add_text_if(cJSON *object, const char *key, const char *text)
{
    return text == NULL || text[0] == '\0' || cJSON_AddStringToObject(object, key, text) != NULL;
}

static bool add_rank(cJSON *ranks, const struct dt_rank_info *rank)
{
    cJSON *r = cJSON_CreateObject();
    const bool complete = cJSON_AddStringToObject(r, "host", rank->host) != NULL &&
                          cJSON_AddNumberToObject(r, "local_rank", rank->local_rank) != NULL &&
                          cJSON_AddStringToObject(r, "device", rank->device) != NULL &&
                          cJSON_AddNumberToObject(r, "threads", rank->n_threads) != NULL &&
                          cJSON_AddNumberToObject(r, "samples", (double)rank->n_samples) != NULL &&
                          cJSON_AddItemToArray(ranks, r);
    if (!complete) {
        cJSON_Delete(r);
    }
    return complete;
}

/* Who trains, as the roster has it. */
static bool add_ranks(cJSON *record, const struct dt_run_event *run, int world_size)
{
    cJSON *ranks = run->ranks != NULL ? cJSON_AddArrayToObject(record, "ranks") : NULL;
    bool complete = run->ranks == NULL || ranks != NULL;
    for (int r = 0; ranks != NULL && r < world_size && complete; r++) {
        complete = add_rank(ranks, &run->ranks[r]);
    }
    return complete;
}

/* What decides the steps and their rate. */
static bool add_arithmetic(cJSON *r, const struct dt_run_event *run)
{
    return cJSON_AddNumberToObject(r, "workers", run->n_workers) != NULL &&
           cJSON_AddNumberToObject(r, "steps_per_epoch", (double)run->steps_per_epoch) != NULL &&
           cJSON_AddNumberToObject(r, "train_samples", (double)run->n_train) != NULL &&
           cJSON_AddNumberToObject(r, "test_samples", (double)run->n_test) != NULL &&
           cJSON_AddNumberToObject(r, "lr", run->lr) != NULL &&
           cJSON_AddNumberToObject(r, "lr_scale", run->lr_scale) != NULL;
}

/* The beginning of a run's record, whose name may need escapes; the caller frees it with
 * cJSON_free. NULL: out of memory. */
static char *run_text(const struct dt_sinks *sinks, const struct dt_run_event *run)
{
    cJSON *r = cJSON_CreateObject();
    const bool complete =
        cJSON_AddStringToObject(r, "type", "run") != NULL &&
        cJSON_AddNumberToObject(r, "step", (double)run->step) != NULL &&
        cJSON_AddNumberToObject(r, "last_step", (double)run->last_step) != NULL &&
        cJSON_AddNumberToObject(r, "seconds_before", sinks->seconds_before) != NULL &&
        cJSON_AddStringToObject(r, "config", sinks->folder.config->name) != NULL &&
        cJSON_AddNumberToObject(r, "world_size", sinks->folder.world_size) != NULL &&
        cJSON_AddNumberToObject(r, "global_batch", (double)run->global_batch) != NULL &&
        cJSON_AddNumberToObject(r, "parameters", (double)run->n_parameters) != NULL &&
        cJSON_AddStringToObject(r, "version", dt_version) != NULL &&
        cJSON_AddStringToObject(r, "commit", dt_commit) != NULL &&
        cJSON_AddNumberToObject(r, "started", sinks->started_s) != NULL &&
        add_text_if(r, "command", sinks->command) &&
        add_text_if(r, "resumed_from", run->resumed_from) && add_arithmetic(r, run) &&
        add_ranks(r, run, sinks->folder.world_size) && add_faults(r, run->faults);
    char *text = complete ? dt_json_print(r, false) : NULL;
    cJSON_Delete(r);
    return text;
}

/* What the starts before have taken, also of steps that are done again: their records go. */
static enum dt_status find_seconds_before(struct dt_sinks *sinks, const struct dt_run_event *run)
{
    struct dt_record before;
    if (run->resumed_from == NULL || run->resumed_from[0] == '\0') {
        return DT_OK;
    }
    DT_TRY(dt_record_open(sinks->folder.dir->path, &before));
    const double seconds = dt_record_seconds(&before);
    sinks->seconds_before = isfinite(seconds) ? round(1e3 * seconds) * 1e-3 : 0;
    dt_record_close(&before);
    return DT_OK;
}

/* Since this start. */
static void put_seconds(const struct dt_sinks *sinks)
{
    fprintf(sinks->files.jsonl, ",\"seconds\":%.3f}\n", dt_clock_s() - sinks->clock_s);
}

static enum dt_status record_run(struct dt_sinks *sinks, const struct dt_run_event *run)
{
    struct dt_metrics_files *files = &sinks->files;
    DT_TRY(find_seconds_before(sinks, run));
    DT_TRY(open_records(sinks, run, "metrics.jsonl", keep_jsonl, &files->jsonl));
    char *text = run_text(sinks, run);
    if (text != NULL) {
        fprintf(files->jsonl, "%.*s", (int)strlen(text) - 1, text); /* without its brace */
        put_traffic(files->jsonl, run->averaging.allreduce, &run->averaging.traffic);
        fputs("}\n", files->jsonl);
    } else {
        note_failure(files, "metrics.jsonl", ENOMEM);
    }
    cJSON_free(text);
    flush(files, files->jsonl, "metrics.jsonl");
    return DT_OK;
}

static void record_step(struct dt_sinks *sinks, const struct dt_step_event *r)
{
    FILE *f = sinks->files.jsonl;
    if (!r->recorded) {
        return;
    }
    fprintf(f, "{\"type\":\"step\",\"step\":%llu,\"epoch\":%llu", (unsigned long long)r->step,
            (unsigned long long)r->epoch);
    put_number(f, "loss", dt_metrics_loss(&r->train));
    put_number(f, "accuracy", dt_metrics_accuracy(&r->train));
    put_number(f, "lr", r->lr);
    put_number(f, "grad_norm", r->grad_norm);
    put_number(f, "images_per_s", r->images_per_s);
    put_seconds(sinks);
    flush(&sinks->files, f, "metrics.jsonl");
}

static double accuracy_of(const struct dt_sinks *sinks, const struct dt_metrics *m)
{
    return dt_sinks_classify(sinks) ? dt_metrics_accuracy(m) : nan("");
}

/* Milliseconds of a step, as the summary has them at the end. */
static void put_phases(FILE *f, const struct dt_phase_times *times, uint64_t n_steps)
{
#define NAME(constant, name) name,
    static const char *const names[] = {DT_PHASE_LIST(NAME)};
    const char *before = ",\"rank0_ms_per_step\":{";
    for (int p = 0; p < DT_N_PHASES && n_steps > 0; p++) {
        if (times->s[p] > 0) {
            fprintf(f, "%s\"%s\":%.6g", before, names[p], 1e3 * times->s[p] / (double)n_steps);
            before = ",";
        }
    }
    fputs(before[1] == '\0' ? "}" : "", f);
}

static void record_epoch(struct dt_sinks *sinks, const struct dt_epoch_event *r)
{
    FILE *f = sinks->files.jsonl;
    fprintf(f, "{\"type\":\"epoch\",\"epoch\":%llu,\"step\":%llu", (unsigned long long)r->epoch,
            (unsigned long long)r->step);
    put_number(f, "train_loss", dt_metrics_loss(&r->train));
    put_number(f, "train_accuracy", accuracy_of(sinks, &r->train));
    put_number(f, "test_loss", dt_metrics_loss(&r->test));
    put_number(f, "test_accuracy", accuracy_of(sinks, &r->test));
    put_number(f, "images_per_s", r->images_per_s);
    put_number(f, "lr", r->lr);
    fprintf(f, ",\"world_size\":%d", sinks->folder.world_size);
    put_traffic(f, r->allreduce, &r->traffic);
    put_staleness(f, &r->staleness);
    put_phases(f, &r->rank0, r->n_timed_steps);
    put_seconds(sinks);
    flush(&sinks->files, f, "metrics.jsonl");
}

/* The warning about missing records is long past. */
static enum dt_status check_records(const struct dt_sinks *sinks, enum dt_status status)
{
    if (status != DT_OK || !sinks->files.failed) {
        return DT_OK;
    }
    return dt_error(DT_IO,
                    "%s: records are missing from the metrics, as was said (the result is whole)",
                    sinks->folder.dir->path);
}

enum dt_status dt_metrics_jsonl_take(struct dt_sinks *sinks, const struct dt_event *event)
{
    switch (event->kind) {
    case DT_EVENT_RUN:
        return record_run(sinks, event->run);
    case DT_EVENT_STEP:
        record_step(sinks, event->step);
        return DT_OK;
    case DT_EVENT_EPOCH:
        record_epoch(sinks, event->epoch);
        return DT_OK;
    case DT_EVENT_END:
        return check_records(sinks, event->status);
    case DT_EVENT_FOLDER:
    case DT_EVENT_WARNING:
    case DT_EVENT_SAVE:
    case DT_EVENT_TIMELINE:
    case DT_EVENT_STOP:
    case DT_EVENT_DIFFERENCE:
    case DT_EVENT_FAULT:
    case DT_EVENT_RESULT:
        break;
    }
    return DT_OK;
}

static enum dt_status open_table(struct dt_sinks *sinks, const struct dt_run_event *run)
{
    FILE **csv = &sinks->files.csv;
    DT_TRY(open_records(sinks, run, "metrics.csv", keep_csv, csv));
    if (ftell(*csv) == 0) {
        fputs(CSV_HEADER, *csv);
    }
    return DT_OK;
}

static void put_row(struct dt_sinks *sinks, const struct dt_epoch_event *r)
{
    fprintf(sinks->files.csv, "%llu,%llu,%.9g,%.9g,%.9g,%.9g,%.9g,%.9g,%d\n",
            (unsigned long long)r->epoch, (unsigned long long)r->step, dt_metrics_loss(&r->train),
            accuracy_of(sinks, &r->train), dt_metrics_loss(&r->test), accuracy_of(sinks, &r->test),
            r->images_per_s, r->lr, sinks->folder.world_size);
    flush(&sinks->files, sinks->files.csv, "metrics.csv");
}

enum dt_status dt_metrics_csv_take(struct dt_sinks *sinks, const struct dt_event *event)
{
    if (event->kind == DT_EVENT_RUN && event->status == DT_OK) {
        return open_table(sinks, event->run);
    }
    if (event->kind == DT_EVENT_EPOCH) {
        put_row(sinks, event->epoch);
    }
    return DT_OK;
}
