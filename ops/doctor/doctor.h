/* `dtrain doctor`: each rank's facts about its machine (probe.c), and checks of all ranks' facts
 * (checks.c). Facts are plain values of fixed size, sent between ranks as they are. */
#ifndef DT_OPS_DOCTOR_DOCTOR_H
#define DT_OPS_DOCTOR_DOCTOR_H

#include <sched.h>
#include <string.h>

#include "cli/args.h"
#include "cli/config/config.h"
#include "dist/liveness/clocks.h"
#include "dist/ranks/world.h"
#include "view/document.h"

/* ---- a GPU's health as NVIDIA's management library reports it, which belongs to the driver and is
 * loaded if present, without its header (nvml.c) */

/* X(constant, bit of nvmlClocksThrottleReasons, name): reasons for low clocks that have to be
 * fixed; an idle GPU's clocks are low, too. */
#define DT_THROTTLE_LIST(X)                                         \
    X(DT_THROTTLE_HW, 0x8, "hardware slowdown")                     \
    X(DT_THROTTLE_SW_THERMAL, 0x20, "temperature, by the driver")   \
    X(DT_THROTTLE_HW_THERMAL, 0x40, "temperature, by the hardware") \
    X(DT_THROTTLE_POWER_BRAKE, 0x80, "the power supply's brake")

struct dt_gpu_health {
    int n_on_host;       /* GPUs that the library sees; 0: no library, or no GPU */
    char driver[32];     /* the driver's version */
    bool known;          /* the fields below are valid, for the rank's GPU */
    double n_ecc_errors; /* uncorrected ones since the driver was loaded; negative: it has no ECC */
    unsigned long long throttle; /* reasons */
    int n_nvlinks;               /* that are up */
    int pcie_generation, pcie_width,
        pcie_full_width; /* the current link, and its maximum number of lanes; 0: unknown */
    bool mig;            /* divided into instances */
};

/* uuid: of the rank's GPU ("GPU-..."), or "" if it uses none. Unknown values stay 0. */
void dt_gpu_health_find(const char *uuid, struct dt_gpu_health *out);

#define DT_FACT_SIZE 160 /* of a sentence */

struct dt_rank_probe {
    int rank, local_rank;
    char host[DT_HOST_SIZE];
    char version[48], mpi[48]; /* dtrain's, with its commit, and MPI's */
    char launcher[16];         /* "mpirun", "srun", or "" */
    uint32_t environment; /* CRC-32 of MPI's and NCCL's variables: MPIR_*, UCX_*, FI_*, NCCL_* */

    bool has_ucx_conf; /* UCX has read a ucx.conf in the working folder */

    cpu_set_t cpus;   /* available to it */
    int n_cpus;       /* number of these CPUs */
    int n_cores;      /* number of their cores; 0: unknown */
    int n_numa_nodes; /* number of their NUMA nodes; 0: unknown */
    double load;      /* the host's, averaged over the last minute (/proc/loadavg) */
    int n_runnable;   /* the host's threads that want a CPU now, including the ranks'; 0: unknown */
    int n_host_cpus;  /* of the host */
    char cpu[64];     /* "AMD EPYC 9654 96-Core Processor", or "" */
    char kernel[64];  /* "Linux 6.1.0-18-amd64" */
    double memory_free;           /* bytes, within the limit of its control group */
    double shared_free;           /* of /dev/shm */
    double max_files, max_locked; /* limits; infinite: none */
    char huge_pages[16];          /* "always", "madvise", "never", or "" */

    struct dt_clock_offset clock; /* relative to rank 0's */
    double time_of_day_s;         /* wall-clock time when rank 0's clock was 0 */

    bool has_gpu;
    char gpu[64], gpu_uuid[48], why_no_gpu[DT_FACT_SIZE];
    struct dt_gpu_health gpu_health;
    char network[16];            /* the fastest interface to other hosts, or "" */
    double network_mbps;         /* 0: unknown */
    int n_ib_ports, n_ib_active; /* ports of InfiniBand and RoCE */

    bool asked_for_data, sees_data;
    double n_samples; /* of the training set */
    char why_no_data[DT_FACT_SIZE];
    bool sees_run;                 /* the file that rank 0 wrote to the folder of runs */
    char why_no_run[DT_FACT_SIZE]; /* on rank 0: why it could not write one */
};

static inline bool dt_probe_same_host(const struct dt_rank_probe *a, const struct dt_rank_probe *b)
{
    return strcmp(a->host, b->host) == 0;
}
/* True if rank r is the first of its host. */
bool dt_probe_is_first(const struct dt_rank_probe *ranks, int r);
int dt_probe_count_hosts(const struct dt_rank_probe *ranks, int n);
/* Number of ranks on rank r's host. */
int dt_probe_on_host(const struct dt_rank_probe *ranks, int n, int r);

/* Where runs would write, and the data they would read. */
struct dt_doctor_spec {
    const struct dt_config *config; /* NULL: do not check the data */
    const char *run;                /* NULL: the folder "runs" */
};

/* Gathers all ranks' facts, on every rank; the caller frees. spec NULL: only the facts needed
 * before a measurement: hosts, CPUs and their load. Every rank calls it; agreed. Leaves no files
 * behind. */
enum dt_status dt_probe_gather(struct dt_world *world, const struct dt_doctor_spec *spec,
                               struct dt_rank_probe **out);

/* The kernel's name for this machine's processor; "" if it has none. */
void dt_probe_cpu(char *text, size_t size);

/* ---- findings: what a check says, here and in `dtrain accept` */

struct dt_finding {
    const char *name; /* the check's */
    double seconds;
    enum dt_verdict verdict; /* SKIPPED: there is nothing to check */
    char text[400];
    char hint[2000]; /* how to mend it, or "" */
};

/* `hint` may be NULL. Name and time are left out. */
struct dt_finding dt_find(enum dt_verdict verdict, const char *hint, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The document's main table, with a column of times if `timed`, and its verdict: "PASS: 8 of 11
 * checks passed, 3 not compared, 2 warnings". n_warnings: negative: the number of rows. */
void dt_findings_show(struct dt_doc *doc, const struct dt_finding *findings, int n, bool timed,
                      int n_warnings);

/* Figures that say when, how and with what: date, command, versions, launcher, number of ranks. */
struct dt_part *dt_record_show(struct dt_doc *doc, const struct dt_args *args,
                               const struct dt_rank_probe *ranks, int n);

static inline int dt_findings_count(const struct dt_finding *findings, int n,
                                    enum dt_verdict verdict)
{
    int count = 0;
    for (int i = 0; i < n; i++) {
        count += findings[i].verdict == verdict;
    }
    return count;
}

/* X(function, name), in the order in which they are shown */
#define DT_CHECK_LIST(X)              \
    X(versions, "versions")           \
    X(environment, "environment")     \
    X(cores, "cores")                 \
    X(load, "load")                   \
    X(numa, "numa")                   \
    X(memory, "memory")               \
    X(shared_memory, "shared memory") \
    X(huge_pages, "huge pages")       \
    X(limits, "limits")               \
    X(clocks, "clocks")               \
    X(network, "network")             \
    X(gpus, "gpus")                   \
    X(gpu_health, "gpu health")       \
    X(gpu_links, "gpu links")         \
    X(data, "data")                   \
    X(runs, "runs")                   \
    X(slurm, "slurm")
#define DT_CHECK_NUMBER(function, name) DT_CHECK_##function,
enum dt_check { DT_CHECK_LIST(DT_CHECK_NUMBER) DT_N_CHECKS };
#undef DT_CHECK_NUMBER

struct dt_finding dt_check_run(enum dt_check check, const struct dt_rank_probe *ranks, int n);
void dt_checks_run(const struct dt_rank_probe *ranks, int n,
                   struct dt_finding findings[DT_N_CHECKS]);

#endif
