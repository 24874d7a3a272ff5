#include <math.h>
#include <string.h>

#include "base/text.h"
#include "cli/text.h"
#include "ops/bench/bench.h"
#include "ops/scale/scale.h"

#define PEAK_MS 3
#define MOST_SPREAD 1.2 /* of rounds: more is worth a word */
#define MOST_WAIT 0.2   /* of a step: more is worth a word */
#define LEAST_EFFICIENCY 0.8
#define MOST_LARGER 64 /* times the batch, that advice goes up to */

/* ---- the table */

static void print_row(const struct dt_scale *s, const struct dt_scale_row *row, const char *third)
{
    char rate[32], epoch[32];
    const double epoch_s = dt_scale_epoch_s(s, row);
    snprintf(epoch, sizeof epoch,
             epoch_s < 0.1   ? "%.1f ms"
             : epoch_s < 100 ? "%.3g s"
                             : "%.0f s",
             epoch_s < 0.1 ? 1e3 * epoch_s : epoch_s);
    printf("%-7s%5d%10s %9.3f %8.3f %8.3f %11s %8s %5.1f %%\n", dt_scale_names[row->kind],
           row->n_ranks, third, 1e3 * row->step_s[DT_SCALE_MEDIAN],
           1e3 * row->step_s[DT_SCALE_LEAST], 1e3 * row->step_s[DT_SCALE_MOST],
           dt_count_text(dt_scale_rate(row, DT_SCALE_MEDIAN), rate, sizeof rate), epoch,
           100 * dt_scale_efficiency(s, row, DT_SCALE_MEDIAN));
}

static void print_columns(const struct dt_scale *s, const char *third)
{
    char rate[32];
    snprintf(rate, sizeof rate, "%s/s", dt_unit_name(&s->config));
    printf("%-7s%5s%10s %9s %8s %8s %11s %8s%8s\n", "kind", "ranks", third, "ms a step", "min",
           "max", rate, "epoch", "effic.");
}

static void print_table(const struct dt_scale *s, const struct dt_scale_table *table)
{
    char third[32];
    const bool predicted = table == &s->predicted;
    print_columns(s, predicted ? "waits" : "batch");
    for (int kind = 0; kind < DT_N_SHOWN_KINDS; kind++) {
        for (int i = 0; i < table->n; i++) {
            const struct dt_scale_row *row = &table->rows[i];
            if (row->kind == (enum dt_scale_kind)kind) {
                snprintf(third, sizeof third, "%.1f %%", 100 * row->wait);
                print_row(s, row,
                          predicted ? third
                                    : dt_count_text((double)row->batch, third, sizeof third));
            }
        }
    }
}

/* ---- comments */

void dt_scale_describe(const struct dt_scale *s, char *text, size_t size)
{
    char count[32];
    snprintf(text, size, "%s parameters, %s, %s",
             dt_count_text((double)s->n_parameters, count, sizeof count), s->device, s->adds_by);
}

void dt_scale_describe_links(const struct dt_scale *s, char *text, size_t size)
{
    const struct dt_link_cost *cost = &s->job.costs.between;
    const int n = s->links.ranks_per_host;
    snprintf(text, size,
             "hosts of %d rank%s on %d core%s, %s of %.4g us and %.4g GB/s between them", n,
             n == 1 ? "" : "s", s->n_cores, s->n_cores == 1 ? "" : "s",
             s->has_network ? s->network.name : "links", 1e6 * cost->alpha_s, 1e-9 / cost->beta_s);
}

/* The longest round of a row over its shortest, where they differ most. */
static double spread(const struct dt_scale *s)
{
    double most = 1;
    for (int i = 0; i < s->measured.n; i++) {
        const double *step_s = s->measured.rows[i].step_s;
        most = fmax(most, step_s[DT_SCALE_MOST] / step_s[DT_SCALE_LEAST]);
    }
    return most;
}

static void print_head(const struct dt_scale *s)
{
    char text[256];
    const int n_threads = s->world->local_size * s->n_threads;
    dt_scale_describe(s, text, sizeof text);
    printf("# %s\n", text);
    printf("# median, min and max of %d rounds of training steps\n", DT_SCALE_ROUNDS);
    for (int kind = 0; kind < DT_N_SHOWN_KINDS; kind++) {
        printf("# %s: %s\n", dt_scale_names[kind], dt_scale_meanings[kind]);
    }
    printf("# efficiency: %s/s over those of one rank times the ranks\n", dt_unit_name(&s->config));
    if (n_threads > s->n_cores) {
        printf("# this host has %d cores for %d threads, which share them\n", s->n_cores,
               n_threads);
    }
}

/* "fastest algorithm, weak: tree to 4 ranks, ring to 1024" */
static void print_fastest(const struct dt_scale *s, enum dt_scale_kind kind)
{
    const char *name = NULL;
    int last = 0;
    char text[400];
    size_t n = (size_t)snprintf(text, sizeof text, "fastest algorithm, %s:", dt_scale_names[kind]);
    for (int i = 0; i <= s->predicted.n; i++) {
        const struct dt_scale_row *row = i < s->predicted.n ? &s->predicted.rows[i] : NULL;
        if (row != NULL && (row->kind != kind || row->fastest == NULL)) {
            continue;
        }
        if (name != NULL && (row == NULL || strcmp(name, row->fastest) != 0)) {
            n += (size_t)snprintf(text + n, n < sizeof text ? sizeof text - n : 0,
                                  " %s to %d ranks%s", name, last, row == NULL ? "" : ",");
        }
        name = row != NULL ? row->fastest : NULL;
        last = row != NULL ? row->n_ranks : 0;
    }
    dt_help_wrap(stdout, 0, text);
}

static void print_compared(const struct dt_scale *s)
{
    for (int i = 0; i < s->measured.n; i++) {
        const struct dt_scale_row *row = &s->measured.rows[i],
                                  *predicted =
                                      dt_scale_find(&s->predicted, row->kind, row->n_ranks);
        if (row->kind < DT_N_SHOWN_KINDS && row->n_ranks > 2 && predicted != NULL) {
            const double a = predicted->step_s[DT_SCALE_MEDIAN], b = row->step_s[DT_SCALE_MEDIAN];
            printf("# %d ranks, %s: predicted %.3f ms, measured %.3f: %+.1f %%\n", row->n_ranks,
                   dt_scale_names[row->kind], 1e3 * a, 1e3 * b, 100 * (a / b - 1));
        }
    }
}

void dt_scale_print(const struct dt_scale *s)
{
    char text[300];
    print_head(s);
    if (spread(s) > MOST_SPREAD) {
        printf("# rounds differ up to %.1f times, and so may predictions (wait for an idle host)\n",
               spread(s));
    }
    print_table(s, &s->measured);
    if (!s->predicts) {
        puts("\n# one rank has no link: nothing is predicted (start two, or name a --network)");
        return;
    }
    dt_scale_describe_links(s, text, sizeof text);
    printf("\n# predicted from 1 and 2 ranks; median, min and max by each round\n");
    dt_text_print(stdout, "# %s", text);
    printf("# two ranks compute %.2f times as long as one; %.0f %% of what can overlap does\n",
           dt_scale_share(&s->job, 2), 100 * s->job.overlap);
    print_table(s, &s->predicted);
    putchar('\n');
    print_compared(s);
    for (int kind = 0; kind < DT_N_SHOWN_KINDS; kind++) {
        print_fastest(s, (enum dt_scale_kind)kind);
    }
    dt_help_wrap(stdout, 0, s->advice);
}

/* ---- advice */

/* The share of a step that waits, with a batch of so many samples a rank. */
static double wait_at(const struct dt_scale *s, const double *seconds, int n_ranks, double samples)
{
    const struct dt_scale_step step = dt_scale_step(&s->job, seconds, n_ranks, samples);
    return step.wait_s / step.step_s;
}

static double larger_batch(const struct dt_scale *s, int n_ranks)
{
    const struct dt_scale_allreduce allreduce = dt_scale_allreduce(s);
    const double batch = (double)dt_scale_rank_batch(&s->config);
    double seconds[DT_SCALE_MAX_BUCKETS];
    if (dt_scale_sums(&s->job, &allreduce, n_ranks, seconds) != DT_OK) {
        return 0;
    }
    for (double times = 2; times <= MOST_LARGER; times *= 2) {
        if (wait_at(s, seconds, n_ranks, times * batch) <= MOST_WAIT) {
            return times * batch;
        }
    }
    return 0;
}

/* Communication costs little, up to the last row. */
static void advise_more(struct dt_scale *s, const struct dt_scale_row *last)
{
    const double efficiency = last != NULL ? dt_scale_efficiency(s, last, DT_SCALE_MEDIAN) : 1;
    const int n = snprintf(s->advice, sizeof s->advice,
                           "communication is at most %.0f %% of a step up to %d ranks: ",
                           100 * (last != NULL ? last->wait : 0), last != NULL ? last->n_ranks : 1);
    if (efficiency < LEAST_EFFICIENCY) {
        snprintf(s->advice + n, sizeof s->advice - (size_t)n,
                 "the ranks of a host share its cores and memory, which leaves an efficiency of "
                 "%.0f %%: spread them over more hosts",
                 100 * efficiency);
    } else {
        snprintf(s->advice + n, sizeof s->advice - (size_t)n, "add ranks, each with its batch");
    }
}

void dt_scale_advise(struct dt_scale *s)
{
    const struct dt_scale_row *bad = NULL, *good = NULL;
    for (int i = 0; i < s->predicted.n && bad == NULL; i++) {
        const struct dt_scale_row *row = &s->predicted.rows[i];
        if (row->kind == DT_SCALE_WEAK) {
            bad = row->wait > MOST_WAIT ? row : NULL;
            good = bad == NULL ? row : good;
        }
    }
    if (bad == NULL) {
        advise_more(s, good);
        return;
    }
    const double batch = larger_batch(s, bad->n_ranks);
    const int n =
        snprintf(s->advice, sizeof s->advice,
                 "communication is %.0f %% of a step at %d ranks: ", 100 * bad->wait, bad->n_ranks);
    if (batch > 0) {
        snprintf(s->advice + n, sizeof s->advice - (size_t)n,
                 "raise the batch to %.0f a rank or stop at %d", batch, good->n_ranks);
    } else {
        snprintf(s->advice + n, sizeof s->advice - (size_t)n, "stop at %d%s%s", good->n_ranks,
                 bad->fastest != NULL ? ", or take distributed.allreduce=" : "",
                 bad->fastest != NULL ? bad->fastest : "");
    }
}

/* ---- files */

static void put_rows(struct dt_json *json, const struct dt_scale *s, const char *key,
                     const struct dt_scale_table *table)
{
    dt_json_begin(json, key, '[');
    for (int i = 0; i < table->n; i++) {
        const struct dt_scale_row *row = &table->rows[i];
        dt_json_begin(json, NULL, '{');
        dt_json_text(json, "scaling", dt_scale_names[row->kind]);
        dt_json_number(json, "ranks", 0, row->n_ranks);
        dt_json_number(json, "batch", 0, (double)row->batch);
        dt_json_number(json, "step_ms", 0, 1e3 * row->step_s[DT_SCALE_MEDIAN]);
        dt_json_number(json, "step_ms_min", 0, 1e3 * row->step_s[DT_SCALE_LEAST]);
        dt_json_number(json, "step_ms_max", 0, 1e3 * row->step_s[DT_SCALE_MOST]);
        dt_json_number(json, "samples_per_s", 0, dt_scale_rate(row, DT_SCALE_MEDIAN));
        dt_json_number(json, "epoch_s", 0, dt_scale_epoch_s(s, row));
        dt_json_number(json, "efficiency", 0, dt_scale_efficiency(s, row, DT_SCALE_MEDIAN));
        if (table == &s->predicted) {
            dt_json_number(json, "wait", 0, row->wait);
            dt_json_text(json, "fastest", row->fastest != NULL ? row->fastest : "");
        }
        dt_json_end(json, '{');
    }
    dt_json_end(json, '[');
}

static void put_link(struct dt_json *json, const char *key, const struct dt_link_cost *cost)
{
    dt_json_begin(json, key, '{');
    dt_json_number(json, "alpha_us", 0, 1e6 * cost->alpha_s);
    dt_json_number(json, "gb_per_s", 0, cost->beta_s > 0 ? 1e-9 / cost->beta_s : 0);
    dt_json_end(json, '{');
}

static void put_model(struct dt_json *json, const struct dt_scale *s)
{
    const struct dt_scale_job *job = &s->job;
    dt_json_begin(json, "model", '{');
    put_link(json, "within_host", &job->costs.within);
    put_link(json, "between_hosts", &job->costs.between);
    dt_json_text(json, "network", s->has_network ? s->network.name : "");
    dt_json_number(json, "ranks_per_host", 0, job->costs.ranks_per_host);
    dt_json_number(json, "ranks_at_once", 0, job->n_at_once);
    dt_json_number(json, "slowdown", 0, job->slowdown);
    dt_json_number(json, "crowding", 0, job->crowding);
    dt_json_number(json, "message", 0, job->message);
    dt_json_number(json, "message_shared", 0, job->message_shared);
    dt_json_number(json, "overlap", 0, job->overlap);
    dt_json_begin(json, "buckets", '[');
    for (int i = 0; i < job->n_buckets; i++) {
        dt_json_begin(json, NULL, '{');
        dt_json_number(json, "bytes", 0, (double)(job->buckets[i].n_elems * sizeof(float)));
        dt_json_number(json, "ready", 0, job->buckets[i].ready);
        dt_json_end(json, '{');
    }
    dt_json_end(json, '[');
    dt_json_end(json, '{');
}

void dt_scale_put_json(FILE *out, const void *scale)
{
    const struct dt_scale *s = scale;
    struct dt_json json = dt_bench_json(out, "scale", s->world, dt_bench_peak(PEAK_MS));
    dt_json_number(&json, "parameters", 0, (double)s->n_parameters);
    dt_json_text(&json, "device", s->device);
    dt_json_number(&json, "threads", 0, s->n_threads);
    dt_json_text(&json, "allreduce", s->adds_by);
    dt_json_number(&json, "rounds", 0, DT_SCALE_ROUNDS);
    dt_json_number(&json, "spread", 0, spread(s));
    put_rows(&json, s, "measured", &s->measured);
    put_rows(&json, s, "predicted", &s->predicted);
    put_model(&json, s);
    dt_json_text(&json, "advice", s->advice);
    dt_json_end(&json, '{');
    fputc('\n', out);
}

void dt_scale_put_csv(FILE *out, const void *scale)
{
    const struct dt_scale *s = scale;
    const struct dt_scale_table *const tables[] = {&s->measured, &s->predicted};
    fputs("source,scaling,ranks,batch,step_ms,step_ms_min,step_ms_max,samples_per_s,epoch_s,"
          "efficiency,efficiency_min,efficiency_max\n",
          out);
    for (int t = 0; t < 2; t++) {
        for (int i = 0; i < tables[t]->n; i++) {
            const struct dt_scale_row *row = &tables[t]->rows[i];
            if (row->kind < DT_N_SHOWN_KINDS) {
                fprintf(out, "%s,%s,%d,%zu,%.6g,%.6g,%.6g,%.6g,%.6g,%.6g,%.6g,%.6g\n",
                        t == 0 ? "measured" : "predicted", dt_scale_names[row->kind], row->n_ranks,
                        row->batch, 1e3 * row->step_s[DT_SCALE_MEDIAN],
                        1e3 * row->step_s[DT_SCALE_LEAST], 1e3 * row->step_s[DT_SCALE_MOST],
                        dt_scale_rate(row, DT_SCALE_MEDIAN), dt_scale_epoch_s(s, row),
                        dt_scale_efficiency(s, row, DT_SCALE_MEDIAN),
                        dt_scale_efficiency(s, row, DT_SCALE_MOST),
                        dt_scale_efficiency(s, row, DT_SCALE_LEAST));
            }
        }
    }
}
