#include "ops/doctor/doctor.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "cli/cli_text.h"

#define MB 1e6

/* Memory of a rank besides its model's, and /dev/shm for sums of gradients. */
#define MEMORY_WANTED (256 * MB)
#define SHARED_WANTED (64 * MB)
#define NETWORK_MBPS_WANTED 10000
#define FILES_WANTED 256
#define TIME_APART_S 2 /* between the hosts' wall clocks: runs and logs keep their order */

struct dt_finding dt_find(enum dt_verdict verdict, const char *hint, const char *format, ...)
{
    struct dt_finding finding = {.verdict = verdict};
    va_list args;
    va_start(args, format);
    vsnprintf(finding.text, sizeof finding.text, format, args);
    va_end(args);
    snprintf(finding.hint, sizeof finding.hint, "%s", hint != NULL ? hint : "");
    return finding;
}

#define FINE(...) dt_find(DT_VERDICT_PASS, NULL, __VA_ARGS__)
#define NONE(...) dt_find(DT_VERDICT_SKIPPED, NULL, __VA_ARGS__)
#define WARN(hint, ...) dt_find(DT_VERDICT_WARN, hint, __VA_ARGS__)
#define FAIL(hint, ...) dt_find(DT_VERDICT_FAIL, hint, __VA_ARGS__)

#define AT "rank %d (%s)"
#define WHERE f->rank, f->host

/* The first rank's finding for which the condition holds; f: its facts. */
#define ANY(condition, verdict, hint, ...)                            \
    for (const struct dt_rank_probe *f = ranks; f < ranks + n; f++) { \
        if (condition) {                                              \
            return verdict(hint, __VA_ARGS__);                        \
        }                                                             \
    }

/* ---- one function per check */

static struct dt_finding check_versions(const struct dt_rank_probe *ranks, int n)
{
    const struct dt_rank_probe *first = ranks;
    ANY(strcmp(f->version, first->version) != 0 || strcmp(f->mpi, first->mpi) != 0, FAIL,
        "install one version everywhere", AT " has dtrain %s on %s, rank 0 has %s on %s", WHERE,
        f->version, f->mpi, first->version, first->mpi)
    return FINE("dtrain %s on %s, started by %s", first->version, first->mpi,
                first->launcher[0] != '\0' ? first->launcher : "hand");
}

static struct dt_finding check_environment(const struct dt_rank_probe *ranks, int n)
{
    ANY(f->has_ucx_conf, WARN, "remove it unless it is yours: it can overwrite files",
        "UCX obeys ./ucx.conf in the working folder of " AT, WHERE)
    ANY(f->environment != ranks[0].environment, WARN,
        "set them alike on every host, say in the batch script",
        "MPIR_*, UCX_*, FI_* or NCCL_* of " AT " are not those of rank 0", WHERE)
    return n == 1 ? NONE("one rank: nothing to compare")
                  : FINE("variables of MPI and NCCL are the same on every rank");
}

/* Counts the CPUs available to the ranks of a rank's host. */
static int count_cpus(const struct dt_rank_probe *ranks, int n, const struct dt_rank_probe *f)
{
    cpu_set_t all = f->cpus;
    for (int i = 0; i < n; i++) {
        if (dt_probe_same_host(&ranks[i], f)) {
            CPU_OR(&all, &all, &ranks[i].cpus);
        }
    }
    return CPU_COUNT(&all);
}

/* Ranks that share CPUs only slow each other down if there are more ranks than CPUs. */
static struct dt_finding check_cores(const struct dt_rank_probe *ranks, int n)
{
    int least = ranks[0].n_cpus, most = ranks[0].n_cpus;
    for (const struct dt_rank_probe *f = ranks; f < ranks + n; f++) {
        char hint[96];
        const int n_ranks = dt_probe_on_host(ranks, n, f->rank), n_cpus = count_cpus(ranks, n, f);
        if (n_ranks > n_cpus) {
            snprintf(hint, sizeof hint, "start at most %d there, or ask for more cores", n_cpus);
            return WARN(hint, "%d ranks of %s share %d core%s", n_ranks, f->host, n_cpus,
                        n_cpus == 1 ? "" : "s");
        }
        least = f->n_cpus < least ? f->n_cpus : least;
        most = f->n_cpus > most ? f->n_cpus : most;
    }
    return least < most ? WARN("give each the same: the others wait for the slowest",
                               "ranks may use %d to %d CPUs", least, most)
           : ranks[0].n_cores == 0
               ? FINE("each rank may use %d CPUs", most)
               : FINE("each rank may use %d CPUs, of %d cores", most, ranks[0].n_cores);
}

/* Whether other programs take at least one CPU and a quarter of those that the ranks of a host may
 * use. Their threads waited for a CPU over the last minute and still do (so neither a run that has
 * just ended nor a short-lived program counts), less our ranks, each of which may be running, and
 * the CPUs that our ranks may not use anyway. */
static bool is_loaded(const struct dt_rank_probe *ranks, int n, const struct dt_rank_probe *f)
{
    const int n_cpus = count_cpus(ranks, n, f);
    const double others = fmin(f->load, f->n_runnable - dt_probe_on_host(ranks, n, f->rank));
    return f->n_runnable > 0 && others - (f->n_host_cpus - n_cpus) >= fmax(1, 0.25 * n_cpus);
}

static struct dt_finding check_load(const struct dt_rank_probe *ranks, int n)
{
    ANY(is_loaded(ranks, n, f), WARN,
        "wait for them to end, or ask for whole nodes: sbatch --exclusive",
        "load %.1f on %d CPU%s of %s: others use them", f->load, f->n_host_cpus,
        f->n_host_cpus == 1 ? "" : "s", f->host)
    return ranks[0].n_runnable > 0
               ? FINE("%.1f on %d CPUs of %s", ranks[0].load, ranks[0].n_host_cpus, ranks[0].host)
               : NONE("not known: /proc/loadavg cannot be read");
}

static struct dt_finding check_numa(const struct dt_rank_probe *ranks, int n)
{
    ANY(f->n_numa_nodes > 1, WARN, "bind it: mpirun -bind-to numa, or srun --cpu-bind=ldoms",
        AT " may run on %d NUMA nodes, away from its memory", WHERE, f->n_numa_nodes)
    return ranks[0].n_numa_nodes == 0 ? NONE("not known: built without hwloc")
                                      : FINE("each rank stays on one node");
}

static struct dt_finding check_memory(const struct dt_rank_probe *ranks, int n)
{
    char text[DT_BYTES_TEXT_SIZE];
    double least = (double)INFINITY;
#define SHARE(f) ((f)->memory_free / dt_probe_on_host(ranks, n, (f)->rank))
    ANY(SHARE(f) < MEMORY_WANTED, FAIL,
        "start fewer ranks there, or ask for more memory (sbatch --mem)",
        AT " has %s, and wants 256 MB", WHERE, dt_bytes_text(SHARE(f), text))
    for (int r = 0; r < n; r++) {
        least = fmin(least, SHARE(&ranks[r]));
    }
    return FINE("%s free for each rank", dt_bytes_text(least, text));
}

static struct dt_finding check_shared_memory(const struct dt_rank_probe *ranks, int n)
{
    char text[DT_BYTES_TEXT_SIZE];
    double least = (double)INFINITY;
    ANY(f->shared_free < SHARED_WANTED && dt_probe_on_host(ranks, n, f->rank) > 1, WARN,
        "make it larger: mount -o remount,size=1G /dev/shm, or docker run --shm-size=1g",
        "/dev/shm of %s has %s: gradients may have to go by messages", f->host,
        dt_bytes_text(f->shared_free, text))
    for (int r = 0; r < n; r++) {
        least = fmin(least, ranks[r].shared_free);
    }
    return FINE("%s free in /dev/shm", dt_bytes_text(least, text));
}

static struct dt_finding check_huge_pages(const struct dt_rank_probe *ranks, int n)
{
    ANY(strcmp(f->huge_pages, "never") == 0, WARN,
        "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled",
        "%s has none: large layers are slower", f->host)
    return ranks[0].huge_pages[0] != '\0' ? FINE("%s", ranks[0].huge_pages) : NONE("not known");
}

static struct dt_finding check_limits(const struct dt_rank_probe *ranks, int n)
{
    char text[DT_BYTES_TEXT_SIZE];
    ANY(f->max_files < FILES_WANTED, FAIL, "ulimit -n 1024",
        AT " may open %.0f files, and wants %d", WHERE, f->max_files, FILES_WANTED)
    ANY(isfinite(f->max_locked) && dt_probe_count_hosts(ranks, n) > 1, WARN,
        "ulimit -l unlimited, in /etc/security/limits.d or by Slurm's PropagateResourceLimits",
        AT " may lock %s of memory: InfiniBand wants no limit", WHERE,
        dt_bytes_text(f->max_locked, text))
    return FINE("files, threads and locked memory suffice");
}

static struct dt_finding check_clocks(const struct dt_rank_probe *ranks, int n)
{
    double error_s = 0, most_s = 0;
#define APART_S(f) fabs((f)->time_of_day_s - ranks[0].time_of_day_s)
    ANY(APART_S(f) > TIME_APART_S, WARN, "let chrony or ntpd set it",
        "the time of %s is %.1f s off that of %s", f->host, APART_S(f), ranks[0].host)
    for (int r = 1; r < n; r++) {
        most_s = fmax(most_s, APART_S(&ranks[r]));
        error_s = fmax(error_s, ranks[r].clock.error_s);
    }
    return n == 1 ? NONE("one rank: nothing to compare")
                  : FINE("wall clocks agree to %.3g ms (measured to within %.1f us)", 1e3 * most_s,
                         1e6 * error_s);
}

static struct dt_finding check_network(const struct dt_rank_probe *ranks, int n)
{
    double slowest = (double)INFINITY;
    if (dt_probe_count_hosts(ranks, n) == 1) {
        return NONE("not used: one host");
    }
    ANY(f->network[0] == '\0', FAIL, "ask the administrators of the cluster",
        AT " has no network that is up", WHERE)
    ANY(f->network_mbps > 0 && f->network_mbps < NETWORK_MBPS_WANTED, WARN,
        "have MPI use a faster one, or set distributed.compression",
        "the fastest of %s, %s, has %.3g Gb/s: steps will wait for gradients", f->host, f->network,
        1e-3 * f->network_mbps)
    ANY(f->n_ib_active < f->n_ib_ports, WARN, "check cables and the subnet manager: ibstat",
        "of %d InfiniBand ports of %s %d are active", f->n_ib_ports, f->host, f->n_ib_active)
    for (int r = 0; r < n; r++) {
        slowest = ranks[r].network_mbps > 0 ? fmin(slowest, ranks[r].network_mbps) : slowest;
    }
    return isinf(slowest) ? NONE("%s; its speed is not known", ranks[0].network)
                          : FINE("%.3g Gb/s on the slowest host", 1e-3 * slowest);
}

/* The rank before f with the same GPU; or f. */
static int sharer_of(const struct dt_rank_probe *ranks, const struct dt_rank_probe *f)
{
    int r = 0;
    while (strcmp(ranks[r].gpu_uuid, f->gpu_uuid) != 0) {
        r++;
    }
    return r;
}

static struct dt_finding check_gpus(const struct dt_rank_probe *ranks, int n)
{
    int with = 0;
    for (int r = 0; r < n; r++) {
        with += ranks[r].has_gpu;
    }
    if (with == 0) {
        const int unused = ranks[0].gpu_health.n_on_host;
        return unused > 0 ? WARN("dtrain --version says what this build has",
                                 "%s has %d, which no rank uses: %s", ranks[0].host, unused,
                                 ranks[0].why_no_gpu)
                          : NONE("none: %s", ranks[0].why_no_gpu);
    }
    ANY(!f->has_gpu, FAIL, "ask for one for each rank (sbatch --gpus-per-task=1)",
        AT " has none, others have: %s", WHERE, f->why_no_gpu)
    ANY(sharer_of(ranks, f) < f->rank, WARN, "give each its own (sbatch --gpus-per-task=1)",
        "ranks %d and %d (%s) share one: no NCCL", sharer_of(ranks, f), WHERE)
    return FINE("%s, one for each rank", ranks[0].gpu);
}

/* The most serious reason that slows the GPU down; NULL: none. */
static const char *throttle_name(unsigned long long reasons)
{
#define THROTTLE(constant, bit, name) (reasons & (bit)) != 0 ? name:
    return DT_THROTTLE_LIST(THROTTLE) NULL;
}

static struct dt_finding check_gpu_health(const struct dt_rank_probe *ranks, int n)
{
    const struct dt_gpu_health *first = &ranks[0].gpu_health;
    ANY(f->gpu_health.known && f->gpu_health.n_ecc_errors > 0, FAIL,
        "drain the node, and reset the GPU: nvidia-smi --gpu-reset",
        AT ": %.0f ECC errors of %s were not corrected", WHERE, f->gpu_health.n_ecc_errors,
        f->gpu_uuid)
    ANY(f->gpu_health.known && throttle_name(f->gpu_health.throttle) != NULL, WARN,
        "check cooling and power: nvidia-smi -q -d PERFORMANCE", AT ": %s slows %s down", WHERE,
        throttle_name(f->gpu_health.throttle), f->gpu_uuid)
    ANY(f->gpu_health.known && f->gpu_health.mig, WARN, "nvidia-smi -mig 0, for NCCL and all of it",
        AT ": %s is in MIG mode, in instances", WHERE, f->gpu_uuid)
    ANY(strcmp(f->gpu_health.driver, first->driver) != 0, WARN, "install one driver everywhere",
        AT " has driver %s, rank 0 has %s", WHERE,
        f->gpu_health.driver[0] != '\0' ? f->gpu_health.driver : "none", first->driver)
    return first->known ? FINE("driver %s; no ECC errors, no throttling", first->driver)
                        : NONE("not checked: no GPU, or no libnvidia-ml.so.1");
}

/* An idle link lowers its speed to save power, but keeps its width. */
static struct dt_finding check_gpu_links(const struct dt_rank_probe *ranks, int n)
{
    const struct dt_gpu_health *first = &ranks[0].gpu_health;
    ANY(f->gpu_health.known && f->gpu_health.pcie_width < f->gpu_health.pcie_full_width, WARN,
        "reseat the card, or check the riser and the BIOS", AT ": %s has %d of %d PCIe lanes",
        WHERE, f->gpu_uuid, f->gpu_health.pcie_width, f->gpu_health.pcie_full_width)
    ANY(f->gpu_health.known && first->known && f->gpu_health.n_nvlinks != first->n_nvlinks, WARN,
        "nvidia-smi nvlink -s on that host", AT ": %d NVLinks are up, of rank 0 %d", WHERE,
        f->gpu_health.n_nvlinks, first->n_nvlinks)
    return !first->known ? NONE("not checked: no GPU, or no libnvidia-ml.so.1")
           : first->n_nvlinks > 0
               ? FINE("%d NVLinks, PCIe %d x%d", first->n_nvlinks, first->pcie_generation,
                      first->pcie_width)
               : FINE("no NVLink: PCIe %d x%d", first->pcie_generation, first->pcie_width);
}

static struct dt_finding check_data(const struct dt_rank_probe *ranks, int n)
{
    char count[32];
    const double n_samples = ranks[0].n_samples;
    if (!ranks[0].asked_for_data) {
        return NONE("not checked (give --config)");
    }
    ANY(!f->sees_data, FAIL, "put it where every host sees it", AT ": %s", WHERE, f->why_no_data)
    ANY(f->n_samples > n_samples || f->n_samples < n_samples, FAIL,
        "give all of them the same files", AT " sees %.0f samples, rank 0 sees %.0f", WHERE,
        f->n_samples, n_samples)
    return FINE("%s training samples, on every rank",
                dt_count_text(n_samples, count, sizeof count));
}

/* Rank 0 alone writes; but a requeued job may start on another host. */
static struct dt_finding check_runs(const struct dt_rank_probe *ranks, int n)
{
    if (!ranks[0].sees_run) {
        return FAIL("choose another --run", "%s", ranks[0].why_no_run);
    }
    ANY(!f->sees_run, WARN,
        "choose a --run on storage that all hosts share, so that --resume works anywhere",
        "%s does not see what rank 0 writes on %s", f->host, ranks[0].host)
    return FINE("rank 0 can write, and every rank sees it");
}

/* Slurm's settings are the same on all ranks: rank 0's. */
static struct dt_finding check_slurm(const struct dt_rank_probe *ranks, int n)
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

/* ---- all of them */

struct dt_finding dt_check_run(enum dt_check check, const struct dt_rank_probe *ranks, int n)
{
#define ROW(function, name) {name, check_##function},
    static const struct {
        const char *name;
        struct dt_finding (*run)(const struct dt_rank_probe *ranks, int n);
    } checks[] = {DT_CHECK_LIST(ROW)};
    struct dt_finding finding = checks[check].run(ranks, n);
    finding.name = checks[check].name;
    return finding;
}

void dt_checks_run(const struct dt_rank_probe *ranks, int n,
                   struct dt_finding findings[DT_N_CHECKS])
{
    for (int i = 0; i < DT_N_CHECKS; i++) {
        findings[i] = dt_check_run(i, ranks, n);
    }
}

void dt_findings_show(struct dt_doc *doc, const struct dt_finding *findings, int n, bool timed,
                      int n_warnings)
{
    static const struct {
        enum dt_verdict verdict;
        const char *what;
    } others[] = {{DT_VERDICT_MEASURED, "not compared"},
                  {DT_VERDICT_SKIPPED, "skipped"},
                  {DT_VERDICT_WARN, "warning"}};
    struct dt_part *table =
        dt_doc_table(doc, "Checks", timed ? "check|time:s:1|result" : "check|result");
    int counts[DT_N_VERDICTS] = {0};
    char more[96] = "";
    dt_doc_main(table);
    for (int i = 0; i < n; i++) {
        const struct dt_finding *f = &findings[i];
        if (timed) {
            dt_doc_row(table, dt_t(f->name), dt_n(f->seconds), dt_t(f->text));
        } else {
            dt_doc_row(table, dt_t(f->name), dt_t(f->text));
        }
        dt_doc_judge(table, f->verdict, "%s", f->hint);
        counts[f->verdict]++;
    }
    const int n_failed = counts[DT_VERDICT_FAIL],
              n_passed = counts[DT_VERDICT_PASS] + counts[DT_VERDICT_WARN];
    counts[DT_VERDICT_WARN] = n_warnings >= 0 ? n_warnings : counts[DT_VERDICT_WARN];
    for (size_t i = 0, at = 0; i < sizeof others / sizeof others[0]; i++) {
        const int count = counts[others[i].verdict];
        if (count > 0) {
            at += (size_t)snprintf(more + at, sizeof more - at, ", %d %s%s", count, others[i].what,
                                   others[i].verdict == DT_VERDICT_WARN && count > 1 ? "s" : "");
        }
    }
    if (n_failed > 0) {
        dt_doc_verdict(doc, DT_VERDICT_FAIL, "FAIL: %d of %d checks failed%s", n_failed, n, more);
    } else {
        dt_doc_verdict(doc, DT_VERDICT_PASS, "PASS: %d of %d checks passed%s", n_passed, n, more);
    }
}
