/* Measurements of `bench allreduce` (allreduce.c) and their output (allreduce_report.c). */
#ifndef DT_OPS_BENCH_ALLREDUCE_H
#define DT_OPS_BENCH_ALLREDUCE_H

#include "dist/allreduce/allreduce.h"
#include "ops/bench/bench.h"

#define DT_SUM_MAX_SIZES 32

/* Sums of one size. Counts are of one sum, for the rank that sends most; only if `counted` by the
 * wire. */
struct dt_sum_point {
    size_t n_bytes, n_elems, n_wrong;
    double mean_s;                 /* per sum, on the slowest rank */
    double min_s, median_s, max_s; /* of single sums: the shortest and the longest on any rank; the
                                      slowest rank's median */
    bool counted, as_predicted;    /* as_predicted: messages match the formula, or there is none */
    struct dt_wire_count most, between_hosts; /* between_hosts: of all ranks together */
};

/* An allreduce implementation. */
struct dt_sum_row {
    int n_points; /* 0: not measured */
    struct dt_sum_point points[DT_SUM_MAX_SIZES];
    struct dt_bench_fit fit;
};

/* Implementations on the same memory, and the one that auto chooses there. */
struct dt_sum_group {
    const struct dt_sum_row *rows; /* DT_N_ALLREDUCE_TYPES */
    bool on_gpus;
    enum dt_allreduce_type chosen;
};

void dt_sum_print_delay(const struct dt_wire_delay *delay);
void dt_sum_print_head(const struct dt_world *world, const struct dt_bench_options *options,
                       enum dt_allreduce_type type);
void dt_sum_print_point(int n_ranks, bool checked, const struct dt_sum_point *point);
/* Prints the largest sum's traffic between hosts, if there are several. */
void dt_sum_print_between(int n_hosts, const struct dt_sum_row *row);
/* Prints each implementation's time by size as two fitted numbers. */
void dt_sum_print_fits(int n_ranks, const struct dt_sum_row *rows);
/* Prints the fastest implementation by size, beside auto's choice. Nothing unless there are two. */
void dt_sum_print_fastest(const struct dt_sum_group *group);
void dt_sum_put_json(struct dt_json *json, int n_ranks, enum dt_allreduce_type type,
                     const struct dt_sum_row *row);

#endif
