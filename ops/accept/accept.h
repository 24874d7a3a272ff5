/* `dtrain accept`: its checks, a row each. All ranks run them together and reach the same verdict;
 * rank 0 shows it.
 *   accept.c     the command: runs the checks
 *   cluster.c    checks of all ranks: launch, doctor, example, sums, training, checkpoint, frozen
 *   speed.c      links, memory and matrix products
 *   gradients.c  the backward pass against finite differences
 *   row.c        shared: blame, exchanges, hosts that are far slower than the others
 *   baseline.c   the figures of an earlier result
 *   document.c   the result as a document */
#ifndef DT_OPS_ACCEPT_ACCEPT_H
#define DT_OPS_ACCEPT_ACCEPT_H

#include "cli/args.h"
#include "cli/config/config.h"
#include "dist/ranks/world.h"
#include "model/network.h"
#include "ops/doctor/doctor.h"
#include "train/device.h"
#include "train/hooks/inject.h"
#include "train/save/run_dir.h"

/* X(name, meaning), in the order in which they run */
#define DT_ACCEPT_LIST(X)                                                                     \
    X(launch, "all ranks are there, of one version, as many on each host")                    \
    X(doctor, "the ranks have what a training needs (`dtrain doctor`)")                       \
    X(example, "Horovod's worked example of the gradient tape is reproduced bit for bit")     \
    X(gradients, "the backward pass of a small network agrees with finite differences")       \
    X(sums, "every allreduce algorithm gives exact sums of integers")                         \
    X(links, "messages between any two ranks: no host is far slower than the others")         \
    X(memory, "memory bandwidth: no host is far slower than the others")                      \
    X(compute, "matrix products: no rank is far slower, or no host where ranks share cores")  \
    X(training, "a short training reaches its accuracy, with equal replicas after each step") \
    X(checkpoint, "every rank reads the checkpoint that rank 0 has saved")                    \
    X(frozen, "a rank that stops answering is identified in time")
#define DT_ACCEPT_NUMBER(name, meaning) DT_ACCEPT_##name,
enum dt_accept_number { DT_ACCEPT_LIST(DT_ACCEPT_NUMBER) DT_N_ACCEPT };
#undef DT_ACCEPT_NUMBER

/* Figures that a later run is compared with. X(constant, check, name, unit, digits, key in files of
 * the older shape, less is better) */
#define DT_ACCEPT_FIGURE_LIST(X)                                                  \
    X(LINK_BANDWIDTH, links, "link bandwidth", "GB/s", 2, "bandwidth_gbs", false) \
    X(LINK_LATENCY, links, "link latency", "us", 2, "latency_us", true)           \
    X(MEMORY, memory, "memory bandwidth", "GB/s", 2, "bandwidth_gbs", false)      \
    X(COMPUTE, compute, "matrix products", "GFLOP/s", 1, "gflops", false)
#define DT_ACCEPT_FIGURE_NUMBER(constant, ...) DT_ACCEPT_FIGURE_##constant,
enum { DT_ACCEPT_FIGURE_LIST(DT_ACCEPT_FIGURE_NUMBER) DT_ACCEPT_FIGURES };
#undef DT_ACCEPT_FIGURE_NUMBER

extern const struct dt_accept_figure {
    enum dt_accept_number check;
    const char *check_name, *name, *unit, *old_key;
    int digits;
    bool less;
} dt_accept_figures[DT_ACCEPT_FIGURES];

/* A check's result for one rank. */
struct dt_accept_cell {
    bool failed;
    double value; /* of a measurement; NaN: none */
};

/* Between any two ranks, in either order: one-way latency, and bandwidth. */
struct dt_accept_links {
    int n;                              /* ranks; 0: not measured */
    double *latency_us, *bandwidth_gbs; /* (n, n); NaN from a rank to itself */
};

#define DT_ACCEPT_MEMORY 32 /* buffers of a check, at most */

struct dt_acceptance {
    struct dt_world *world;
    const struct dt_args *args;
    const struct dt_faults *faults; /* injected into the training, to see it fail */
    double tolerance;               /* share by which a figure may be worse than the baseline's */
    struct dt_config config;        /* of the training, and for the choice of `auto` */
    struct dt_device_choice device; /* of the training */
    double measure_s;               /* duration of each measurement on each rank */
    struct dt_rank_probe *ranks;    /* the doctor's facts */
    struct dt_run_dir folder;       /* of the training */
    /* the current check */
    struct dt_accept_cell *cells; /* per rank */
    void *memory[DT_ACCEPT_MEMORY];
    int n_memory;
    char exchange[80]; /* name of the current exchange between ranks */
    char alone[24];    /* of MEASURED: too few to compare, "1 host" */
    /* results on each rank */
    struct dt_finding rows[DT_N_ACCEPT];
    int n_done, n_warnings;           /* rows; the doctor's */
    struct dt_accept_cell *all_cells; /* check i on rank r: [i * ranks + r] */
    struct dt_accept_links links;
    double figures[DT_ACCEPT_FIGURES];  /* of the worst host or rank; NaN: not measured */
    double baseline[DT_ACCEPT_FIGURES]; /* of an earlier run, on rank 0; NaN: none */
    bool trained;
    char checkpoint[DT_PATH_SIZE * 2];
};

/* Returns an error that prevents all further checks; a failure of this check is in the row. An
 * error on which all ranks agree also belongs to the check: it becomes the row's text. */
#define DT_ACCEPT_DECLARE(name, meaning) \
    enum dt_status dt_accept_##name(struct dt_acceptance *a, struct dt_finding *row);
DT_ACCEPT_LIST(DT_ACCEPT_DECLARE)
#undef DT_ACCEPT_DECLARE

/* ---- shared by the checks (row.c) */

/* Fails the row, because of this rank, or of all ranks of its host. The text is the first failure's
 * of the row; its hint is left to the caller. */
void dt_accept_fail(struct dt_acceptance *a, struct dt_finding *row, int rank, bool whole_host,
                    const char *format, ...) __attribute__((format(printf, 5, 6)));

/* dt_world_alloc, until the check ends. */
enum dt_status dt_accept_alloc(struct dt_acceptance *a, size_t n, size_t n_bytes, const char *what,
                               void **out);
/* Gathers every rank's `mine` in such memory. `what`: "memory bandwidths". */
enum dt_status dt_accept_gather(struct dt_acceptance *a, const void *mine, size_t n_bytes,
                                const char *what, void **out);

/* Opens the training's backend, with one thread. */
enum dt_status dt_accept_backend_open(const struct dt_acceptance *a, struct dt_backend **out);

/* A small network, with initial weights and one batch of generated samples (gradients.c). */
struct dt_accept_network {
    struct dt_backend *backend; /* owned */
    struct dt_model model;
    struct dt_network *network;
    struct dt_samples samples;
    struct dt_bound_samples *bound;
    struct dt_batch batch;
    float *params; /* the weights; owned, with the samples behind them */
};

/* Opens the backend and the rest of a zeroed network; close it also after an error. */
enum dt_status dt_accept_network_open(const struct dt_acceptance *a,
                                      const struct dt_model_spec *spec, int n_rows,
                                      struct dt_accept_network *n);
void dt_accept_network_close(struct dt_accept_network *n);

/* ---- ranks or hosts that are far slower than the others (row.c) */

#define DT_ACCEPT_BEHIND 0.62 /* of the median: 38 % below it */
#define DT_ACCEPT_LATE 0.5    /* the same for latencies: twice the median */
#define DT_ACCEPT_LEAST_COMPARED 3

struct dt_behind {
    const char *host;            /* the worst; NULL: none is far behind */
    int rank;                    /* the host's first; by_rank: the worst rank */
    double least, share, median; /* the worst value, its share of the median over all hosts */
    int n_compared;              /* hosts, or ranks */
};

/* From one value per rank, larger is better; a host's is the largest of its ranks', because ranks
 * of one host may slow each other down. by_rank: compares ranks instead of hosts. Fewer than
 * DT_ACCEPT_LEAST_COMPARED are not compared: the outlier would be ambiguous. */
struct dt_behind dt_accept_behind(const double *values, const struct dt_rank_probe *ranks, int n,
                                  bool by_rank);

/* Fills row, cells and figure from a measurement on each rank; larger is better. A host or rank far
 * behind fails; the text names it. */
void dt_accept_compare(struct dt_acceptance *a, int figure, const double *values, bool by_rank,
                       struct dt_finding *row);

/* The row's hint: to leave out `what`, "it", of this host. */
void dt_accept_leave_out(struct dt_finding *row, const char *what, const char *host);

/* ---- an earlier result (baseline.c) */

/* Reads a file of --json, also in its older shape, into a->baseline. Errors of
 * dt_file_read; DT_BAD_DATA: another kind of file, no figures, or another device or number of ranks
 * per host. */
enum dt_status dt_accept_baseline_read(struct dt_acceptance *a, const char *path);

/* The worst value that a figure may have; NaN without a baseline. */
double dt_accept_bound(const struct dt_acceptance *a, int figure);

/* Passes or fails the row of a check by its figures, if the baseline has them. */
void dt_accept_baseline_apply(const struct dt_acceptance *a, enum dt_accept_number check,
                              struct dt_finding *row);

/* The result as a document, on rank 0; the caller closes it. */
struct dt_doc *dt_accept_document(const struct dt_acceptance *a);

#endif
