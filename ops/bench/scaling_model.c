#include "ops/bench/scaling_model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/suggest.h"

double dt_scale_compute_s(const struct dt_scale_job *job, double samples)
{
    int i = 1;
    const double least = job->batches[0].samples, least_s = job->batches[0].seconds;
    while (i < job->n_batches - 1 && job->batches[i].samples < samples) {
        i++;
    }
    const double slope = job->n_batches == 1
                             ? least_s / least
                             : (job->batches[i].seconds - job->batches[i - 1].seconds) /
                                   (job->batches[i].samples - job->batches[i - 1].samples);
    if (samples <= least) {
        const double fixed_s = fmin(fmax(least_s - slope * least, 0), least_s);
        return fixed_s + (least_s - fixed_s) * samples / least;
    }
    return job->batches[i - 1].seconds + slope * (samples - job->batches[i - 1].samples);
}

/* Ranks on a full host. */
static double host_ranks(const struct dt_scale_job *job, int n_ranks)
{
    return fmin(n_ranks, job->costs.ranks_per_host);
}

/* How many ranks take turns on a core. */
static double turns(const struct dt_scale_job *job, int n_ranks)
{
    return fmax(host_ranks(job, n_ranks) / job->n_at_once, 1);
}

/* From 0 where each rank has a core to 1 where two share one. */
static double shared(const struct dt_scale_job *job, int n_ranks)
{
    return fmin(turns(job, n_ranks) - 1, 1);
}

double dt_scale_share(const struct dt_scale_job *job, int n_ranks)
{
    const double at_once = fmin(host_ranks(job, n_ranks), job->n_at_once);
    return turns(job, n_ranks) * (1 + (job->crowding - 1) * shared(job, n_ranks)) *
           (1 + (job->slowdown - 1) * fmax(at_once - 1, 0));
}

static enum dt_status sum_s(const struct dt_scale_job *job,
                            const struct dt_scale_allreduce *allreduce, int n_ranks, size_t n_elems,
                            double *out)
{
    struct dt_simulation simulation;
    struct dt_costs costs = job->costs;
    const double share =
        turns(job, n_ranks) *
        (job->message + (job->message_shared - job->message) * shared(job, n_ranks));
    int size = n_ranks;
    costs.within.alpha_s *= share;
    costs.within.beta_s *= share;
    costs.gamma_s *= share;
    *out = 0;
    if (allreduce->in_memory) {
        const double n_bytes = (double)(n_elems * sizeof(float));
        *out = n_ranks > 1 && costs.ranks_per_host > 1
                   ? costs.within.alpha_s + costs.within.beta_s * n_bytes
                   : 0;
        size = (n_ranks + costs.ranks_per_host - 1) / costs.ranks_per_host;
        costs.ranks_per_host = 1;
    }
    if (size > 1) {
        DT_TRY(dt_simulate(allreduce->algorithm, size, n_elems, &costs, &simulation, NULL));
        *out += simulation.seconds;
    }
    return DT_OK;
}

enum dt_status dt_scale_sums(const struct dt_scale_job *job,
                             const struct dt_scale_allreduce *allreduce, int n_ranks,
                             double *seconds)
{
    for (int i = 0; i < job->n_buckets; i++) {
        int same = 0;
        while (job->buckets[same].n_elems != job->buckets[i].n_elems) {
            same++;
        }
        if (same < i) {
            seconds[i] = seconds[same];
        } else {
            DT_TRY(sum_s(job, allreduce, n_ranks, job->buckets[i].n_elems, &seconds[i]));
        }
    }
    return DT_OK;
}

/* What is left of the sums when the computation ends, if each bucket is sent as soon as it can. */
static double tail_s(const struct dt_scale_job *job, const double *seconds, double compute_s)
{
    double free_s = 0;
    for (int i = 0; i < job->n_buckets; i++) {
        free_s = fmax(free_s, job->buckets[i].ready * compute_s) + seconds[i];
    }
    return fmax(free_s - compute_s, 0);
}

static double all_s(const struct dt_scale_job *job, const double *seconds)
{
    double sum = 0;
    for (int i = 0; i < job->n_buckets; i++) {
        sum += seconds[i];
    }
    return sum;
}

struct dt_scale_step dt_scale_step(const struct dt_scale_job *job, const double *seconds,
                                   int n_ranks, double samples)
{
    struct dt_scale_step step = {.compute_s = dt_scale_compute_s(job, samples) *
                                              dt_scale_share(job, n_ranks),
                                 .sum_s = all_s(job, seconds)};
    const double hidden_s = step.sum_s - tail_s(job, seconds, step.compute_s);
    step.wait_s = step.sum_s - job->overlap * (1 - shared(job, n_ranks)) * hidden_s;
    step.step_s = step.compute_s + step.wait_s;
    return step;
}

enum dt_status dt_scale_fit(struct dt_scale_job *job, const struct dt_scale_allreduce *allreduce,
                            double samples, double apart_s, double wait_s)
{
    double seconds[DT_SCALE_MAX_BUCKETS];
    const double compute_s = dt_scale_compute_s(job, samples) * dt_scale_share(job, 2);
    job->message = 1;
    DT_TRY(dt_scale_sums(job, allreduce, 2, seconds));
    const double sum_s = all_s(job, seconds);
    job->message = sum_s > 0 ? fmax(apart_s, 0) / sum_s : 1;
    for (int i = 0; i < job->n_buckets; i++) {
        seconds[i] *= job->message;
    }
    const double hidden_s = job->message * sum_s - tail_s(job, seconds, compute_s);
    job->overlap = hidden_s > 0 ? fmin(fmax((apart_s - wait_s) / hidden_s, 0), 1) : 1;
    return DT_OK;
}

/* ---- networks */

enum dt_status dt_scale_network_find(const char *text, struct dt_scale_network *out)
{
#define NETWORK_ROW(name, alpha_us, gbs, source) {name, {1e-6 * (alpha_us), 1e-9 / (gbs)}},
    static const struct dt_scale_network networks[] = {DT_SCALE_NETWORK_LIST(NETWORK_ROW)};
    struct dt_suggestion near = {.word = text};
    char *end, *last = NULL;
    for (size_t i = 0; i < sizeof networks / sizeof networks[0]; i++) {
        if (strcmp(networks[i].name, text) == 0) {
            *out = networks[i];
            return DT_OK;
        }
        dt_suggest_offer(&near, networks[i].name);
    }
    const double alpha_us = strtod(text, &end);
    const double gbs = end > text && *end == ',' ? strtod(end + 1, &last) : 0;
    if (last != NULL && last > end + 1 && *last == '\0' && alpha_us >= 0 && alpha_us <= 1e6 &&
        gbs >= 1e-6 && gbs <= 1e6) {
        snprintf(out->name, sizeof out->name, "a network");
        out->cost = (struct dt_link_cost){1e-6 * alpha_us, 1e-9 / gbs};
        return DT_OK;
    }
    if (near.best != NULL) {
        return dt_error(DT_USAGE, "--network: there is no '%.60s' (did you mean '%s'?)", text,
                        near.best);
    }
#define NETWORK_NAME(name, ...) name ", "
    return dt_error(DT_USAGE,
                    "--network: there is no '%.60s' (one of " DT_SCALE_NETWORK_LIST(NETWORK_NAME) //
                    "or microseconds and GB/s, such as 10,1.25)",
                    text);
}
