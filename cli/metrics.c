#include "cli/metrics.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "cli/version.h"

#define MAX_METRICS_BYTES ((size_t)1 << 30)
#define CSV_HEADER "epoch,step,train_loss,train_accuracy,test_loss,test_accuracy,images_per_s,lr,world_size\n"

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
    const bool row = sscanf(line, "%llu,%llu,", &epoch, &step) == 2, header = strncmp(line, "epoch,", 6) == 0;
    *out = row ? epoch <= at->n_epochs && step <= at->step : header;
    return DT_OK;
}

/* Rewrites a file of lines without those of what the run has still to do. */
static enum dt_status keep_until(const struct dt_run_dir *run, const char *name, const struct position *at,
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

enum dt_status dt_metrics_open(const struct dt_run_dir *run, uint64_t step, uint64_t n_epochs, struct dt_metrics_files *out)
{
    const struct position at = {step, n_epochs};
    *out = (struct dt_metrics_files){0};
    DT_TRY(keep_until(run, "metrics.jsonl", &at, keep_jsonl));
    DT_TRY(keep_until(run, "metrics.csv", &at, keep_csv));
    enum dt_status s = open_append(run, "metrics.jsonl", &out->jsonl);
    if (s == DT_OK) {
        s = open_append(run, "metrics.csv", &out->csv);
    }
    if (s == DT_OK && ftell(out->csv) == 0) {
        fputs(CSV_HEADER, out->csv);
    }
    if (s != DT_OK) {
        dt_metrics_close(out);
    }
    return s;
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
        dt_text_print(stderr, "dtrain: warning: %s: %s (training goes on, records may be missing)", name, strerror(error));
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

void dt_metrics_run(struct dt_metrics_files *files, const struct dt_config *config, const struct dt_model *model, int world_size,
                    uint64_t step, size_t global_batch)
{
    if (files->jsonl == NULL) {
        return;
    }
    cJSON *r = cJSON_CreateObject();
    const bool complete = cJSON_AddStringToObject(r, "type", "run") != NULL &&
                          cJSON_AddNumberToObject(r, "step", (double)step) != NULL &&
                          cJSON_AddStringToObject(r, "config", config->name) != NULL &&
                          cJSON_AddNumberToObject(r, "world_size", world_size) != NULL &&
                          cJSON_AddNumberToObject(r, "global_batch", (double)global_batch) != NULL &&
                          cJSON_AddNumberToObject(r, "parameters", (double)model->n_parameters) != NULL &&
                          cJSON_AddStringToObject(r, "version", dt_version) != NULL;
    char *text = complete ? cJSON_PrintUnformatted(r) : NULL;
    if (text != NULL) {
        fprintf(files->jsonl, "%s\n", text);
    } else {
        note_failure(files, "metrics.jsonl", ENOMEM);
    }
    cJSON_free(text);
    cJSON_Delete(r);
    flush(files, files->jsonl, "metrics.jsonl");
}

void dt_metrics_step(struct dt_metrics_files *files, const struct dt_step_record *r)
{
    if (files->jsonl == NULL) {
        return;
    }
    fprintf(files->jsonl, "{\"type\":\"step\",\"step\":%llu,\"epoch\":%llu", (unsigned long long)r->step,
            (unsigned long long)r->epoch);
    put_number(files->jsonl, "loss", dt_metrics_loss(&r->train));
    put_number(files->jsonl, "accuracy", dt_metrics_accuracy(&r->train));
    put_number(files->jsonl, "lr", r->lr);
    put_number(files->jsonl, "images_per_s", r->images_per_s);
    fputs("}\n", files->jsonl);
    flush(files, files->jsonl, "metrics.jsonl");
}

void dt_metrics_epoch(struct dt_metrics_files *files, const struct dt_epoch_record *r)
{
    if (files->jsonl == NULL) {
        return;
    }
    const double none = nan("");
    const double train_accuracy = r->classifies ? dt_metrics_accuracy(&r->train) : none;
    const double test_accuracy = r->classifies ? dt_metrics_accuracy(&r->test) : none;
    FILE *f = files->jsonl;
    fprintf(f, "{\"type\":\"epoch\",\"epoch\":%llu,\"step\":%llu", (unsigned long long)r->epoch, (unsigned long long)r->step);
    put_number(f, "train_loss", dt_metrics_loss(&r->train));
    put_number(f, "train_accuracy", train_accuracy);
    put_number(f, "test_loss", dt_metrics_loss(&r->test));
    put_number(f, "test_accuracy", test_accuracy);
    put_number(f, "images_per_s", r->images_per_s);
    put_number(f, "lr", r->lr);
    fprintf(f, ",\"world_size\":%d}\n", r->world_size);
    flush(files, f, "metrics.jsonl");
    fprintf(files->csv, "%llu,%llu,%.9g,%.9g,%.9g,%.9g,%.9g,%.9g,%d\n", (unsigned long long)r->epoch, (unsigned long long)r->step,
            dt_metrics_loss(&r->train), train_accuracy, dt_metrics_loss(&r->test), test_accuracy, r->images_per_s, r->lr,
            r->world_size);
    flush(files, files->csv, "metrics.csv");
}
