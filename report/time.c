/* Where the time of a run's steps went, rank by rank, and what ranks sent. */
#include "report/run.h"

#include <math.h>
#include <stdlib.h>

#include "dist/strategy/summary/summary.h"

#define MAX_LANES 64
#define MAX_ROWS 1024 /* of the table of numbers */

/* A rank's milliseconds of a step. */
struct rank_times {
    int rank;
    double ms[DT_N_PHASES];
    double own; /* all but waiting for others */
    double all;
};

struct times {
    int n;
    struct rank_times *ranks;
    double largest;
};

static struct rank_times times_of(const cJSON *object, int rank)
{
    struct rank_times t = {.rank = rank};
    for (int p = 0; p < DT_N_PHASES; p++) {
        const double ms = dt_record_number(object, dt_phase_names[p]);
        t.ms[p] = ms > 0 ? ms : 0;
        t.all += t.ms[p];
        t.own += p != DT_PHASE_COMMUNICATION ? t.ms[p] : 0;
    }
    return t;
}

/* All ranks', or else rank 0's: a run that failed, or is under way, has no others. */
static enum dt_status find_times(const struct dt_record *r, struct times *out)
{
    const cJSON *source = r->summary != NULL ? r->summary : r->last_epoch,
                *array = cJSON_GetObjectItemCaseSensitive(source, "ranks_ms_per_step"),
                *first = cJSON_GetObjectItemCaseSensitive(source, "rank0_ms_per_step");
    const int n = cJSON_IsArray(array) ? cJSON_GetArraySize(array) : cJSON_IsObject(first) ? 1 : 0;
    *out = (struct times){.ranks = calloc((size_t)n + 1, sizeof *out->ranks)};
    if (out->ranks == NULL) {
        return dt_error(DT_NO_MEMORY, "no memory for the times of %d ranks", n);
    }
    const cJSON *item = cJSON_IsArray(array) ? array->child : first;
    for (int i = 0; i < n && item != NULL; i++, item = item->next) {
        out->ranks[out->n++] = times_of(item, i);
        out->largest = fmax(out->largest, out->ranks[i].all);
    }
    return DT_OK;
}

static int by_own(const void *a, const void *b)
{
    const struct rank_times *x = a, *y = b;
    return x->own != y->own ? (x->own < y->own) - (x->own > y->own) : x->rank - y->rank;
}

/* ---- lanes and numbers */

static void add_lanes(struct dt_doc *doc, const struct times *t)
{
    struct dt_part *lanes = dt_doc_lanes(doc, "Time of a step", "time, ms");
    for (int i = 0; i < t->n && i < MAX_LANES; i++) {
        const struct rank_times *rank = &t->ranks[i];
        const int lane = dt_doc_lane(lanes, "rank %d", rank->rank);
        double at = 0;
        for (int p = 0; p < DT_N_PHASES; p++) {
            if (rank->ms[p] > 0) {
                dt_doc_kind(lanes, p, dt_phase_names[p]);
                dt_doc_box(lanes, lane, at, at + rank->ms[p], p, "%s %.3f ms", dt_phase_names[p],
                           rank->ms[p]);
            }
            at += rank->ms[p];
        }
    }
    if (t->n > MAX_LANES) {
        dt_doc_caption(lanes, "The %d slowest of %d ranks.", MAX_LANES, t->n);
    }
}

static void add_numbers(struct dt_doc *doc, const struct times *t)
{
    struct dt_part *table = dt_doc_table(
        doc, "Time of a step, by phase",
        "rank::+|data:ms:3|forward:ms:3|backward:ms:3|communication:ms:3|update:ms:3|gpu:ms:3|"
        "total:ms:3");
    _Static_assert(DT_N_PHASES == 6, "a column for each");
    for (int i = 0; i < t->n && i < MAX_ROWS; i++) {
        const struct rank_times *rank = &t->ranks[i];
        struct dt_cell cells[DT_N_PHASES + 2] = {dt_n(rank->rank)};
        for (int p = 0; p < DT_N_PHASES; p++) {
            cells[p + 1] = dt_n(rank->ms[p]);
        }
        cells[DT_N_PHASES + 1] = dt_n(rank->all);
        dt_doc_add_row(table, DT_N_PHASES + 2, cells);
    }
    if (t->n > MAX_ROWS) {
        dt_doc_caption(table, "%d more ranks were faster.", t->n - MAX_ROWS);
    }
    dt_doc_detail(table);
}

/* ---- sentences */

/* `t` is sorted by own work, the most first. */
static void tell_slowest(struct dt_doc *doc, const struct dt_record *r, const struct times *t)
{
    const struct rank_times *slowest = &t->ranks[0];
    const cJSON *ranks = cJSON_GetObjectItemCaseSensitive(r->start, "ranks"),
                *info = cJSON_GetArrayItem(ranks, slowest->rank);
    double waited = 0, all = 0;
    for (int i = 0; i < t->n; i++) {
        waited += t->ranks[i].ms[DT_PHASE_COMMUNICATION] / t->n;
        all += t->ranks[i].all / t->n;
    }
    dt_doc_text(doc,
                "The slowest is rank %d (%s): it computes %.3f ms a step (median %.3f); faster "
                "ranks wait for it in communication. Exposed communication takes %.3f ms of a "
                "step, %.1f %% (mean over ranks); communication that overlaps the backward pass "
                "counts as backward time.",
                slowest->rank, dt_record_text(info, "host"), slowest->own, t->ranks[t->n / 2].own,
                waited, all > 0 ? 100 * waited / all : 0);
}

/* What was counted, held against the formula. */
static void add_traffic(struct dt_doc *doc, const struct dt_record *r)
{
    static const struct {
        const char *name, *column;
    } rows[] = {{"messages", "messages::0"},
                {"bytes_sent", "sent::B"},
                {"bytes_between_hosts", "between hosts, all ranks together::B"}};
    const cJSON *counted = r->last_epoch != NULL ? r->last_epoch : r->summary;
    if (!(dt_record_number(counted, "messages") > 0)) {
        return;
    }
    struct dt_part *figures = dt_doc_figures(doc, "Sent in a step by the busiest rank");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const double n = dt_record_number(counted, rows[i].name),
                     expected = dt_record_number(r->start, rows[i].name);
        if (n > 0) {
            dt_doc_figure(figures, rows[i].column, dt_n(n));
            if (isfinite(expected)) {
                dt_doc_judge(figures, n == expected ? DT_NO_VERDICT : DT_VERDICT_WARN,
                             n == expected ? "equal to the formula"
                                           : "NOT equal to the formula: %.0f",
                             expected);
            }
        }
    }
}

static void tell_compression(struct dt_doc *doc, const struct dt_record *r)
{
    const struct dt_compression_spec *c = &r->config.dist.compression;
    if (c->type != DT_COMPRESSION_NONE) {
        dt_doc_text(doc, "Gradients are sent as %s%s: %s bytes for n numbers, in place of 4 n.",
                    dt_compression_names[c->type], c->error_feedback ? " with error feedback" : "",
                    dt_compression_formulas[c->type]);
    }
}

static void add_staleness(struct dt_doc *doc, const struct dt_record *r)
{
    double steps[DT_STALENESS_BINS], counts[DT_STALENESS_BINS], all = 0, sum = 0;
    int n = 0;
    const cJSON *item =
        cJSON_GetArrayItem(cJSON_GetObjectItemCaseSensitive(r->last_epoch, "staleness"), 0);
    for (; item != NULL && n < DT_STALENESS_BINS; item = item->next, n++) {
        const double count = cJSON_IsNumber(item) ? item->valuedouble : 0;
        steps[n] = n;
        counts[n] = count >= 0 && count < 1e15 ? count : 0;
        all += counts[n];
        sum += n * counts[n];
    }
    if (!(all > 0)) {
        return;
    }
    struct dt_part *series =
        dt_doc_series(doc, "Staleness of gradients", "age, steps", "gradients");
    dt_doc_caption(series,
                   "Steps that others had taken since the weights were read: mean %.2f, at most "
                   "%d.",
                   sum / all, n - 1);
    dt_doc_axes(series, DT_FROM_ZERO);
    dt_doc_line(
        series,
        &(struct dt_line){
            .name = "gradients", .stroke = DT_BARS, .n = (size_t)n, .x = steps, .y = counts});
}

enum dt_status dt_run_time_add(struct dt_doc *doc, const struct dt_record *r)
{
    struct times times;
    DT_TRY(find_times(r, &times));
    if (times.largest > 0 || dt_record_number(r->last_epoch, "messages") > 0) {
        dt_doc_section(doc, "Where the time went");
    }
    if (times.largest > 0) {
        if (times.n > MAX_LANES) {
            qsort(times.ranks, (size_t)times.n, sizeof *times.ranks, by_own);
        }
        add_lanes(doc, &times);
        add_numbers(doc, &times);
        if (times.n > 1) {
            qsort(times.ranks, (size_t)times.n, sizeof *times.ranks, by_own);
            tell_slowest(doc, r, &times);
        }
    }
    free(times.ranks);
    add_traffic(doc, r);
    tell_compression(doc, r);
    add_staleness(doc, r);
    return DT_OK;
}
