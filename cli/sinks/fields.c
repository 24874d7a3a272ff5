#include "cli/sinks/fields.h"

#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/status.h"
#include "cli/cli_text.h"
#include "dt_commit.h" /* written by the build: cmake/commit.cmake */
#include "train/hooks/audit.h"
#include "train/hooks/inject.h"
#include "train/hooks/learned.h"

const char dt_commit[] = DTRAIN_COMMIT;

const char *const dt_phase_names[] = {DT_PHASE_LIST(DT_ENUM_NAME)};

double dt_metrics_loss(const struct dt_metrics *m)
{
    return m->loss_sum / m->n_samples;
}

double dt_metrics_accuracy(const struct dt_metrics *m)
{
    return m->n_correct / m->n_samples;
}

/* ---- how stale gradients were */

int dt_staleness_n_bins(const struct dt_staleness *s)
{
    int n = DT_STALENESS_BINS;
    while (n > 0 && s->counts[n - 1] == 0) {
        n--;
    }
    return n;
}

static double count_all(const struct dt_staleness *s)
{
    double n = 0;
    for (int i = 0; i < DT_STALENESS_BINS; i++) {
        n += (double)s->counts[i];
    }
    return n;
}

double dt_staleness_mean(const struct dt_staleness *s)
{
    double sum = 0;
    for (int i = 0; i < DT_STALENESS_BINS; i++) {
        sum += (double)i * (double)s->counts[i];
    }
    return sum / count_all(s);
}

void dt_staleness_print(FILE *out, const struct dt_staleness *s)
{
    static const char bar[] = "########################################";
    const int n_bins = dt_staleness_n_bins(s);
    const double n = count_all(s);
    if (n_bins == 0) {
        return;
    }
    fprintf(out, "staleness of gradients, in steps: mean %.2f, most %d\n", dt_staleness_mean(s),
            n_bins - 1);
    for (int i = 0; i < n_bins; i++) {
        const double share = (double)s->counts[i] / n;
        fprintf(out, "  %3d %6.1f %%  %.*s\n", i, 100 * share,
                (int)(share * (sizeof bar - 1) + 0.5), bar);
    }
}

static double accuracy_of(const struct dt_sinks *sinks, const struct dt_metrics *m)
{
    return dt_sinks_classify(sinks) ? dt_metrics_accuracy(m) : nan("");
}

static void put_integer(struct dt_json *j, const char *name, uint64_t value)
{
    dt_json_number(j, name, 0, (double)value);
}

static void put_phases(struct dt_json *j, const char *name, int digits,
                       const struct dt_phase_times *times, uint64_t n_steps)
{
    dt_json_begin(j, name, '{');
    for (int p = 0; p < DT_N_PHASES; p++) {
        if (times->s[p] > 0) {
            dt_json_number(j, dt_phase_names[p], digits, 1e3 * times->s[p] / (double)n_steps);
        }
    }
    dt_json_end(j, '{');
}

/* ---- a start */

static void put_ranks(struct dt_json *j, const struct dt_rank_info *ranks, int n)
{
    dt_json_begin(j, "ranks", '[');
    for (int i = 0; i < n; i++) {
        dt_json_begin(j, NULL, '{');
        dt_json_text(j, "host", ranks[i].host);
        dt_json_number(j, "local_rank", 0, ranks[i].local_rank);
        dt_json_text(j, "device", ranks[i].device);
        dt_json_number(j, "threads", 0, ranks[i].n_threads);
        dt_json_number(j, "samples", 0, (double)ranks[i].n_samples);
        dt_json_end(j, '{');
    }
    dt_json_end(j, '[');
}

static void put_faults(struct dt_json *j, const struct dt_faults *faults)
{
    dt_json_begin(j, "injected", '[');
    for (int i = 0; i < faults->n; i++) {
        dt_json_text(j, NULL, faults->faults[i].text);
    }
    dt_json_end(j, '[');
}

static void put_predicted(struct dt_json *j, const struct dt_step_traffic *t)
{
    const double unknown = t->known ? 0 : (double)NAN;
    dt_json_number(j, "messages", 9, t->messages + unknown);
    dt_json_number(j, "bytes_sent", 9, t->bytes + unknown);
    dt_json_number(j, "messages_between_hosts", 9, t->messages_between + unknown);
    dt_json_number(j, "bytes_between_hosts", 9, t->bytes_between + unknown);
}

void dt_run_put(struct dt_json *j, const struct dt_sinks *sinks, const struct dt_event *event)
{
    const struct dt_run_event *r = event->run;
    put_integer(j, "step", r->step);
    put_integer(j, "last_step", r->last_step);
    dt_json_number(j, "seconds_before", 0, sinks->seconds_before);
    dt_json_text(j, "config", sinks->folder.config->name);
    dt_json_number(j, "world_size", 0, sinks->folder.world_size);
    put_integer(j, "global_batch", r->global_batch);
    put_integer(j, "parameters", r->n_parameters);
    dt_json_text(j, "version", dt_version);
    dt_json_text(j, "commit", dt_commit);
    dt_json_number(j, "started", 0, sinks->started_s);
    dt_json_text_if(j, "command", sinks->command);
    dt_json_text_if(j, "resumed_from", r->resumed_from);
    dt_json_text_if(j, "changes", r->changes);
    dt_json_number(j, "workers", 0, r->n_workers);
    put_integer(j, "steps_per_epoch", r->steps_per_epoch);
    put_integer(j, "train_samples", r->n_train);
    if (r->n_validation > 0) {
        put_integer(j, "validation_samples", r->n_validation);
    }
    put_integer(j, "test_samples", r->n_test);
    dt_json_number(j, "lr", 0, r->lr);
    dt_json_number(j, "lr_scale", 0, r->lr_scale);
    if (r->ranks != NULL) {
        put_ranks(j, r->ranks, sinks->folder.world_size);
    }
    if (r->faults != NULL) {
        put_faults(j, r->faults);
    }
    dt_json_text(j, "allreduce", r->averaging.allreduce);
    put_predicted(j, &r->averaging.traffic);
}

/* ---- a step, and what its samples were */

static struct dt_field_value number(double x)
{
    return (struct dt_field_value){.is_number = true, .number = x};
}

static struct dt_field_value real(double x)
{
    return (struct dt_field_value){.is_number = true, .digits = 9, .number = x};
}

static struct dt_field_value seconds(const struct dt_sinks *sinks)
{
    return (struct dt_field_value){
        .is_number = true, .digits = -3, .number = dt_clock_s() - sinks->clock_s};
}

/* The loss of some samples, and in the next fields their accuracy, and R2. */
static void read_metrics(const struct dt_sinks *sinks, const struct dt_metrics *m,
                         struct dt_field_value *v)
{
    v[0] = real(dt_metrics_loss(m));
    v[1] = real(accuracy_of(sinks, m));
    if (dt_config_has_r2(sinks->folder.config)) {
        v[2] = real(dt_metrics_accuracy(m));
    }
}

static void read_step(const struct dt_sinks *sinks, const struct dt_event *event,
                      struct dt_field_value v[DT_MAX_FIELDS])
{
    const struct dt_step_event *r = event->step;
    v[DT_STEP_STEP] = number((double)r->step);
    v[DT_STEP_EPOCH] = number((double)r->epoch);
    read_metrics(sinks, &r->train, v + DT_STEP_LOSS);
    v[DT_STEP_LR] = real(r->lr);
    v[DT_STEP_GRAD_NORM] = real(r->grad_norm);
    v[DT_STEP_IMAGES] = real(r->images_per_s);
    v[DT_STEP_SECONDS] = seconds(sinks);
}

void dt_audit_put(struct dt_json *j, const struct dt_sinks *sinks, const struct dt_event *event)
{
    const struct dt_audit_event *r = event->audit;
    char hash[17]; /* as text: a number of JSON may lose bits */
    snprintf(hash, sizeof hash, "%016llx", (unsigned long long)r->hash);
    put_integer(j, "step", r->step);
    put_integer(j, "epoch", r->epoch);
    dt_json_number(j, "world_size", 0, sinks->folder.world_size);
    put_integer(j, "samples", r->n_samples);
    dt_json_text(j, "hash", hash);
}

/* ---- an epoch */

static void put_staleness(struct dt_json *j, const char *name, const struct dt_event *event)
{
    const struct dt_staleness *s = &event->epoch->staleness;
    dt_json_begin(j, name, '[');
    for (int i = 0; i < dt_staleness_n_bins(s); i++) {
        dt_json_number(j, NULL, 0, (double)s->counts[i]);
    }
    dt_json_end(j, '[');
}

static bool has_phases(const struct dt_epoch_event *r)
{
    double all = 0;
    for (int p = 0; p < DT_N_PHASES; p++) {
        all += fmax(0, r->rank0.s[p]);
    }
    return r->n_timed_steps > 0 && all > 0;
}

static void put_epoch_phases(struct dt_json *j, const char *name, const struct dt_event *event)
{
    put_phases(j, name, 6, &event->epoch->rank0, event->epoch->n_timed_steps);
}

/* Counted, or unknown. */
static void read_traffic(const struct dt_step_traffic *t, struct dt_field_value *v)
{
    const double unknown = t->known ? 0 : (double)NAN;
    v[DT_EPOCH_MESSAGES] = real(t->messages + unknown);
    v[DT_EPOCH_BYTES_SENT] = real(t->bytes + unknown);
    v[DT_EPOCH_MESSAGES_BETWEEN] = real(t->messages_between + unknown);
    v[DT_EPOCH_BYTES_BETWEEN] = real(t->bytes_between + unknown);
}

static void read_epoch(const struct dt_sinks *sinks, const struct dt_event *event,
                       struct dt_field_value v[DT_MAX_FIELDS])
{
    const struct dt_epoch_event *r = event->epoch;
    const bool validated = r->validation.n_samples > 0;
    const struct dt_metrics *m = validated ? &r->validation : &r->test;
    v[DT_EPOCH_EPOCH] = number((double)r->epoch);
    v[DT_EPOCH_STEP] = number((double)r->step);
    read_metrics(sinks, &r->train, v + DT_EPOCH_TRAIN_LOSS);
    if (m->n_samples > 0) {
        read_metrics(sinks, m, v + (validated ? DT_EPOCH_VALIDATION_LOSS : DT_EPOCH_TEST_LOSS));
    }
    if (dt_learned_has_top5(r->learned)) {
        v[validated ? DT_EPOCH_VALIDATION_TOP5 : DT_EPOCH_TEST_TOP5] =
            real(r->learned->answers.n_top5 / m->n_samples);
    }
    if (r->averaged.n_samples > 0) {
        read_metrics(sinks, &r->averaged,
                     v + (validated ? DT_EPOCH_EMA_VALIDATION_LOSS : DT_EPOCH_EMA_TEST_LOSS));
    }
    v[DT_EPOCH_IMAGES] = real(r->images_per_s);
    v[DT_EPOCH_LR] = real(r->lr);
    v[DT_EPOCH_WORLD_SIZE] = number(sinks->folder.world_size);
    v[DT_EPOCH_ALLREDUCE] = (struct dt_field_value){.text = r->allreduce};
    read_traffic(&r->traffic, v);
    v[DT_EPOCH_STALENESS].put = dt_staleness_n_bins(&r->staleness) > 0 ? put_staleness : NULL;
    v[DT_EPOCH_PHASES].put = has_phases(r) ? put_epoch_phases : NULL;
    v[DT_EPOCH_SECONDS] = seconds(sinks);
}

/* ---- the tables of steps and epochs */

#define NO DT_CSV_NO
#define YES DT_CSV_YES
#define TESTED DT_CSV_TESTED
#define VALIDATED DT_CSV_VALIDATED
#define R2 DT_CSV_R2
#define ROW(constant, name, unit, csv, tag, meaning) {name, unit, tag, meaning, csv},
static const struct dt_field step_rows[] = {DT_STEP_FIELD_LIST(ROW)};
static const struct dt_field epoch_rows[] = {DT_EPOCH_FIELD_LIST(ROW)};
const struct dt_fields dt_step_fields = {step_rows, DT_N_STEP_FIELDS, read_step};
const struct dt_fields dt_epoch_fields = {epoch_rows, DT_N_EPOCH_FIELDS, read_epoch};

void dt_fields_read(const struct dt_fields *fields, const struct dt_sinks *sinks,
                    const struct dt_event *event, struct dt_field_value values[DT_MAX_FIELDS])
{
    memset(values, 0, DT_MAX_FIELDS * sizeof *values);
    fields->read(sinks, event, values);
}

static void put_fields(struct dt_json *j, const struct dt_fields *fields,
                       const struct dt_sinks *sinks, const struct dt_event *event)
{
    struct dt_field_value values[DT_MAX_FIELDS];
    dt_fields_read(fields, sinks, event, values);
    for (int i = 0; i < fields->n; i++) {
        const struct dt_field_value *v = &values[i];
        if (v->is_number) {
            dt_json_number(j, fields->rows[i].name, v->digits, v->number);
        } else if (v->text != NULL) {
            dt_json_text(j, fields->rows[i].name, v->text);
        } else if (v->put != NULL) {
            v->put(j, fields->rows[i].name, event);
        }
    }
}

void dt_step_put(struct dt_json *j, const struct dt_sinks *sinks, const struct dt_event *event)
{
    put_fields(j, &dt_step_fields, sinks, event);
}

void dt_epoch_put(struct dt_json *j, const struct dt_sinks *sinks, const struct dt_event *event)
{
    put_fields(j, &dt_epoch_fields, sinks, event);
}

/* ---- the end */

static const char *status_meaning(enum dt_status status)
{
    switch (status) {
#define STATUS_MEANING(name, code, meaning) \
    case name:                              \
        return meaning;
        DT_STATUS_LIST(STATUS_MEANING)
    }
    return "unknown status";
}

/* A loss, and an accuracy or R2; `names`: theirs. Without samples there is neither. */
static void put_metrics(struct dt_json *j, const struct dt_sinks *sinks, const char *const names[3],
                        const struct dt_metrics *m)
{
    const bool classifies = dt_sinks_classify(sinks);
    if (m->n_samples > 0) {
        dt_json_number(j, names[0], 0, dt_metrics_loss(m));
    }
    if (m->n_samples > 0 && (classifies || dt_config_has_r2(sinks->folder.config))) {
        dt_json_number(j, names[classifies ? 1 : 2], 0, dt_metrics_accuracy(m));
    }
}

static void put_fits(struct dt_json *j, const struct dt_fit *fits, int n)
{
    dt_json_begin(j, "lines", '[');
    for (int i = 0; i < n; i++) {
        dt_json_begin(j, NULL, '{');
        dt_json_number(j, "slope", 0, (double)fits[i].slope);
        dt_json_number(j, "intercept", 0, (double)fits[i].intercept);
        dt_json_end(j, '{');
    }
    dt_json_end(j, '[');
}

/* A stopped run has no result, but may have the result of its averaged weights. */
static void put_results(struct dt_json *j, const struct dt_sinks *sinks,
                        const struct dt_end_event *r)
{
    static const struct dt_metrics none;
    const struct dt_metrics *test = r->signal == 0 ? &r->test : &none,
                            *validation = r->signal == 0 ? &r->validation : &none;
    put_metrics(j, sinks, (const char *const[]){"test_loss", "test_accuracy", "test_r2"}, test);
    if (r->tested_epoch > 0) {
        put_integer(j, "tested_epoch", r->tested_epoch);
    }
    put_metrics(j, sinks,
                (const char *const[]){"validation_loss", "validation_accuracy", "validation_r2"},
                validation);
    if (dt_learned_has_top5(r->learned) && validation->n_samples > 0) {
        dt_json_number(j, "validation_top5_accuracy", 0,
                       r->validation_top5 / validation->n_samples);
    }
    if (dt_learned_has_top5(r->learned) && test->n_samples > 0) {
        dt_json_number(j, "test_top5_accuracy", 0, r->learned->answers.n_top5 / test->n_samples);
    }
    put_metrics(j, sinks,
                (const char *const[]){"ema_validation_loss", "ema_validation_accuracy",
                                      "ema_validation_r2"},
                &r->averaged_validation);
    put_metrics(j, sinks,
                (const char *const[]){"ema_test_loss", "ema_test_accuracy", "ema_test_r2"},
                &r->averaged);
}

static void put_monitored(struct dt_json *j, const struct dt_end_event *r)
{
    char why[128];
    if (r->stopped_early) {
        dt_json_text(j, "stopped_early", dt_stopping_text(&r->stopping, why, sizeof why));
    }
    if (r->best.epoch > 0) {
        dt_json_text(j, "best_checkpoint", r->best_checkpoint);
        dt_json_text(j, "best_metric", dt_metric_name(r->best.metric));
        dt_json_number(j, "best_value", 0, r->best.best);
        put_integer(j, "best_epoch", r->best.epoch);
    }
}

static void put_times(struct dt_json *j, const struct dt_end_event *r, int n_ranks)
{
    if (r->n_timed_steps == 0) {
        return;
    }
    put_phases(j, "rank0_ms_per_step", 0, &r->rank0, r->n_timed_steps);
    if (r->ranks != NULL) {
        dt_json_begin(j, "ranks_ms_per_step", '[');
        for (int i = 0; i < n_ranks; i++) {
            put_phases(j, NULL, 0, &r->ranks[i], r->n_timed_steps);
        }
        dt_json_end(j, '[');
    }
}

static void put_cost(struct dt_json *j, const struct dt_end_event *r)
{
    const int n_bins = dt_staleness_n_bins(&r->staleness);
    if (r->traffic.known) {
        dt_json_number(j, "messages_per_step", 0, r->traffic.messages);
        dt_json_number(j, "bytes_sent_per_step", 0, r->traffic.bytes);
        dt_json_number(j, "messages_between_hosts_per_step", 0, r->traffic.messages_between);
        dt_json_number(j, "bytes_between_hosts_per_step", 0, r->traffic.bytes_between);
    }
    dt_json_text(j, "allreduce", r->allreduce);
    if (n_bins > 0) {
        dt_json_number(j, "staleness_mean", 0, dt_staleness_mean(&r->staleness));
        dt_json_number(j, "staleness_most", 0, n_bins - 1);
    }
    if (r->memory.host_peak > 0) {
        dt_json_number(j, "host_memory_peak_bytes", 0, r->memory.host_peak);
    }
    if (r->memory.gpu_all > 0) {
        dt_json_number(j, "gpu_memory_peak_bytes", 0, r->memory.gpu_peak);
        dt_json_number(j, "gpu_memory_free_bytes", 0, r->memory.gpu_free);
        dt_json_number(j, "gpu_memory_bytes", 0, r->memory.gpu_all);
    }
}

void dt_end_put(struct dt_json *j, const struct dt_sinks *sinks, const struct dt_event *event)
{
    const struct dt_end_event *r = event->end;
    const int n_ranks = sinks->folder.world_size;
    dt_json_number(j, "exit_code", 0, event->status);
    dt_json_text(j, "outcome", status_meaning(event->status));
    dt_json_text_if(j, "error", dt_error_text());
    put_integer(j, "epochs", r->epochs);
    put_integer(j, "steps", r->steps);
    if (r->signal != 0) {
        dt_json_number(j, "signal", 0, r->signal);
    }
    put_results(j, sinks, r);
    if (r->lines != NULL) {
        put_fits(j, r->lines, n_ranks);
    }
    dt_json_text_if(j, "weights_xxh3", r->weights);
    put_monitored(j, r);
    dt_json_number(j, "world_size", 0, n_ranks);
    dt_json_number(j, "seconds", 0, r->seconds);
    put_times(j, r, n_ranks);
    put_cost(j, r);
    dt_json_text(j, "checkpoint", r->checkpoint);
    dt_json_number(j, "started", 0, sinks->started_s);
    dt_json_text(j, "version", dt_version);
}
