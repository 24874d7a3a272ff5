/* The checks of `dtrain accept`, one row each: all ranks run them together and reach the same
 * verdict. */
#ifndef DT_OPS_ACCEPT_ROWS_H
#define DT_OPS_ACCEPT_ROWS_H

#include "cli/args.h"
#include "cli/config/config.h"
#include "dist/ranks/world.h"
#include "model/network.h"
#include "ops/doctor/facts.h"
#include "train/device.h"
#include "train/save/run_dir.h"
#include "train/watch/inject.h"

/* A check's result for one rank. */
struct dt_accept_cell {
    bool failed;
    double value; /* the measurement, in the row's unit; NaN: none */
};

/* Between any two ranks, in either order: one-way latency, and bandwidth. */
struct dt_accept_links {
    int n;                              /* ranks; 0: not measured */
    double *latency_us, *bandwidth_gbs; /* (n, n) */
};

/* A figure that a later run can be compared with. */
struct dt_accept_figure {
    char name[24]; /* "bandwidth_gbs"; "": none */
    double value;  /* of the worst rank */
    bool less;     /* smaller is better */
};
#define DT_ACCEPT_FIGURES 2

/* X(constant, word, mark, mark in ASCII, colour on a terminal). MEASURED: a row that only measures
 * has nothing to compare its figures with; SKIPPED: it has nothing to check; neither is a
 * failure. */
#define DT_ACCEPT_VERDICT_LIST(X)                          \
    X(DT_ACCEPT_FAIL, "FAIL", "\u2717", "x", "1;31")       \
    X(DT_ACCEPT_PASS, "PASS", "\u2713", "+", "32")         \
    X(DT_ACCEPT_MEASURED, "MEASURED", "\u25cb", "o", "36") \
    X(DT_ACCEPT_SKIPPED, "SKIPPED", "\u2013", "-", "36")
enum dt_accept_verdict { DT_ACCEPT_VERDICT_LIST(DT_NAMED_ENUM) DT_N_ACCEPT_VERDICTS };

static inline enum dt_accept_verdict dt_accept_verdict(bool passed)
{
    return passed ? DT_ACCEPT_PASS : DT_ACCEPT_FAIL;
}

struct dt_accept_row {
    enum dt_accept_verdict verdict;
    char text[400]; /* the result: figures, or the problem */
    char alone[24]; /* of DT_ACCEPT_MEASURED: too few to compare, "1 host" */
    char unit[16];  /* of the ranks' values */
    struct dt_accept_figure figures[DT_ACCEPT_FIGURES];
};

/* X(name, meaning), in the order in which they run */
#define DT_ACCEPT_LIST(X)                                                                        \
    X(launch, "all ranks are there, of one version, as many on each host")                       \
    X(doctor, "the ranks have what a training needs (dtrain doctor)")                            \
    X(example, "Horovod's worked example of the gradient tape comes out, bit for bit")           \
    X(gradients,                                                                                 \
      "the backward pass of a small network agrees with finite differences of its loss")         \
    X(sums, "every allreduce algorithm gives exact sums of whole numbers")                       \
    X(links, "messages between any two ranks: no host is far slower than the others")            \
    X(memory, "memory bandwidth: no host is far slower than the others")                         \
    X(compute, "matrix products: no rank is far slower than the others, or no host where ranks " \
               "share cores")                                                                    \
    X(training, "a short training reaches its accuracy, the replicas equal after each step")     \
    X(checkpoint, "every rank reads back what rank 0 has saved")                                 \
    X(frozen, "a rank that stops answering is reported in time")
#define DT_ACCEPT_NUMBER(name, meaning) DT_ACCEPT_NUMBER_##name,
enum { DT_ACCEPT_LIST(DT_ACCEPT_NUMBER) DT_N_ACCEPT };
#undef DT_ACCEPT_NUMBER

#define DT_ACCEPT_MEMORY 32 /* pieces of a check, at most */

struct dt_acceptance {
    struct dt_world *world;
    const struct dt_args *args;
    const struct dt_faults *faults;   /* injected into the training, to see it fail */
    struct dt_config config;          /* of the training, and for the choice of `auto` */
    struct dt_device_choice device;   /* of the training */
    double measure_s;                 /* duration of each measurement on each rank */
    struct dt_rank_facts *ranks;      /* the doctor's facts */
    char date[24];                    /* of the start, in UTC: "2026-11-23T17:04:05Z" */
    struct dt_accept_cell *all_cells; /* check i on rank r: [i * ranks + r] */
    struct dt_accept_cell *cells;     /* per rank, for the current check */
    struct dt_accept_links links;
    struct dt_run_dir folder;       /* of the training */
    void *memory[DT_ACCEPT_MEMORY]; /* of the current check */
    int n_memory;
    char exchange[80]; /* name of the current exchange between ranks */
    /* the result, on each rank */
    struct dt_accept_row rows[DT_N_ACCEPT];
    double seconds[DT_N_ACCEPT];
    int n_done, counts[DT_N_ACCEPT_VERDICTS]; /* number of rows per verdict */
    /* results of the training for the rows after it */
    bool trained;
    char checkpoint[DT_PATH_SIZE * 2];
};

/* Returns an error that prevents all further checks; a failure of this check is in the row. An
 * error on which all ranks agree also belongs to the check: it becomes the row's text. */
#define DT_ACCEPT_DECLARE(name, meaning) \
    enum dt_status dt_accept_##name(struct dt_acceptance *a, struct dt_accept_row *row);
DT_ACCEPT_LIST(DT_ACCEPT_DECLARE)
#undef DT_ACCEPT_DECLARE

/* ---- what checks share (check.c) */

/* Gives the row its verdict and its text. */
void dt_accept_say(struct dt_accept_row *row, enum dt_accept_verdict verdict, const char *format,
                   ...) __attribute__((format(printf, 3, 4)));
/* Fails the row, because of this rank, or of all ranks of its host. The text is the first failure's
 * of the row. */
void dt_accept_fail(struct dt_acceptance *a, struct dt_accept_row *row, int rank, bool whole_host,
                    const char *format, ...) __attribute__((format(printf, 5, 6)));

/* dt_world_alloc, until the check ends. */
enum dt_status dt_accept_alloc(struct dt_acceptance *a, size_t n, size_t n_bytes, const char *what,
                               void **out);
/* Gathers every rank's `mine` in such memory. `what`: "memory bandwidths". */
enum dt_status dt_accept_gather(struct dt_acceptance *a, const void *mine, size_t n_bytes,
                                const char *what, void **out);
/* Frees the memory of the check that has ended. */
void dt_accept_free(struct dt_acceptance *a);

/* Opens the training's backend, with one thread. */
enum dt_status dt_accept_backend_open(const struct dt_acceptance *a, struct dt_backend **out);

/* A small network, with initial weights and one batch of generated samples (network.c). */
struct dt_accept_network {
    struct dt_backend *backend; /* owned */
    struct dt_model model;
    struct dt_network *network;
    struct dt_samples samples;
    struct dt_bound_samples *bound;
    struct dt_batch batch;
    float *params, *values; /* the weights, and the samples */
    uint16_t *labels;
    uint32_t *order;
};

/* Opens the rest of a zeroed network with an open backend; close it also after an error. */
enum dt_status dt_accept_network_open(struct dt_accept_network *n, const struct dt_model_spec *spec,
                                      int n_rows);
void dt_accept_network_close(struct dt_accept_network *n);

/* ---- ranks or hosts behind the others */

#define DT_ACCEPT_BEHIND 0.62 /* of the median: 38 % below it */
#define DT_ACCEPT_LEAST_COMPARED 3

struct dt_behind {
    const char *host; /* the worst; NULL: none is far behind */
    int rank;         /* the host's first; by_rank: the worst rank */
    double share;     /* of the median over all hosts */
    double median;
    int n_compared; /* hosts, or ranks */
};

/* From one value per rank, larger is better; a host's is the largest of its ranks', because ranks
 * of one host may slow each other down. by_rank: compares ranks instead of hosts. Fewer than
 * DT_ACCEPT_LEAST_COMPARED are not compared: the outlier would be ambiguous. */
struct dt_behind dt_accept_behind(const double *values, const struct dt_rank_facts *ranks, int n,
                                  bool by_rank);

/* A measurement on each rank; larger is better. */
struct dt_accept_measured {
    const double *values;
    const char *unit, *figure;
    bool by_rank;
};

/* Fills row and cells: a host or rank far behind fails; the text names it, with the cure. */
void dt_accept_compare(struct dt_acceptance *a, const struct dt_accept_measured *measured,
                       struct dt_accept_row *row);

#endif
