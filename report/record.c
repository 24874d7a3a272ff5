#include "report/record.h"

#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "cli/config/config.h"
#include "train/save/run_lock.h"

#define MAX_METRICS_BYTES ((size_t)1 << 30)
#define LARGEST 1e30

/* ---- numbers and texts of JSON */

double dt_record_number(const cJSON *object, const char *key)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
    return cJSON_IsNumber(item) && fabs(item->valuedouble) <= LARGEST ? item->valuedouble
                                                                      : (double)NAN;
}

const char *dt_record_text(const cJSON *object, const char *key)
{
    const char *text = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, key));
    return text != NULL ? text : "";
}

/* ---- tables */

/* The cells of a new row. */
static enum dt_status new_row(struct dt_record_table *table, double **out)
{
    if (table->n == table->room) {
        const size_t room = table->room > 0 ? 2 * table->room : 256;
        double *cells = realloc(table->cells, room * table->n_columns * sizeof *cells);
        if (cells == NULL) {
            return dt_error(DT_NO_MEMORY, "no memory for the records of a run");
        }
        table->cells = cells;
        table->room = room;
    }
    *out = table->cells + table->n++ * table->n_columns;
    return DT_OK;
}

static enum dt_status add_row(struct dt_record_table *table, const cJSON *record,
                              const struct dt_field *fields)
{
    double *cells = NULL;
    DT_TRY(new_row(table, &cells));
    for (size_t c = 0; c < table->n_columns; c++) {
        cells[c] = dt_record_number(record, fields[c].name);
    }
    return DT_OK;
}

/* Steps are what everything is drawn over. */
static bool goes_on(const struct dt_record_table *table, const cJSON *record)
{
    const double step = dt_record_number(record, "step"),
                 least = table->n > 0 ? dt_record_cell(table, table->n - 1, table->step) : -1;
    return step > least && step < 1e15;
}

double dt_record_last(const struct dt_record_table *table, int column)
{
    size_t row = table->n;
    while (row > 0 && isnan(dt_record_cell(table, row - 1, column))) {
        row--;
    }
    return row > 0 ? dt_record_cell(table, row - 1, column) : (double)NAN;
}

/* ---- files of a run's folder */

static enum dt_status read_file(const char *folder, const char *name, size_t most, char **text,
                                size_t *n)
{
    char path[DT_PATH_SIZE + 32];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    *text = NULL;
    const bool waiting = dt_error_text()[0] != '\0'; /* the error that ended the run */
    const enum dt_status s = dt_file_read(path, most, (uint8_t **)text, n);
    if (s == DT_OK || s == DT_NO_MEMORY) {
        return s;
    }
    if (!waiting) {
        dt_error_clear();
    }
    return DT_OK;
}

static enum dt_status parse(const char *text, size_t n, cJSON **out)
{
    struct dt_json_fault fault;
    *out = dt_json_parse(text, n, &fault);
    return *out != NULL || fault.problem != NULL
               ? DT_OK
               : dt_error(DT_NO_MEMORY, "no memory for the records of a run");
}

enum dt_status dt_record_read(const char *folder, const char *name, size_t most, cJSON **out)
{
    char *text;
    size_t n = 0;
    *out = NULL;
    DT_TRY(read_file(folder, name, most, &text, &n));
    const enum dt_status s = text != NULL ? parse(text, n, out) : DT_OK;
    free(text);
    return s;
}

/* ---- metrics.jsonl */

/* Keeps it, and what a start before it had done. */
static enum dt_status take_start(struct dt_record *r, cJSON **line)
{
    r->started = r->n_starts++ == 0 ? dt_record_number(*line, "started") : r->started;
    if (r->start != NULL && goes_on(&r->restarts, *line)) {
        double *cells = NULL;
        DT_TRY(new_row(&r->restarts, &cells));
        cells[DT_RESTART_STEP] = dt_record_number(*line, "step");
        cells[DT_RESTART_BATCH] = dt_record_number(r->start, "global_batch");
    }
    cJSON_Delete(r->start);
    r->start = *line;
    *line = NULL;
    return DT_OK;
}

static enum dt_status take_epoch(struct dt_record *r, cJSON **line)
{
    DT_TRY(add_row(&r->epochs, *line, dt_epoch_fields.rows));
    cJSON_Delete(r->last_epoch);
    r->last_epoch = *line;
    *line = NULL;
    return DT_OK;
}

static enum dt_status take_line(struct dt_record *r, const char *text, size_t n)
{
    cJSON *line = NULL;
    DT_TRY(n <= DT_METRICS_LINE_BYTES ? parse(text, n, &line) : DT_OK);
    if (line == NULL) {
        r->n_strange++;
        return DT_OK;
    }
    const char *type = dt_record_text(line, "type");
    enum dt_status s = DT_OK;
    if (strcmp(type, "run") == 0) {
        s = take_start(r, &line);
    } else if (strcmp(type, "epoch") == 0 && goes_on(&r->epochs, line)) {
        s = take_epoch(r, &line);
    } else if (strcmp(type, "step") == 0 && goes_on(&r->steps, line)) {
        s = add_row(&r->steps, line, dt_step_fields.rows);
    } else if (strcmp(type, "audit") != 0) { /* for scripts/check-samples */
        r->n_strange++;
    }
    cJSON_Delete(line);
    return s;
}

/* A last line without an end was being written when the program was killed, or still is. */
static enum dt_status take_lines(struct dt_record *r, const char *text, size_t n_bytes)
{
    const char *end = text + n_bytes;
    for (const char *line = text, *next; (next = memchr(line, '\n', (size_t)(end - line))) != NULL;
         line = next + 1) {
        DT_TRY(take_line(r, line, (size_t)(next - line)));
    }
    return DT_OK;
}

static enum dt_status read_metrics(struct dt_record *r)
{
    char *text;
    size_t n = 0;
    DT_TRY(read_file(r->path, "metrics.jsonl", MAX_METRICS_BYTES, &text, &n));
    const enum dt_status s = text != NULL ? take_lines(r, text, n) : DT_OK;
    free(text);
    return s;
}

/* A run that was started again has the summary of the time before until it ends. */
static bool is_of_start(const cJSON *summary, const cJSON *start)
{
    const double began = dt_record_number(start, "started");
    return cJSON_IsObject(summary) &&
           (isnan(began) || began == dt_record_number(summary, "started"));
}

static enum dt_status read_summary(struct dt_record *r)
{
    cJSON *summary;
    DT_TRY(dt_record_read(r->path, "summary.json", DT_RECORD_FILE_BYTES, &summary));
    if (is_of_start(summary, r->start)) {
        r->summary = summary;
    } else {
        cJSON_Delete(summary);
    }
    return DT_OK;
}

/* If rank 0 wrote no summary, the rank that had the error wrote status.json (train/hooks/guard.h).
 */
static enum dt_status read_end(struct dt_record *r)
{
    cJSON *status;
    DT_TRY(read_summary(r));
    DT_TRY(dt_record_read(r->path, "status.json", DT_RECORD_FILE_BYTES, &status));
    if (r->summary == NULL && dt_record_text(status, "error")[0] != '\0') {
        r->summary = status;
    } else {
        cJSON_Delete(status);
    }
    return DT_OK;
}

static bool is_folder(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

static enum dt_status read_config(struct dt_record *r)
{
    char path[DT_PATH_SIZE + 32];
    uint8_t *text = NULL;
    size_t n = 0;
    bool there = false;
    snprintf(path, sizeof path, "%s/config.json", r->path);
    DT_TRY(dt_file_exists(path, &there));
    if (!there) {
        return dt_error(
            DT_NO_INPUT,
            is_folder(r->path)
                ? "%s: not the folder of a run, it has no config.json (name one that has)"
                : "%s: no such folder (name the folder of a run)",
            r->path);
    }
    DT_TRY(dt_file_read(path, DT_RECORD_FILE_BYTES, &text, &n));
    const enum dt_status s = memchr(text, '\0', n) != NULL
                                 ? dt_error(DT_BAD_DATA, "%s: a NUL byte (this is no text)", path)
                                 : dt_config_json.read(path, (const char *)text, &r->config);
    free(text);
    return s == DT_CONFIG ? DT_BAD_DATA : s;
}

/* The step in the second line of run.lock. */
static double read_position(int fd)
{
    char text[256];
    const ssize_t n = pread(fd, text, sizeof text - 1, 0);
    text[n > 0 ? n : 0] = '\0';
    const char *line = strchr(text, '\n');
    unsigned long long step;
    return line != NULL && sscanf(line, "\nstep %20llu", &step) == 1 ? (double)step : (double)NAN;
}

/* Whether a process trains in the folder (train/save/run_lock.h). */
static bool is_in_use(struct dt_record *r)
{
    char path[DT_PATH_SIZE + 32];
    snprintf(path, sizeof path, "%s/run.lock", r->path);
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    const bool used = fd >= 0 && dt_run_lock_is_held(fd);
    r->noted_step = used ? read_position(fd) : (double)NAN;
    if (fd >= 0) {
        close(fd);
    }
    return used;
}

static enum dt_run_state state_of(struct dt_record *r)
{
    const double code = dt_record_number(r->summary, "exit_code");
    if (r->summary == NULL || isnan(code)) {
        return is_in_use(r) ? DT_RUN_GOING : DT_RUN_KILLED;
    }
    return code == DT_OK ? DT_RUN_DONE : code == DT_STOPPED ? DT_RUN_STOPPED : DT_RUN_FAILED;
}

static enum dt_status read_all(struct dt_record *r)
{
    DT_TRY(read_config(r));
    DT_TRY(read_metrics(r));
    DT_TRY(read_end(r));
    r->state = state_of(r);
    return DT_OK;
}

static const struct dt_record no_record = {
    .noted_step = (double)NAN,
    .steps = {.n_columns = DT_N_STEP_FIELDS, .step = DT_STEP_STEP},
    .epochs = {.n_columns = DT_N_EPOCH_FIELDS, .step = DT_EPOCH_STEP},
    .restarts = {.n_columns = DT_N_RESTART_COLUMNS}};

enum dt_status dt_record_open(const char *folder, struct dt_record *out)
{
    *out = no_record;
    size_t n = strlen(folder);
    while (n > 1 && folder[n - 1] == '/') {
        n--;
    }
    if (n == 0 || n > DT_PATH_SIZE - 64) {
        return dt_error(DT_NO_INPUT, "%.60s: no name of a folder (name the folder of a run)",
                        folder);
    }
    memcpy(out->path, folder, n);
    const enum dt_status s = read_all(out);
    if (s != DT_OK) {
        dt_record_close(out);
    }
    return s;
}

void dt_record_close(struct dt_record *r)
{
    free(r->steps.cells);
    free(r->epochs.cells);
    free(r->restarts.cells);
    cJSON_Delete(r->start);
    cJSON_Delete(r->last_epoch);
    cJSON_Delete(r->summary);
    memset(r, 0, sizeof *r);
}

/* ---- what it comes to */

const char *dt_run_state_word(enum dt_run_state state)
{
    static const char *const words[] = {DT_RUN_STATE_LIST(DT_ENUM_NAME)};
    return words[state];
}

const char *dt_record_name(const struct dt_record *r)
{
    const char *name = dt_record_text(r->start, "config");
    return name[0] != '\0' ? name : r->config.name;
}

/* A field of the summary, which has the names of an epoch's fields, or of the last epoch. */
static double result_in(const struct dt_record *r, bool summary, enum dt_epoch_field field)
{
    return summary ? dt_record_number(r->summary, dt_epoch_fields.rows[field].name)
                   : dt_record_last(&r->epochs, (int)field);
}

struct set {
    enum dt_epoch_field loss, accuracy, r2, top5, ema_loss, ema_accuracy;
    const char *samples;
};

static struct dt_record_result result_on(const struct dt_record *r, const struct set *set)
{
    const bool summary = !isnan(result_in(r, true, set->loss));
    struct dt_record_result out = {.loss = result_in(r, summary, set->loss),
                                   .accuracy = result_in(r, summary, set->accuracy),
                                   .r2 = result_in(r, summary, set->r2),
                                   .n_samples = dt_record_number(r->start, set->samples),
                                   .top5 = result_in(r, summary, set->top5),
                                   .ema_loss = result_in(r, summary, set->ema_loss),
                                   .ema_accuracy = result_in(r, summary, set->ema_accuracy)};
    const double p = out.accuracy;
    out.margin = p >= 0 && p <= 1 && out.n_samples > 0 ? 1.96 * sqrt(p * (1 - p) / out.n_samples)
                                                       : (double)NAN;
    return out;
}

struct dt_record_result dt_record_result(const struct dt_record *r)
{
    static const struct set test = {
        DT_EPOCH_TEST_LOSS,     DT_EPOCH_TEST_ACCURACY,     DT_EPOCH_TEST_R2, DT_EPOCH_TEST_TOP5,
        DT_EPOCH_EMA_TEST_LOSS, DT_EPOCH_EMA_TEST_ACCURACY, "test_samples"};
    return result_on(r, &test);
}

struct dt_record_result dt_record_validation(const struct dt_record *r)
{
    static const struct set validation = {
        DT_EPOCH_VALIDATION_LOSS, DT_EPOCH_VALIDATION_ACCURACY, DT_EPOCH_VALIDATION_R2,
        DT_EPOCH_VALIDATION_TOP5, DT_EPOCH_EMA_VALIDATION_LOSS, DT_EPOCH_EMA_VALIDATION_ACCURACY,
        "validation_samples"};
    return result_on(r, &validation);
}

/* A start with nothing to do records no epoch; its summary has the number of its checkpoint. */
static double epochs_of(const struct dt_record *r)
{
    return fmax(0, fmax(dt_record_last(&r->epochs, DT_EPOCH_EPOCH),
                        dt_record_number(r->summary, "epochs")));
}

/* The epoch that the run has come to; epochs are recorded when they end. */
static double epoch_of(const struct dt_record *r)
{
    const double recorded = epochs_of(r), last = (double)r->config.epochs;
    const bool within = dt_record_last(&r->steps, DT_STEP_STEP) >
                        fmax(0, dt_record_last(&r->epochs, DT_EPOCH_STEP));
    const double epoch =
        within ? dt_record_last(&r->steps, DT_STEP_EPOCH) : recorded + (r->state == DT_RUN_GOING);
    return fmin(fmax(1, epoch), fmax(recorded, last));
}

struct dt_record_progress dt_record_progress(const struct dt_record *r)
{
    const double start = dt_record_number(r->start, "step"),
                 summary = dt_record_number(r->summary, "steps");
    const double recorded =
        fmax(dt_record_last(&r->steps, DT_STEP_STEP), dt_record_last(&r->epochs, DT_EPOCH_STEP));
    return (struct dt_record_progress){
        .step = isfinite(summary) ? summary : fmax(r->noted_step, fmax(start, recorded)),
        .all = dt_record_number(r->start, "last_step"),
        .per_epoch = dt_record_number(r->start, "steps_per_epoch"),
        .epochs = epochs_of(r),
        .all_epochs = fmax(epochs_of(r), (double)r->config.epochs),
        .epoch = epoch_of(r)};
}

double dt_record_seconds(const struct dt_record *r)
{
    const double whole = dt_record_number(r->summary, "seconds"),
                 before = dt_record_number(r->start, "seconds_before");
    const double start = fmax(0, dt_record_number(r->start, "step"));
    const bool step = dt_record_last(&r->steps, DT_STEP_STEP) > start,
               epoch = dt_record_last(&r->epochs, DT_EPOCH_STEP) > start;
    const double recorded =
        fmax(step ? dt_record_last(&r->steps, DT_STEP_SECONDS) : (double)NAN,
             epoch ? dt_record_last(&r->epochs, DT_EPOCH_SECONDS) : (double)NAN);
    const double own = isfinite(whole) ? whole : recorded;
    return isnan(own) && before > 0 ? before : own + fmax(0, before);
}

enum dt_status dt_record_seconds_of(const char *folder, double *out)
{
    struct dt_record record = no_record;
    snprintf(record.path, sizeof record.path, "%s", folder);
    enum dt_status s = read_metrics(&record);
    s = s == DT_OK ? read_end(&record) : s;
    *out = dt_record_seconds(&record);
    dt_record_close(&record);
    return s;
}
