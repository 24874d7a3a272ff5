#include "cli/sinks/fields.h"

#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/version.h"
#include "cli/text.h"
#include "dt_commit.h" /* written by the build: cmake/commit.cmake */
#include "train/watch/audit.h"
#include "train/watch/inject.h"
#include "train/watch/learned.h"

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

/* ---- values, as the rows name them */

#define NONE ((struct dt_field_value){.text = NULL})
#define when(condition, value) ((condition) ? (value) : NONE)
#define number(x) ((struct dt_field_value){.is_number = true, .number = (double)(x)})
#define above_0(x) when((x) > 0, number(x))

static struct dt_field_value real(double x)
{
    return (struct dt_field_value){.is_number = true, .digits = 9, .number = x};
}

static struct dt_field_value text(const char *text)
{
    return (struct dt_field_value){.text = text};
}

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

static struct dt_field_value text_if(const char *text)
{
    return (struct dt_field_value){.text = text != NULL && text[0] != '\0' ? text : NULL};
}

static struct dt_field_value list(int n, dt_field_part_fn put)
{
    return (struct dt_field_value){.put = put, .is_list = true, .n = n};
}

static struct dt_field_value object(dt_field_part_fn put)
{
    return (struct dt_field_value){.put = put};
}

static struct dt_field_value seconds(const struct dt_sinks *sinks)
{
    return (struct dt_field_value){
        .is_number = true, .digits = -3, .number = dt_clock_s() - sinks->clock_s};
}

static struct dt_field_value sent(const struct dt_step_traffic *traffic, double amount)
{
    return real(traffic->known ? amount : (double)NAN);
}

static double accuracy_of(const struct dt_sinks *sinks, const struct dt_metrics *m)
{
    return dt_sinks_classify(sinks) ? dt_metrics_accuracy(m) : nan("");
}

static bool is_validated(const struct dt_epoch_event *r)
{
    return r->validation.n_samples > 0;
}

static bool is_tested(const struct dt_end_event *r)
{
    return r->signal == 0 && r->test.n_samples > 0;
}

static bool was_validated(const struct dt_end_event *r)
{
    return r->signal == 0 && r->validation.n_samples > 0;
}

static bool is_averaged(const struct dt_metrics *m)
{
    return m->n_samples > 0;
}

static const char *stopping_text(const struct dt_end_event *r)
{
    static char why[128];
    return dt_stopping_text(&r->stopping, why, sizeof why);
}

/* As text: a number of JSON may lose bits. */
static struct dt_field_value hash(uint64_t hash)
{
    static char digits[17];
    snprintf(digits, sizeof digits, "%016llx", (unsigned long long)hash);
    return text(digits);
}

/* ---- objects, and members of lists */

static void put_rank(struct dt_json *json, const char *key, const void *r, int i)
{
    const struct dt_rank_info *rank = &((const struct dt_run_event *)r)->ranks[i];
    dt_json_begin(json, key, '{');
    dt_json_text(json, "host", rank->host);
    dt_json_number(json, "local_rank", 0, rank->local_rank);
    dt_json_text(json, "device", rank->device);
    dt_json_number(json, "threads", 0, rank->n_threads);
    dt_json_number(json, "samples", 0, (double)rank->n_samples);
    dt_json_end(json, '{');
}

static void put_fault(struct dt_json *json, const char *key, const void *r, int i)
{
    dt_json_text(json, key, ((const struct dt_run_event *)r)->faults->faults[i].text);
}

static void put_staleness(struct dt_json *json, const char *key, const void *r, int i)
{
    const struct dt_epoch_event *epoch = r;
    dt_json_number(json, key, 0, (double)epoch->staleness.counts[i]);
}

static void put_phases(struct dt_json *json, const char *key, int digits,
                       const struct dt_phase_times *times, uint64_t n_steps)
{
    dt_json_begin(json, key, '{');
    for (int p = 0; p < DT_N_PHASES; p++) {
        if (times->s[p] > 0) {
            dt_json_number(json, dt_phase_names[p], digits, 1e3 * times->s[p] / (double)n_steps);
        }
    }
    dt_json_end(json, '{');
}

static bool has_phases(const struct dt_epoch_event *r)
{
    double all = 0;
    for (int p = 0; p < DT_N_PHASES; p++) {
        all += fmax(0, r->rank0.s[p]);
    }
    return r->n_timed_steps > 0 && all > 0;
}

static void put_epoch_phases(struct dt_json *json, const char *key, const void *r, int i)
{
    (void)i;
    const struct dt_epoch_event *epoch = r;
    put_phases(json, key, 6, &epoch->rank0, epoch->n_timed_steps);
}

static void put_end_phases(struct dt_json *json, const char *key, const void *r, int i)
{
    (void)i;
    const struct dt_end_event *end = r;
    put_phases(json, key, 0, &end->rank0, end->n_timed_steps);
}

static void put_rank_phases(struct dt_json *json, const char *key, const void *r, int i)
{
    const struct dt_end_event *end = r;
    put_phases(json, key, 0, &end->ranks[i], end->n_timed_steps);
}

static void put_fitted(struct dt_json *json, const char *key, const void *r, int i)
{
    const struct dt_fit *line = &((const struct dt_end_event *)r)->lines[i];
    dt_json_begin(json, key, '{');
    dt_json_number(json, "slope", 0, (double)line->slope);
    dt_json_number(json, "intercept", 0, (double)line->intercept);
    dt_json_end(json, '{');
}

/* ---- the tables */

#define NO DT_CSV_NO
#define YES DT_CSV_YES
#define TESTED DT_CSV_TESTED
#define VALIDATED DT_CSV_VALIDATED
#define ROW(name, value, unit, meaning) {name, unit, "", meaning, NO},
#define VALUE(name, value, unit, meaning) value,
#define TOLD_ROW(constant, name, value, unit, csv, tag, meaning) {name, unit, tag, meaning, csv},
#define TOLD_VALUE(constant, name, value, unit, csv, tag, meaning) value,

/* Defines dt_<kind>_fields. */
#define TABLE(kind, type, LIST, ROW, VALUE)                                                      \
    static const struct dt_field kind##_rows[] = {LIST(ROW)};                                    \
    _Static_assert(sizeof kind##_rows / sizeof kind##_rows[0] <= DT_MAX_FIELDS, "room for all"); \
    static void read_##kind(const struct dt_sinks *sinks, const struct dt_event *event,          \
                            struct dt_field_value values[DT_MAX_FIELDS])                         \
    {                                                                                            \
        const type *r = event->kind;                                                             \
        const struct dt_field_value all[] = {LIST(VALUE)};                                       \
        memcpy(values, all, sizeof all);                                                         \
    }                                                                                            \
    const struct dt_fields dt_##kind##_fields = {                                                \
        kind##_rows, (int)(sizeof kind##_rows / sizeof kind##_rows[0]), read_##kind};

TABLE(run, struct dt_run_event, DT_RUN_FIELD_LIST, ROW, VALUE)
TABLE(step, struct dt_step_event, DT_STEP_FIELD_LIST, TOLD_ROW, TOLD_VALUE)
TABLE(audit, struct dt_audit_event, DT_AUDIT_FIELD_LIST, ROW, VALUE)
TABLE(epoch, struct dt_epoch_event, DT_EPOCH_FIELD_LIST, TOLD_ROW, TOLD_VALUE)
TABLE(end, struct dt_end_event, DT_END_FIELD_LIST, ROW, VALUE)

void dt_fields_put(struct dt_json *json, const struct dt_fields *fields,
                   const struct dt_sinks *sinks, const struct dt_event *event)
{
    struct dt_field_value values[DT_MAX_FIELDS];
    fields->read(sinks, event, values);
    for (int i = 0; i < fields->n; i++) {
        const struct dt_field_value *v = &values[i];
        if (v->is_number) {
            dt_json_number(json, fields->rows[i].name, v->digits, v->number);
        } else if (v->text != NULL) {
            dt_json_text(json, fields->rows[i].name, v->text);
        } else if (v->is_list) {
            dt_json_begin(json, fields->rows[i].name, '[');
            for (int k = 0; k < v->n; k++) {
                v->put(json, NULL, event->run, k);
            }
            dt_json_end(json, '[');
        } else if (v->put != NULL) {
            v->put(json, fields->rows[i].name, event->run, 0);
        }
    }
}
