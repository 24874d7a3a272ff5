#include "report/run.h"

#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "base/bytes.h"
#include "cli/text.h"

const char *const dt_fact_names[DT_N_FACTS] = {DT_FACT_LIST(DT_ENUM_NAME)};
static const char *const optimizer_names[] = {DT_OPTIMIZER_LIST(DT_ENUM_NAME)};
static const char *const scaling_names[] = {DT_LR_SCALING_LIST(DT_ENUM_NAME)};
static const char *const schedule_names[] = {DT_SCHEDULE_LIST(DT_ENUM_NAME)};

/* Behind what the fact says already. */
static void __attribute__((format(printf, 3, 4)))
tell(struct dt_facts *out, enum dt_fact fact, const char *format, ...)
{
    char *text = out->texts[fact];
    const size_t n = strlen(text);
    va_list args;
    va_start(args, format);
    vsnprintf(text + n, DT_FACT_SIZE - n, format, args);
    va_end(args);
}

/* "stopped: by SIGTERM", "failed (74): disk full" */
static void tell_verdict(const struct dt_record *r, struct dt_facts *out)
{
    const char *word = dt_run_state_word(r->state);
    const double number = dt_record_number(r->summary, "signal");
    const char *name = number > 0 && number < 65 ? sigabbrev_np((int)number) : NULL;
    const char *early = dt_record_text(r->summary, "stopped_early");
    switch (r->state) {
    case DT_RUN_STOPPED:
        tell(out, DT_FACT_VERDICT, "%s by SIG%s, with a checkpoint", word,
             name != NULL ? name : "?");
        break;
    case DT_RUN_FAILED:
        tell(out, DT_FACT_VERDICT, "%s (exit code %.0f): %.800s", word,
             dt_record_number(r->summary, "exit_code"), dt_record_text(r->summary, "error"));
        break;
    case DT_RUN_DONE:
        tell(out, DT_FACT_VERDICT, early[0] != '\0' ? "%s: stopped early, %.800s" : "%s: %s", word,
             early[0] != '\0' ? early : dt_run_state_meaning(r->state));
        break;
    case DT_RUN_GOING:
    case DT_RUN_KILLED:
        tell(out, DT_FACT_VERDICT, "%s: %s", word, dt_run_state_meaning(r->state));
        break;
    }
}

/* Of the weights (train.ema). */
static void tell_average(const char *set, const struct dt_record_result *result,
                         struct dt_facts *out)
{
    const char *behind = out->texts[DT_FACT_AVERAGE][0] != '\0' ? "; " : "";
    if (isfinite(result->ema_loss)) {
        tell(out, DT_FACT_AVERAGE, "%s%s ", behind, set);
    }
    if (isfinite(result->ema_accuracy)) {
        tell(out, DT_FACT_AVERAGE, "accuracy %.2f %%, ", 100 * result->ema_accuracy);
    }
    if (isfinite(result->ema_loss)) {
        tell(out, DT_FACT_AVERAGE, "loss %.6g", result->ema_loss);
    }
}

static void tell_result(const struct dt_record *r, struct dt_facts *out)
{
    const struct dt_record_result result = dt_record_result(r);
    const double epoch = dt_record_number(r->summary, "tested_epoch");
    if (isfinite(result.accuracy)) {
        tell(out, DT_FACT_ACCURACY, "%.2f %%", 100 * result.accuracy);
        if (isfinite(result.margin)) {
            tell(out, DT_FACT_ACCURACY, " ± %.2f %% (95 %%, of %.0f samples)", 100 * result.margin,
                 result.n_samples);
        }
    }
    if (isfinite(result.top5)) {
        tell(out, DT_FACT_ACCURACY, ", top 5 %.2f %%", 100 * result.top5);
    }
    if (isfinite(result.loss)) {
        tell(out, DT_FACT_LOSS, "%.6g", result.loss);
    }
    if (isfinite(epoch)) {
        tell(out, isfinite(result.accuracy) ? DT_FACT_ACCURACY : DT_FACT_LOSS,
             ", by the weights of epoch %.0f", epoch);
    }
    tell_average("test", &result, out);
}

static void tell_validation(const struct dt_record *r, struct dt_facts *out)
{
    const struct dt_record_result result = dt_record_validation(r);
    if (isfinite(result.accuracy)) {
        tell(out, DT_FACT_VALIDATION, "accuracy %.2f %%, ", 100 * result.accuracy);
    }
    if (isfinite(result.top5)) {
        tell(out, DT_FACT_VALIDATION, "top 5 %.2f %%, ", 100 * result.top5);
    }
    if (isfinite(result.loss)) {
        tell(out, DT_FACT_VALIDATION, "loss %.6g, of %.0f samples", result.loss, result.n_samples);
    }
    tell_average("validation", &result, out);
}

static void tell_progress(const struct dt_record *r, struct dt_facts *out)
{
    const struct dt_record_progress at = dt_record_progress(r);
    if (isfinite(at.step) && isfinite(at.all)) {
        tell(out, DT_FACT_PROGRESS, "%.0f of %.0f steps, %.0f an epoch", at.step, at.all,
             at.per_epoch);
    } else if (isfinite(at.step)) {
        tell(out, DT_FACT_PROGRESS, "%.0f steps", at.step);
    }
}

static void tell_speed(const struct dt_record *r, struct dt_facts *out)
{
    char number[32];
    const double of_epoch = dt_record_last(&r->epochs, DT_EPOCH_IMAGES),
                 of_step = dt_record_last(&r->steps, DT_STEP_IMAGES);
    const double speed = isfinite(of_epoch) ? of_epoch : of_step, seconds = dt_record_seconds(r);
    if (isfinite(speed)) {
        tell(out, DT_FACT_SPEED, "%s %s/s", dt_count_text(speed, number, sizeof number),
             dt_unit_name(&r->config));
    }
    if (isfinite(seconds)) {
        tell(out, DT_FACT_TIME, "%s", dt_duration_text(seconds, number, sizeof number));
        if (r->n_starts > 1) {
            tell(out, DT_FACT_TIME, ", over %zu starts", r->n_starts);
        }
    }
}

/* Ranks, their hosts, and what the first of them computes with. */
static void tell_ranks(const struct dt_record *r, struct dt_facts *out)
{
    const cJSON *ranks = cJSON_GetObjectItemCaseSensitive(r->start, "ranks"),
                *first = cJSON_GetArrayItem(ranks, 0);
    const double n = dt_record_number(r->start, "world_size");
    int n_hosts = 0, n_other = 0;
    for (const cJSON *rank = first; rank != NULL; rank = rank->next) {
        n_hosts += dt_record_number(rank, "local_rank") == 0;
        n_other += strcmp(dt_record_text(rank, "device"), dt_record_text(first, "device")) != 0;
    }
    if (isfinite(n)) {
        tell(out, DT_FACT_RANKS, "%.0f", n);
        if (n_hosts > 0) {
            tell(out, DT_FACT_RANKS, " on %d host%s", n_hosts, n_hosts == 1 ? "" : "s");
        }
    }
    tell(out, DT_FACT_DEVICE, "%.100s%s", dt_record_text(first, "device"),
         n_other > 0 ? ", and others" : "");
}

static void tell_training(const struct dt_record *r, struct dt_facts *out)
{
    const struct dt_config *c = &r->config;
    const double batch = dt_record_number(r->start, "global_batch"),
                 lr = dt_record_number(r->start, "lr");
    const double scale = dt_record_number(r->start, "lr_scale"),
                 workers = dt_record_number(r->start, "workers");
    if (isfinite(batch) && c->batch_per_rank > 0 && isfinite(workers)) {
        tell(out, DT_FACT_BATCH, "%lld × %.0f = %.0f", (long long)c->batch_per_rank, workers,
             batch);
    } else if (isfinite(batch)) {
        tell(out, DT_FACT_BATCH, "%.0f", batch);
    }
    if (isfinite(lr) && isfinite(scale) && scale != 1) {
        tell(out, DT_FACT_LR, "%g × %g = %g (%s), %s, %s", c->optimizer.lr, scale, lr,
             scaling_names[c->lr_scaling], schedule_names[c->schedule],
             optimizer_names[c->optimizer.type]);
    } else {
        tell(out, DT_FACT_LR, "%g, %s, %s", c->optimizer.lr, schedule_names[c->schedule],
             optimizer_names[c->optimizer.type]);
    }
}

static void tell_memory(const struct dt_record *r, struct dt_facts *out)
{
    char host[DT_BYTES_TEXT_SIZE], gpu[DT_BYTES_TEXT_SIZE];
    const double host_peak = dt_record_number(r->summary, "host_memory_peak_bytes");
    const double gpu_peak = dt_record_number(r->summary, "gpu_memory_peak_bytes");
    if (host_peak > 0) {
        tell(out, DT_FACT_MEMORY, "%s a rank at most%s%s", dt_bytes_text(host_peak, host),
             gpu_peak > 0 ? ", on its GPU " : "", gpu_peak > 0 ? dt_bytes_text(gpu_peak, gpu) : "");
    }
}

static void tell_faults(const struct dt_record *r, struct dt_facts *out)
{
    const cJSON *fault =
        cJSON_GetArrayItem(cJSON_GetObjectItemCaseSensitive(r->start, "injected"), 0);
    for (int i = 0; fault != NULL && i < DT_FACT_SIZE; fault = fault->next, i++) {
        const char *one = cJSON_GetStringValue(fault);
        tell(out, DT_FACT_FAULTS, "%s%.100s", i > 0 ? "; " : "", one != NULL ? one : "?");
    }
}

static void tell_start(const struct dt_record *r, struct dt_facts *out)
{
    struct tm utc;
    const time_t seconds = r->started >= 0 && r->started < 1e11 ? (time_t)r->started : -1;
    if (seconds >= 0 && gmtime_r(&seconds, &utc) != NULL) {
        strftime(out->texts[DT_FACT_STARTED], DT_FACT_SIZE, "%Y-%m-%d %H:%M:%S UTC", &utc);
    }
    tell(out, DT_FACT_COMMAND, "%.1000s", dt_record_text(r->start, "command"));
    tell(out, DT_FACT_RESUMED, "%.1000s", dt_record_text(r->start, "resumed_from"));
    tell(out, DT_FACT_CHECKPOINT, "%.1000s", dt_record_text(r->summary, "checkpoint"));
    const char *version = dt_record_text(r->start, "version"),
               *commit = dt_record_text(r->start, "commit");
    tell(out, DT_FACT_PROGRAM, version[0] != '\0' ? "dtrain %.40s%s%.60s" : "", version,
         commit[0] != '\0' ? ", commit " : "", commit);
}

/* Shares of 1 as percentages. */
static void tell_best(const struct dt_record *r, struct dt_facts *out)
{
    const char *path = dt_record_text(r->summary, "best_checkpoint"),
               *metric = dt_record_text(r->summary, "best_metric");
    const double value = dt_record_number(r->summary, "best_value"),
                 epoch = dt_record_number(r->summary, "best_epoch");
    const bool share = strstr(metric, "accuracy") != NULL;
    if (path[0] != '\0' && isfinite(value) && isfinite(epoch)) {
        tell(out, DT_FACT_BEST,
             share ? "%.800s (%.40s %.2f %%, epoch %.0f)" : "%.800s (%.40s %.4g, epoch %.0f)", path,
             metric, share ? 100 * value : value, epoch);
    }
}

static void tell_left_out(const struct dt_record *r, struct dt_facts *out)
{
    char path[DT_PATH_SIZE + 16];
    struct stat info;
    if (r->n_strange > 0) {
        tell(out, DT_FACT_NOTE, "%zu line%s of metrics.jsonl %s no record, and left out",
             r->n_strange, r->n_strange == 1 ? "" : "s", r->n_strange == 1 ? "is" : "are");
    }
    snprintf(path, sizeof path, "%s/trace.json", r->path);
    if (stat(path, &info) == 0 && info.st_size > (off_t)DT_RECORD_FILE_BYTES) {
        tell(out, DT_FACT_NOTE, "%strace.json is larger than 8 MiB, and not shown here",
             r->n_strange > 0 ? "; " : "");
    }
}

void dt_facts_find(const struct dt_record *r, struct dt_facts *out)
{
    memset(out, 0, sizeof *out);
    tell_verdict(r, out);
    tell_result(r, out);
    tell_validation(r, out);
    tell_progress(r, out);
    tell_speed(r, out);
    tell_ranks(r, out);
    tell_training(r, out);
    tell(out, DT_FACT_ADDING, "%.100s", dt_record_text(r->start, "allreduce"));
    tell_memory(r, out);
    tell_faults(r, out);
    tell_start(r, out);
    tell_best(r, out);
    tell_left_out(r, out);
}
