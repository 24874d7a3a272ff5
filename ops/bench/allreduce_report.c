/* The output of `bench allreduce`: tables in the columns of nccl-tests, and JSON. */
#include <math.h>
#include <stdio.h>
#include <unistd.h>

#include "dist/allreduce/types.h"
#include "ops/bench/allreduce.h"

void dt_sum_print_delay(const struct dt_wire_delay *delay)
{
    printf("# as if a message took %g us", 1e6 * delay->latency_s);
    if (isfinite(delay->bandwidth)) {
        printf(", and links carried %g GB/s", 1e-9 * delay->bandwidth);
    }
    printf("\n\n");
}

void dt_sum_print_head(const struct dt_world *world, const struct dt_bench_options *options,
                       enum dt_allreduce_type type)
{
    const int n = world->size, n_hosts = world->comm->n_hosts;
    printf("# %s: %s\n# %d rank%s on %d host%s; mean of %zu allreduces; slowest rank%s\n",
           dt_allreduce_names[type], dt_allreduce_meaning(type), n, n == 1 ? "" : "s", n_hosts,
           n_hosts == 1 ? "" : "s", options->n_iters,
           world->local_size > sysconf(_SC_NPROCESSORS_ONLN) ? "; ranks share cores" : "");
    printf("# bandwidths in GB/s; msgs and sent: one allreduce, rank that sends most\n");
    printf("#%9s %9s %5s %5s %9s %7s %7s %6s %4s %9s\n", "size(B)", "count", "type", "redop",
           "time(us)", "algbw", "busbw", "#wrong", "msgs", "sent(B)");
}

static double bus_bandwidth(int n_ranks, const struct dt_sum_point *p)
{
    return (double)p->n_bytes / p->mean_s * dt_bench_bus_factor(n_ranks);
}

void dt_sum_print_point(int n_ranks, bool checked, const struct dt_sum_point *p)
{
    char n_wrong[24] = "N/A", n_messages[24] = "-", n_sent[32] = "-";
    if (checked) {
        snprintf(n_wrong, sizeof n_wrong, "%zu", p->n_wrong);
    }
    if (p->counted) {
        snprintf(n_messages, sizeof n_messages, "%llu", (unsigned long long)p->most.messages);
        snprintf(n_sent, sizeof n_sent, "%llu%s", (unsigned long long)p->most.bytes,
                 p->as_predicted ? "" : " FAIL");
    }
    printf(" %9zu %9zu %5s %5s %9.1f %7.3f %7.3f %6s %4s %9s\n", p->n_bytes, p->n_elems, "float",
           "sum", 1e6 * p->mean_s, 1e-9 * (double)p->n_bytes / p->mean_s,
           1e-9 * bus_bandwidth(n_ranks, p), n_wrong, n_messages, n_sent);
    fflush(stdout);
}

void dt_sum_print_between(int n_hosts, const struct dt_sum_row *row)
{
    const struct dt_sum_point *p = &row->points[row->n_points - 1];
    if (p->counted && n_hosts > 1) {
        printf(
            "# of the last size go between hosts: %llu messages, %llu bytes, all ranks together\n",
            (unsigned long long)p->between_hosts.messages,
            (unsigned long long)p->between_hosts.bytes);
    }
}

void dt_sum_print_fits(int n_ranks, const struct dt_sum_row *rows)
{
    printf("#%-20s %11s %15s %12s\n", " fit", "latency(us)", "bandwidth(GB/s)", "max error(%)");
    for (int type = 0; type < DT_N_ALLREDUCE_TYPES; type++) {
        const struct dt_bench_fit *fit = &rows[type].fit;
        if (rows[type].n_points > 0 && fit->found) {
            printf(" %-20s %11.2f %15.3f %12.0f\n", dt_allreduce_names[type], 1e6 * fit->latency_s,
                   1e-9 * fit->bandwidth, 100 * fit->worst);
        } else if (rows[type].n_points > 0) {
            printf(" %-20s %11s %15s %12s\n", dt_allreduce_names[type], "-", "-", "-");
        }
    }
    printf("# time = latency + 2 (n - 1) / n * size / bandwidth, n = %d\n", n_ranks);
}

static bool is_in(const struct dt_sum_group *group, int type)
{
    return group->rows[type].n_points > 0 && dt_allreduce_is_for_gpus(type) == group->on_gpus;
}

/* The fastest type for size i. */
static int fastest_of(const struct dt_sum_group *group, int i)
{
    int fastest = -1;
    for (int type = 0; type < DT_N_ALLREDUCE_TYPES; type++) {
        if (is_in(group, type) && (fastest < 0 || group->rows[type].points[i].mean_s <
                                                      group->rows[fastest].points[i].mean_s)) {
            fastest = type;
        }
    }
    return fastest;
}

void dt_sum_print_fastest(const struct dt_sum_group *group)
{
    int n_ways = 0;
    const struct dt_sum_row *chosen = &group->rows[group->chosen];
    for (int type = 0; type < DT_N_ALLREDUCE_TYPES; type++) {
        n_ways += is_in(group, type);
    }
    if (n_ways < 2) {
        return;
    }
    printf("\n#%9s  %-20s %9s  %-20s %9s\n", "size(B)",
           group->on_gpus ? "fastest, of GPUs" : "fastest", "time(us)", "auto takes", "time(us)");
    for (int i = 0, n = group->rows[fastest_of(group, 0)].n_points; i < n; i++) {
        const int type = fastest_of(group, i);
        const struct dt_sum_point *p = &group->rows[type].points[i];
        char time[24] = "-";
        if (chosen->n_points > 0) {
            snprintf(time, sizeof time, "%.1f", 1e6 * chosen->points[i].mean_s);
        }
        printf(" %9zu  %-20s %9.1f  %-20s %9s\n", p->n_bytes, dt_allreduce_names[type],
               1e6 * p->mean_s, dt_allreduce_names[group->chosen], time);
    }
}

/* ---- JSON */

static void put_point(struct dt_json *json, int n_ranks, const struct dt_sum_point *p)
{
    dt_json_begin(json, NULL, '{');
    dt_json_number(json, "bytes", 0, (double)p->n_bytes);
    dt_json_number(json, "count", 0, (double)p->n_elems);
    dt_json_number(json, "us", 0, 1e6 * p->mean_s);
    dt_json_number(json, "us_min", 0, 1e6 * p->min_s);
    dt_json_number(json, "us_median", 0, 1e6 * p->median_s);
    dt_json_number(json, "us_max", 0, 1e6 * p->max_s);
    dt_json_number(json, "algbw_gbs", 0, 1e-9 * (double)p->n_bytes / p->mean_s);
    dt_json_number(json, "busbw_gbs", 0, 1e-9 * bus_bandwidth(n_ranks, p));
    dt_json_number(json, "wrong", 0, (double)p->n_wrong);
    if (p->counted) {
        dt_json_number(json, "messages", 0, (double)p->most.messages);
        dt_json_number(json, "bytes_sent", 0, (double)p->most.bytes);
        dt_json_number(json, "messages_between_hosts", 0, (double)p->between_hosts.messages);
        dt_json_number(json, "bytes_between_hosts", 0, (double)p->between_hosts.bytes);
    }
    dt_json_end(json, '{');
}

void dt_sum_put_json(struct dt_json *json, int n_ranks, enum dt_allreduce_type type,
                     const struct dt_sum_row *row)
{
    dt_json_begin(json, NULL, '{');
    dt_json_text(json, "name", dt_allreduce_names[type]);
    dt_json_begin(json, "points", '[');
    for (int i = 0; i < row->n_points; i++) {
        put_point(json, n_ranks, &row->points[i]);
    }
    dt_json_end(json, '[');
    if (row->fit.found) {
        dt_json_begin(json, "fit", '{');
        dt_json_number(json, "latency_us", 0, 1e6 * row->fit.latency_s);
        dt_json_number(json, "bandwidth_gbs", 0, 1e-9 * row->fit.bandwidth);
        dt_json_number(json, "worst", 0, row->fit.worst);
        dt_json_end(json, '{');
    } else {
        dt_json_number(json, "fit", 0, NAN); /* null */
    }
    dt_json_end(json, '{');
}
