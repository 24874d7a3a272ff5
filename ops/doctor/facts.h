/* What a rank sees of the machine that it is on. Plain values of one size, which travel between
 * ranks as they are. */
#ifndef DT_OPS_DOCTOR_FACTS_H
#define DT_OPS_DOCTOR_FACTS_H

#include <sched.h>

#include "cli/config/config.h"
#include "dist/ranks/liveness/clocks.h"
#include "dist/ranks/world.h"
#include "ops/doctor/nvml.h"

#define DT_FACT_SIZE 160 /* of a sentence */

struct dt_rank_facts {
    int rank, local_rank;
    char host[DT_HOST_SIZE];
    char version[48], mpi[48]; /* dtrain's, with its commit, and MPI's */
    char launcher[16];         /* "mpirun", "srun", or "" */
    uint32_t environment; /* CRC-32 of the variables that steer MPI and NCCL: MPIR_*, UCX_*, FI_*,
                             NCCL_* */

    bool has_ucx_conf; /* UCX has obeyed a file of the working folder */

    cpu_set_t cpus;     /* that it may use */
    int n_cpus;         /* of them */
    int n_cores;        /* to which they belong; 0: not known */
    int n_numa_nodes;   /* among which these are; 0: not known */
    double load;        /* of the host over the last minute (/proc/loadavg) */
    int n_runnable;     /* its threads that want a CPU now, the ranks' among them; 0: not known */
    int n_host_cpus;    /* that the host has */
    char cpu[64];       /* "AMD EPYC 9654 96-Core Processor", or "" */
    char kernel[64];    /* "Linux 6.1.0-18-amd64" */
    double memory_free; /* bytes, also under the limit of its control group */
    double shared_free; /* of /dev/shm */
    double max_threads, max_files, max_locked; /* limits; infinite: none */
    char huge_pages[16];                       /* "always", "madvise", "never", or "" */

    struct dt_clock_offset clock; /* to rank 0's */
    double time_of_day_s;         /* by the calendar, when rank 0's clock was 0 */

    bool has_gpu;
    char gpu[64], gpu_uuid[48], why_no_gpu[DT_FACT_SIZE];
    struct dt_gpu_health gpu_health;
    char network[16];            /* the fastest interface to other hosts, or "" */
    double network_mbps;         /* 0: not known */
    int n_ib_ports, n_ib_active; /* InfiniBand's, and RoCE's */

    bool asked_for_data, sees_data;
    double n_samples; /* of the training set */
    char why_no_data[DT_FACT_SIZE];
    bool sees_run;                 /* the file that rank 0 left in the folder of runs */
    char why_no_run[DT_FACT_SIZE]; /* rank 0: it could leave none */
};

/* Where runs would go, and what they would read. */
struct dt_doctor_spec {
    const struct dt_config *config; /* NULL: not asked for */
    const char *run;                /* NULL: the folder "runs" */
};

/* All ranks' facts, on every rank; the caller frees. Every rank calls it; agreed. Leaves nothing
 * behind. */
enum dt_status dt_facts_gather(struct dt_world *world, const struct dt_doctor_spec *spec,
                               struct dt_rank_facts **out);

/* As dt_facts_gather, of what a measurement wants to know beforehand: hosts, CPUs and their load
 * alone. */
enum dt_status dt_facts_gather_load(struct dt_world *world, struct dt_rank_facts **out);

/* The name of this machine's processor, as the kernel has it; "" where it has none. */
void dt_facts_cpu(char *text, size_t size);

/* For facts.c: cores and NUMA nodes of the process's CPUs, by hwloc; zeros without it. */
void dt_topology_count(int *n_cores, int *n_numa_nodes);
const char *dt_topology_library(void); /* "hwloc, API 2.8", or "none"; static */

#endif
