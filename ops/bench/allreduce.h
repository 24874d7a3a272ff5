/* What `bench allreduce` measures (bench_allreduce.c) and tells (bench_allreduce_report.c). */
#ifndef DT_OPS_BENCH_ALLREDUCE_H
#define DT_OPS_BENCH_ALLREDUCE_H

#include "dist/allreduce/allreduce.h"
#include "ops/bench/bench.h"

#define DT_SUM_MAX_SIZES 32

/* Sums of one size. Sent by a rank for one sum, by the one that sends most of each; `counted` where
 * the wire does that. */
struct dt_sum_point {
    size_t n_bytes, n_elems, n_wrong;
    double mean_s; /* of a sum, on the slowest rank */
    double min_s, median_s,
        max_s; /* of one: the shortest and the longest on any rank, the slowest rank's median */
    bool counted, as_foretold;                /* as_foretold: by the formula, where there is one */
    struct dt_wire_count most, between_hosts; /* between_hosts: of all ranks together */
};

/* A way of adding. */
struct dt_sum_row {
    int n_points; /* 0: not measured */
    struct dt_sum_point points[DT_SUM_MAX_SIZES];
    struct dt_bench_fit fit;
};

/* Ways that add in the same memory, and the one that auto takes there. */
struct dt_sum_group {
    const struct dt_sum_row *rows; /* DT_N_ALLREDUCE_TYPES */
    bool on_gpus;
    enum dt_allreduce_type chosen;
};

void dt_sum_print_delay(const struct dt_wire_delay *delay);
cJSON *dt_sum_delay_json(const struct dt_wire_delay *delay);
void dt_sum_print_head(const struct dt_world *world, const struct dt_bench_options *options,
                       enum dt_allreduce_type type);
void dt_sum_print_point(int n_ranks, bool checked, const struct dt_sum_point *point);
/* What the largest sum sends between hosts, if there are several. */
void dt_sum_print_between(int n_hosts, const struct dt_sum_row *row);
/* How long each way takes by its size, in two numbers. */
void dt_sum_print_fits(int n_ranks, const struct dt_sum_row *rows);
/* The fastest by size, beside what auto takes. Nothing unless there are two ways. */
void dt_sum_print_fastest(const struct dt_sum_group *group);
cJSON *dt_sum_json(int n_ranks, enum dt_allreduce_type type, const struct dt_sum_row *row);

#endif
