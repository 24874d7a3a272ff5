#include "ops/doctor/checks.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "cli/text.h"

#define MB 1e6

/* Memory of a rank besides its model's, and /dev/shm for sums of gradients. */
#define MEMORY_WANTED (256 * MB)
#define SHARED_WANTED (64 * MB)
#define NETWORK_MBPS_WANTED 10000
#define FILES_WANTED 256
#define TIME_APART_S                                                             \
    2 /* between the hosts' wall clocks: names of runs and logs keep their order \
       */

__attribute__((format(printf, 3, 4))) static struct dt_finding
found(enum dt_verdict verdict, const char *cure, const char *format, ...)
{
    struct dt_finding finding = {.verdict = verdict};
    va_list args;
    va_start(args, format);
    vsnprintf(finding.text, sizeof finding.text, format, args);
    va_end(args);
    snprintf(finding.cure, sizeof finding.cure, "%s", cure);
    return finding;
}

#define FINE(...) found(DT_VERDICT_OK, "", __VA_ARGS__)
#define NONE(...) found(DT_VERDICT_NONE, "", __VA_ARGS__)
#define WARN(cure, ...) found(DT_VERDICT_WARNING, cure, __VA_ARGS__)
#define FAIL(cure, ...) found(DT_VERDICT_PROBLEM, cure, __VA_ARGS__)

/* ---- one function per check */

static struct dt_finding check_versions(const struct dt_rank_facts *ranks, int n)
{
    for (int r = 1; r < n; r++) {
        if (strcmp(ranks[r].version, ranks[0].version) != 0 ||
            strcmp(ranks[r].mpi, ranks[0].mpi) != 0) {
            return FAIL("install one version everywhere",
                        "rank %d (%s) has dtrain %s on %s, rank 0 has %s on %s", r, ranks[r].host,
                        ranks[r].version, ranks[r].mpi, ranks[0].version, ranks[0].mpi);
        }
    }
    return FINE("dtrain %s on %s, started by %s", ranks[0].version, ranks[0].mpi,
                ranks[0].launcher[0] != '\0' ? ranks[0].launcher : "hand");
}

static struct dt_finding check_environment(const struct dt_rank_facts *ranks, int n)
{
    for (int r = 0; r < n; r++) {
        if (ranks[r].has_ucx_conf) {
            return WARN("remove it unless it is yours: it can overwrite files",
                        "UCX obeys ./ucx.conf in the working folder of rank %d (%s)", r,
                        ranks[r].host);
        }
    }
    if (n == 1) {
        return NONE("one rank: nothing to compare");
    }
    for (int r = 1; r < n; r++) {
        if (ranks[r].environment != ranks[0].environment) {
            return WARN("set them alike on every host, say in the batch script",
                        "MPIR_*, UCX_*, FI_* or NCCL_* of rank %d (%s) are not those of rank 0", r,
                        ranks[r].host);
        }
    }
    return FINE("variables of MPI and NCCL are the same on every rank");
}

/* Counts the CPUs available to the ranks of rank r's host. */
static int count_cpus(const struct dt_rank_facts *ranks, int n, int r)
{
    cpu_set_t all = ranks[r].cpus;
    for (int i = 0; i < n; i++) {
        if (dt_facts_same_host(&ranks[i], &ranks[r])) {
            CPU_OR(&all, &all, &ranks[i].cpus);
        }
    }
    return CPU_COUNT(&all);
}

/* Ranks that share CPUs only slow each other down if there are more ranks than CPUs. */
static struct dt_finding check_cores(const struct dt_rank_facts *ranks, int n)
{
    char cure[96];
    int least = ranks[0].n_cpus, most = ranks[0].n_cpus;
    for (int r = 0; r < n; r++) {
        const int n_ranks = dt_facts_on_host(ranks, n, r), n_cpus = count_cpus(ranks, n, r);
        if (n_ranks > n_cpus) {
            snprintf(cure, sizeof cure, "start at most %d there, or ask for more cores", n_cpus);
            return WARN(cure, "%d ranks of %s share %d core%s", n_ranks, ranks[r].host, n_cpus,
                        n_cpus == 1 ? "" : "s");
        }
        least = ranks[r].n_cpus < least ? ranks[r].n_cpus : least;
        most = ranks[r].n_cpus > most ? ranks[r].n_cpus : most;
    }
    if (least < most) {
        return WARN("give each the same: the others wait for the slowest",
                    "ranks may use %d to %d CPUs", least, most);
    }
    return ranks[0].n_cores == 0
               ? FINE("each rank may use %d CPUs", most)
               : FINE("each rank may use %d CPUs, of %d cores", most, ranks[0].n_cores);
}

/* Estimates the CPUs that other programs take from the ranks of rank r's host: threads that waited
 * for one over the last minute and still do (so neither a run that has just ended nor a short-lived
 * program counts), less our ranks, each of which may be running, and the CPUs that our ranks may
 * not use anyway. */
static double count_taken(const struct dt_rank_facts *ranks, int n, int r)
{
    const struct dt_rank_facts *f = &ranks[r];
    const double others = fmin(f->load, f->n_runnable - dt_facts_on_host(ranks, n, r));
    return others - (f->n_host_cpus - count_cpus(ranks, n, r));
}

static struct dt_finding check_load(const struct dt_rank_facts *ranks, int n)
{
    for (int r = 0; r < n; r++) {
        const double taken =
            dt_facts_is_first(ranks, r) && ranks[r].n_runnable > 0 ? count_taken(ranks, n, r) : 0;
        if (taken >= fmax(1, 0.25 * count_cpus(ranks, n, r))) {
            return WARN("wait for them to end, or ask for whole nodes: sbatch --exclusive",
                        "load %.1f on %d CPU%s of %s: others use them", ranks[r].load,
                        ranks[r].n_host_cpus, ranks[r].n_host_cpus == 1 ? "" : "s", ranks[r].host);
        }
    }
    return ranks[0].n_runnable > 0
               ? FINE("%.1f on %d CPUs of %s", ranks[0].load, ranks[0].n_host_cpus, ranks[0].host)
               : NONE("not known: /proc/loadavg cannot be read");
}

static struct dt_finding check_numa(const struct dt_rank_facts *ranks, int n)
{
    for (int r = 0; r < n; r++) {
        if (ranks[r].n_numa_nodes > 1) {
            return WARN("bind it: mpirun -bind-to numa, or srun --cpu-bind=ldoms",
                        "rank %d (%s) may run on %d NUMA nodes, away from its memory", r,
                        ranks[r].host, ranks[r].n_numa_nodes);
        }
    }
    return ranks[0].n_numa_nodes == 0 ? NONE("not known: built without hwloc")
                                      : FINE("each rank stays on one node");
}

static struct dt_finding check_memory(const struct dt_rank_facts *ranks, int n)
{
    char text[DT_BYTES_TEXT_SIZE];
    double least = (double)INFINITY;
    for (int r = 0; r < n; r++) {
        const double share = ranks[r].memory_free / dt_facts_on_host(ranks, n, r);
        if (share < MEMORY_WANTED) {
            return FAIL("start fewer ranks there, or ask for more memory (sbatch --mem)",
                        "rank %d (%s) has %s, and wants 256 MB", r, ranks[r].host,
                        dt_bytes_text(share, text));
        }
        least = fmin(least, share);
    }
    return FINE("%s free for each rank", dt_bytes_text(least, text));
}

static struct dt_finding check_shared_memory(const struct dt_rank_facts *ranks, int n)
{
    char text[DT_BYTES_TEXT_SIZE];
    double least = (double)INFINITY;
    for (int r = 0; r < n; r++) {
        if (ranks[r].shared_free < SHARED_WANTED && dt_facts_on_host(ranks, n, r) > 1) {
            return WARN(
                "make it larger: mount -o remount,size=1G /dev/shm, or docker run --shm-size=1g",
                "/dev/shm of %s has %s: gradients may have to go by messages", ranks[r].host,
                dt_bytes_text(ranks[r].shared_free, text));
        }
        least = fmin(least, ranks[r].shared_free);
    }
    return FINE("%s free in /dev/shm", dt_bytes_text(least, text));
}

static struct dt_finding check_huge_pages(const struct dt_rank_facts *ranks, int n)
{
    for (int r = 0; r < n; r++) {
        if (strcmp(ranks[r].huge_pages, "never") == 0) {
            return WARN("echo madvise > /sys/kernel/mm/transparent_hugepage/enabled",
                        "%s has none: large layers are slower", ranks[r].host);
        }
    }
    return ranks[0].huge_pages[0] != '\0' ? FINE("%s", ranks[0].huge_pages) : NONE("not known");
}

static struct dt_finding check_limits(const struct dt_rank_facts *ranks, int n)
{
    char text[DT_BYTES_TEXT_SIZE] = "no limit";
    for (int r = 0; r < n; r++) {
        if (ranks[r].max_files < FILES_WANTED) {
            return FAIL("ulimit -n 1024", "rank %d (%s) may open %.0f files, and wants %d", r,
                        ranks[r].host, ranks[r].max_files, FILES_WANTED);
        }
        if (isfinite(ranks[r].max_locked) && dt_facts_count_hosts(ranks, n) > 1) {
            return WARN("ulimit -l unlimited, in /etc/security/limits.d or by Slurm's "
                        "PropagateResourceLimits",
                        "rank %d (%s) may lock %s of memory: InfiniBand wants no limit", r,
                        ranks[r].host, dt_bytes_text(ranks[r].max_locked, text));
        }
    }
    return FINE("files, threads and locked memory suffice");
}

static struct dt_finding check_clocks(const struct dt_rank_facts *ranks, int n)
{
    double error_s = 0, most_s = 0;
    if (n == 1) {
        return NONE("one rank: nothing to compare");
    }
    for (int r = 1; r < n; r++) {
        const double apart_s = fabs(ranks[r].time_of_day_s - ranks[0].time_of_day_s);
        if (apart_s > TIME_APART_S) {
            return WARN("let chrony or ntpd set it", "the time of %s is %.1f s off that of %s",
                        ranks[r].host, apart_s, ranks[0].host);
        }
        most_s = fmax(most_s, apart_s);
        error_s = fmax(error_s, ranks[r].clock.error_s);
    }
    return FINE("wall clocks agree to %.3g ms (measured to within %.1f us)", 1e3 * most_s,
                1e6 * error_s);
}

static struct dt_finding check_network(const struct dt_rank_facts *ranks, int n)
{
    double slowest = (double)INFINITY;
    if (dt_facts_count_hosts(ranks, n) == 1) {
        return NONE("not used: one host");
    }
    for (int r = 0; r < n; r++) {
        if (ranks[r].network[0] == '\0') {
            return FAIL("ask the administrators of the cluster",
                        "rank %d (%s) has no network that is up", r, ranks[r].host);
        }
        if (ranks[r].network_mbps > 0 && ranks[r].network_mbps < NETWORK_MBPS_WANTED) {
            return WARN("have MPI use a faster one, or set distributed.compression",
                        "the fastest of %s, %s, has %.3g Gb/s: steps will wait for gradients",
                        ranks[r].host, ranks[r].network, 1e-3 * ranks[r].network_mbps);
        }
        if (ranks[r].n_ib_active < ranks[r].n_ib_ports) {
            return WARN("check cables and the subnet manager: ibstat",
                        "of %d InfiniBand ports of %s %d are active", ranks[r].n_ib_ports,
                        ranks[r].host, ranks[r].n_ib_active);
        }
        slowest = ranks[r].network_mbps > 0 ? fmin(slowest, ranks[r].network_mbps) : slowest;
    }
    return isinf(slowest) ? NONE("%s; its speed is not known", ranks[0].network)
                          : FINE("%.3g Gb/s on the slowest host", 1e-3 * slowest);
}

static struct dt_finding check_gpus(const struct dt_rank_facts *ranks, int n)
{
    int with = 0, without = 0;
    for (int r = 0; r < n; r++) {
        with += ranks[r].has_gpu;
        without = ranks[r].has_gpu ? without : r;
    }
    if (with == 0 && ranks[0].gpu_health.n_on_host > 0) {
        return WARN("dtrain --version says what this build has",
                    "%s has %d, which no rank uses: %s", ranks[0].host,
                    ranks[0].gpu_health.n_on_host, ranks[0].why_no_gpu);
    }
    if (with == 0) {
        return NONE("none: %s", ranks[0].why_no_gpu);
    }
    if (with < n) {
        return FAIL("ask for one for each rank (sbatch --gpus-per-task=1)",
                    "rank %d (%s) has none, others have: %s", without, ranks[without].host,
                    ranks[without].why_no_gpu);
    }
    for (int r = 0; r < n; r++) {
        for (int i = 0; i < r; i++) {
            if (strcmp(ranks[i].gpu_uuid, ranks[r].gpu_uuid) == 0) {
                return WARN("give each its own (sbatch --gpus-per-task=1)",
                            "ranks %d and %d (%s) share one: no NCCL", i, r, ranks[r].host);
            }
        }
    }
    return FINE("%s, one for each rank", ranks[0].gpu);
}

/* The most serious reason that slows the GPU down; NULL: none. */
static const char *throttle_name(unsigned long long reasons)
{
#define THROTTLE(constant, bit, name) {bit, name},
    static const struct {
        unsigned long long bit;
        const char *name;
    } list[] = {DT_THROTTLE_LIST(THROTTLE)};
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++) {
        if ((reasons & list[i].bit) != 0) {
            return list[i].name;
        }
    }
    return NULL;
}

static struct dt_finding check_gpu_health(const struct dt_rank_facts *ranks, int n)
{
    for (int r = 0; r < n; r++) {
        const struct dt_gpu_health *h = &ranks[r].gpu_health;
        if (h->known && h->n_ecc_errors > 0) {
            return FAIL("drain the node, and reset the GPU: nvidia-smi --gpu-reset",
                        "rank %d (%s): %.0f ECC errors of %s were not corrected", r, ranks[r].host,
                        h->n_ecc_errors, ranks[r].gpu_uuid);
        }
    }
    for (int r = 0; r < n; r++) {
        const struct dt_gpu_health *h = &ranks[r].gpu_health;
        if (h->known && throttle_name(h->throttle) != NULL) {
            return WARN("check cooling and power: nvidia-smi -q -d PERFORMANCE",
                        "rank %d (%s): %s slows %s down", r, ranks[r].host,
                        throttle_name(h->throttle), ranks[r].gpu_uuid);
        }
        if (h->known && h->mig) {
            return WARN("nvidia-smi -mig 0, for NCCL and all of it",
                        "rank %d (%s): %s is in MIG mode, in instances", r, ranks[r].host,
                        ranks[r].gpu_uuid);
        }
        if (strcmp(h->driver, ranks[0].gpu_health.driver) != 0) {
            return WARN("install one driver everywhere",
                        "rank %d (%s) has driver %s, rank 0 has %s", r, ranks[r].host,
                        h->driver[0] != '\0' ? h->driver : "none", ranks[0].gpu_health.driver);
        }
    }
    return ranks[0].gpu_health.known
               ? FINE("driver %s; no ECC errors, no throttling", ranks[0].gpu_health.driver)
               : NONE("not checked: no GPU, or no libnvidia-ml.so.1");
}

/* An idle link lowers its speed to save power, but keeps its width. */
static struct dt_finding check_gpu_links(const struct dt_rank_facts *ranks, int n)
{
    const struct dt_gpu_health *first = &ranks[0].gpu_health;
    for (int r = 0; r < n; r++) {
        const struct dt_gpu_health *h = &ranks[r].gpu_health;
        if (h->known && h->pcie_width < h->pcie_full_width) {
            return WARN("reseat the card, or check the riser and the BIOS",
                        "rank %d (%s): %s has %d of %d PCIe lanes", r, ranks[r].host,
                        ranks[r].gpu_uuid, h->pcie_width, h->pcie_full_width);
        }
        if (h->known && first->known && h->n_nvlinks != first->n_nvlinks) {
            return WARN("nvidia-smi nvlink -s on that host",
                        "rank %d (%s): %d NVLinks are up, of rank 0 %d", r, ranks[r].host,
                        h->n_nvlinks, first->n_nvlinks);
        }
    }
    if (!first->known) {
        return NONE("not checked: no GPU, or no libnvidia-ml.so.1");
    }
    return first->n_nvlinks > 0
               ? FINE("%d NVLinks, PCIe %d x%d", first->n_nvlinks, first->pcie_generation,
                      first->pcie_width)
               : FINE("no NVLink: PCIe %d x%d", first->pcie_generation, first->pcie_width);
}

static struct dt_finding check_data(const struct dt_rank_facts *ranks, int n)
{
    char count[32];
    for (int r = 0; r < n && ranks[r].asked_for_data; r++) {
        if (!ranks[r].sees_data) {
            return FAIL("put it where every host sees it", "rank %d (%s): %s", r, ranks[r].host,
                        ranks[r].why_no_data);
        }
        if (ranks[r].n_samples > ranks[0].n_samples || ranks[r].n_samples < ranks[0].n_samples) {
            return FAIL("give all of them the same files",
                        "rank %d (%s) sees %.0f samples, rank 0 sees %.0f", r, ranks[r].host,
                        ranks[r].n_samples, ranks[0].n_samples);
        }
    }
    return ranks[0].asked_for_data ? FINE("%s training samples, on every rank",
                                          dt_count_text(ranks[0].n_samples, count, sizeof count))
                                   : NONE("not checked (give --config)");
}

/* Rank 0 alone writes; but a requeued job may start on another host. */
static struct dt_finding check_runs(const struct dt_rank_facts *ranks, int n)
{
    if (!ranks[0].sees_run) {
        return FAIL("choose another --run", "%s", ranks[0].why_no_run);
    }
    for (int r = 1; r < n; r++) {
        if (!ranks[r].sees_run) {
            return WARN(
                "choose a --run on storage that all hosts share, so that --resume works anywhere",
                "%s does not see what rank 0 writes on %s", ranks[r].host, ranks[0].host);
        }
    }
    return FINE("rank 0 can write, and every rank sees it");
}

/* Slurm's settings are the same on all ranks: rank 0's. */
static struct dt_finding check_slurm(const struct dt_rank_facts *ranks, int n)
{
    (void)ranks;
    const char *tasks = getenv("SLURM_NTASKS"), *job = getenv("SLURM_JOB_ID"),
               *cpus = getenv("SLURM_CPUS_PER_TASK");
    if (job == NULL) {
        return NONE("not used");
    }
    if (getenv("SLURM_STEP_ID") != NULL && cpus == NULL &&
        getenv("SLURM_NTASKS_PER_CORE") == NULL) {
        return WARN("srun --cpus-per-task=N: since 22.05 it does not take it over from sbatch",
                    "job %s: --cpus-per-task is not set for this step", job);
    }
    if (tasks != NULL && atoi(tasks) != n) {
        return WARN("start as many: srun, or mpirun -np \"$SLURM_NTASKS\"",
                    "job %s has %.10s tasks, and %d rank%s started", job, tasks, n,
                    n == 1 ? " is" : "s are");
    }
    return FINE("job %s%s%s", job, cpus != NULL ? ", CPUs per task: " : "",
                cpus != NULL ? cpus : "");
}

#define ROW(name) {#name, check_##name},
const struct dt_check dt_checks[] = {DT_CHECK_LIST(ROW)};
const int dt_n_checks = sizeof dt_checks / sizeof dt_checks[0];

struct dt_finding dt_check_run(const char *name, const struct dt_rank_facts *ranks, int n)
{
    int i = 0;
    while (strcmp(dt_checks[i].name, name) != 0) {
        i++;
    }
    return dt_checks[i].run(ranks, n);
}
