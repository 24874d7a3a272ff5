/* Measurements of `bench scaling` (scaling.c) and their output (scaling_report.c). */
#ifndef DT_OPS_BENCH_SCALING_H
#define DT_OPS_BENCH_SCALING_H

#include "ops/bench/bench.h"

#define DT_SCALING_WARMUP 5 /* unmeasured steps */
#define DT_SCALING_STEPS 20
#define DT_SCALING_MAX_ROWS 64

/* X(constant, name, meaning) */
#define DT_SCALING_LIST(X)                                  \
    X(DT_SCALING_WEAK, "weak", "each rank keeps its batch") \
    X(DT_SCALING_STRONG, "strong", "the ranks share one batch")
#define DT_SCALING_ENUM(constant, ...) constant,
enum dt_scaling_kind { DT_SCALING_LIST(DT_SCALING_ENUM) DT_N_SCALING_KINDS };
#undef DT_SCALING_ENUM
extern const char *const dt_scaling_names[DT_N_SCALING_KINDS],
    *const dt_scaling_meanings[DT_N_SCALING_KINDS];

struct dt_scaling_row {
    enum dt_scaling_kind kind;
    int n_ranks;
    size_t batch;  /* of all ranks together */
    double step_s; /* median; 0: not measured yet */
    double rate;   /* samples a second */
    double
        efficiency; /* rate over n times that of one rank; for a shared batch that is T1 / (n Tn) */
};

struct dt_scaling {
    const char *unit, *device, *adds_by;
    size_t n_parameters;
    int n_threads;      /* per rank, for any number of ranks */
    int n_host_threads; /* of all ranks on this host */
    int n_rows;         /* all rows of one kind, then the other; each kind begins with one rank */
    struct dt_scaling_row rows[DT_SCALING_MAX_ROWS];
};

void dt_scaling_print(const struct dt_scaling *scaling);
cJSON *dt_scaling_json(const struct dt_world *world, const struct dt_scaling *scaling);
enum dt_status dt_scaling_page(const char *path, const struct dt_scaling *scaling);

#endif
