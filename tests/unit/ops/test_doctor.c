/* Every check of `dtrain doctor` finds what it is for, and nothing where all is well. */
#include <stdlib.h>

#include "ops/doctor/doctor.h"
#include "tests/lib/check.h"

#define N_RANKS 4

/* Two ranks on each of two hosts, each with cores of its own. */
static void make_fine(struct dt_rank_probe ranks[N_RANKS])
{
    for (int r = 0; r < N_RANKS; r++) {
        struct dt_rank_probe *f = &ranks[r];
        *f = (struct dt_rank_probe){.rank = r,
                                    .local_rank = r % 2,
                                    .version = "1.0",
                                    .mpi = "MPICH",
                                    .n_cpus = 2,
                                    .n_cores = 2,
                                    .n_numa_nodes = 1,
                                    .load = 6,
                                    .n_runnable = 2,
                                    .n_host_cpus = 4,
                                    .memory_free = 8e9,
                                    .shared_free = 4e9,
                                    .max_files = 1024,
                                    .max_locked = INFINITY,
                                    .huge_pages = "madvise",
                                    .network = "eth0",
                                    .network_mbps = 25000,
                                    .asked_for_data = true,
                                    .sees_data = true,
                                    .n_samples = 60000,
                                    .sees_run = true};
        snprintf(f->host, sizeof f->host, "node%d", r / 2);
        snprintf(f->why_no_gpu, sizeof f->why_no_gpu, "no driver");
        CPU_SET(2 * (r % 2), &f->cpus);
        CPU_SET(2 * (r % 2) + 1, &f->cpus);
    }
}

static void share_a_core(struct dt_rank_probe *f)
{
    for (int r = 2; r < N_RANKS; r++) {
        CPU_ZERO(&f[r].cpus);
        CPU_SET(0, &f[r].cpus);
    }
}

#define SPOIL(name, ...)                      \
    static void name(struct dt_rank_probe *f) \
    {                                         \
        __VA_ARGS__                           \
    }
SPOIL(other_version, f[3].version[0] = '2';)
SPOIL(other_mpi, f[1].mpi[0] = 'm';)
SPOIL(other_environment, f[2].environment = 1;)
SPOIL(ucx_conf, f[3].has_ucx_conf = true;)
SPOIL(fewer_cores, f[1].n_cpus = 1;)
/* Two of the load are the host's ranks. */
SPOIL(busy, f[2].load = f[3].load = 15.24; f[2].n_runnable = f[3].n_runnable = 17;)
SPOIL(two_nodes, f[2].n_numa_nodes = 2;)
SPOIL(little_memory, f[2].memory_free = f[3].memory_free = 400e6;)
SPOIL(little_shared, f[1].shared_free = 63e6;)
SPOIL(no_huge_pages, strcpy(f[3].huge_pages, "never");)
SPOIL(few_files, f[3].max_files = 64;)
SPOIL(locked_memory, f[2].max_locked = 65536;)
SPOIL(wrong_time, f[2].time_of_day_s = -3;)
SPOIL(no_network, f[1].network[0] = '\0';)
SPOIL(infiniband_down, f[0].n_ib_ports = f[0].n_ib_active = 2; f[2].n_ib_ports = 2;
      f[2].n_ib_active = 1;)
SPOIL(slow_network, f[1].network_mbps = 1000;)
SPOIL(one_gpu, f[0].has_gpu = f[1].has_gpu = f[2].has_gpu = true;)
SPOIL(no_data, f[3].sees_data = false;)
SPOIL(other_data, f[3].n_samples = 59999;)
SPOIL(no_run, f[0].sees_run = false;)
SPOIL(own_run, f[2].sees_run = f[3].sees_run = false;)

static void same_gpu(struct dt_rank_probe *f)
{
    for (int r = 0; r < N_RANKS; r++) {
        f[r].has_gpu = true;
        snprintf(f[r].gpu_uuid, sizeof f[r].gpu_uuid, "GPU-%d", r == 3 ? 2 : r);
    }
}

/* All have one, in good health. */
static void gpus(struct dt_rank_probe *f)
{
    for (int r = 0; r < N_RANKS; r++) {
        f[r].has_gpu = true;
        snprintf(f[r].gpu_uuid, sizeof f[r].gpu_uuid, "GPU-%d", r);
        f[r].gpu_health = (struct dt_gpu_health){.n_on_host = 2,
                                                 .driver = "550",
                                                 .known = true,
                                                 .n_nvlinks = 18,
                                                 .pcie_generation = 5,
                                                 .pcie_width = 16,
                                                 .pcie_full_width = 16};
    }
}
SPOIL(unused_gpus, f[0].gpu_health.n_on_host = 8;)
SPOIL(ecc_errors, gpus(f); f[1].gpu_health.throttle = 0x40;
      /* the problem goes first */ f[2].gpu_health.n_ecc_errors = 3;)
SPOIL(hot, gpus(f); f[0].gpu_health.throttle = 0x1; /* idle */ f[3].gpu_health.throttle = 0x41;)
SPOIL(instances, gpus(f); f[1].gpu_health.mig = true;)
SPOIL(other_driver, gpus(f); f[2].gpu_health.driver[0] = '4';)
SPOIL(narrow, gpus(f); f[3].gpu_health.pcie_width = 8;)
SPOIL(fewer_links, gpus(f); f[1].gpu_health.n_nvlinks = 17;)

static const struct {
    enum dt_check check;
    void (*spoil)(struct dt_rank_probe *ranks);
    enum dt_verdict verdict;
    const char *text;
} faults[] = {
    {DT_CHECK_versions, other_version, DT_VERDICT_FAIL,
     "rank 3 (node1) has dtrain 2.0 on MPICH, rank 0 has 1.0 on MPICH"},
    {DT_CHECK_versions, other_mpi, DT_VERDICT_FAIL, "rank 1 (node0)"},
    {DT_CHECK_environment, other_environment, DT_VERDICT_WARN, "rank 2 (node1)"},
    {DT_CHECK_environment, ucx_conf, DT_VERDICT_WARN,
     "UCX obeys ./ucx.conf in the working folder of rank 3 (node1)"},
    {DT_CHECK_cores, share_a_core, DT_VERDICT_WARN, "2 ranks of node1 share 1 core"},
    {DT_CHECK_cores, fewer_cores, DT_VERDICT_WARN, "1 to 2 CPUs"},
    {DT_CHECK_load, busy, DT_VERDICT_WARN, "load 15.2 on 4 CPUs of node1: others use them"},
    {DT_CHECK_numa, two_nodes, DT_VERDICT_WARN, "rank 2 (node1) may run on 2 NUMA nodes"},
    {DT_CHECK_memory, little_memory, DT_VERDICT_FAIL, "rank 2 (node1) has 200 MB"},
    {DT_CHECK_shared_memory, little_shared, DT_VERDICT_WARN, "/dev/shm of node0 has 63 MB"},
    {DT_CHECK_huge_pages, no_huge_pages, DT_VERDICT_WARN, "node1 has none"},
    {DT_CHECK_limits, few_files, DT_VERDICT_FAIL, "rank 3 (node1) may open 64 files"},
    {DT_CHECK_limits, locked_memory, DT_VERDICT_WARN, "rank 2 (node1) may lock 65.5 kB"},
    {DT_CHECK_clocks, wrong_time, DT_VERDICT_WARN, "the time of node1 is 3.0 s off that of node0"},
    {DT_CHECK_network, no_network, DT_VERDICT_FAIL, "rank 1 (node0) has no network"},
    {DT_CHECK_network, infiniband_down, DT_VERDICT_WARN,
     "of 2 InfiniBand ports of node1 1 are active"},
    {DT_CHECK_network, slow_network, DT_VERDICT_WARN, "the fastest of node0, eth0, has 1 Gb/s"},
    {DT_CHECK_gpus, one_gpu, DT_VERDICT_FAIL, "rank 3 (node1) has none, others have: no driver"},
    {DT_CHECK_gpus, same_gpu, DT_VERDICT_WARN, "ranks 2 and 3 (node1) share one"},
    {DT_CHECK_gpus, unused_gpus, DT_VERDICT_WARN, "node0 has 8, which no rank uses: no driver"},
    {DT_CHECK_gpu_health, ecc_errors, DT_VERDICT_FAIL,
     "rank 2 (node1): 3 ECC errors of GPU-2 were not corrected"},
    {DT_CHECK_gpu_health, hot, DT_VERDICT_WARN,
     "rank 3 (node1): temperature, by the hardware slows GPU-3 down"},
    {DT_CHECK_gpu_health, instances, DT_VERDICT_WARN, "rank 1 (node0): GPU-1 is in MIG mode"},
    {DT_CHECK_gpu_health, other_driver, DT_VERDICT_WARN,
     "rank 2 (node1) has driver 450, rank 0 has 550"},
    {DT_CHECK_gpu_links, narrow, DT_VERDICT_WARN, "rank 3 (node1): GPU-3 has 8 of 16 PCIe lanes"},
    {DT_CHECK_gpu_links, fewer_links, DT_VERDICT_WARN,
     "rank 1 (node0): 17 NVLinks are up, of rank 0 18"},
    {DT_CHECK_data, no_data, DT_VERDICT_FAIL, "rank 3 (node1)"},
    {DT_CHECK_data, other_data, DT_VERDICT_FAIL,
     "rank 3 (node1) sees 59999 samples, rank 0 sees 60000"},
    {DT_CHECK_runs, no_run, DT_VERDICT_FAIL, ""},
    {DT_CHECK_runs, own_run, DT_VERDICT_WARN, "node1 does not see what rank 0 writes on node0"},
};

static struct dt_finding examine(enum dt_check check, const struct dt_rank_probe *ranks)
{
    return dt_check_run(check, ranks, N_RANKS);
}

/* A check without a subject is not ok: here GPUs, and Slurm. */
static void test_fine(void)
{
    struct dt_rank_probe ranks[N_RANKS];
    make_fine(ranks);
    for (int i = 0; i < DT_N_CHECKS; i++) {
        const struct dt_finding finding = examine(i, ranks);
        const bool none = strncmp(finding.name, "gpu", 3) == 0 || i == DT_CHECK_slurm;
        CHECK_MESSAGE(finding.verdict == (none ? DT_VERDICT_SKIPPED : DT_VERDICT_PASS) &&
                          finding.text[0] != '\0' && finding.hint[0] == '\0',
                      "%s: %s (%s)", finding.name, finding.text, finding.hint);
    }
}

static void test_faults(void)
{
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) {
        struct dt_rank_probe ranks[N_RANKS];
        make_fine(ranks);
        faults[i].spoil(ranks);
        const struct dt_finding finding = examine(faults[i].check, ranks);
        CHECK_INT(finding.verdict, faults[i].verdict);
        CHECK_HAS(finding.text, faults[i].text);
        CHECK(finding.hint[0] != '\0');
    }
}

/* One rank on one host, of which nothing is known. */
static void test_nothing_to_check(void)
{
    static const enum dt_check none[] = {DT_CHECK_environment, DT_CHECK_load,   DT_CHECK_numa,
                                         DT_CHECK_huge_pages,  DT_CHECK_clocks, DT_CHECK_network,
                                         DT_CHECK_gpu_links,   DT_CHECK_data,   DT_CHECK_slurm};
    struct dt_rank_probe rank = {.version = "1.0", .mpi = "MPICH", .n_cpus = 1};
    for (size_t i = 0; i < sizeof none / sizeof none[0]; i++) {
        const struct dt_finding finding = dt_check_run(none[i], &rank, 1);
        CHECK_INT(finding.verdict, DT_VERDICT_SKIPPED);
        CHECK(finding.text[0] != '\0' && finding.hint[0] == '\0');
    }
}

/* Threads that others run on a host of 8 CPUs, of which our 4 ranks may use 4. */
static enum dt_verdict judge_load(double load, int n_runnable)
{
    struct dt_rank_probe ranks[N_RANKS];
    make_fine(ranks);
    for (int r = 0; r < N_RANKS; r++) {
        strcpy(ranks[r].host, "node0");
        ranks[r].load = load;
        ranks[r].n_runnable = n_runnable;
        ranks[r].n_host_cpus = 8;
    }
    return examine(DT_CHECK_load, ranks).verdict;
}

static void test_load(void)
{
    CHECK_INT(judge_load(20, 4), DT_VERDICT_PASS);   /* a run of ours, which has just ended */
    CHECK_INT(judge_load(0.5, 40), DT_VERDICT_PASS); /* a guest of a moment */
    CHECK_INT(judge_load(8, 8), DT_VERDICT_PASS);    /* on the other half */
    CHECK_INT(judge_load(8, 9), DT_VERDICT_WARN);    /* one more */
    CHECK_INT(judge_load(4.9, 20), DT_VERDICT_PASS);
    CHECK_INT(judge_load(5, 20), DT_VERDICT_WARN);
}

static void test_gpus(void)
{
    struct dt_rank_probe ranks[N_RANKS];
    make_fine(ranks);
    gpus(ranks);
    CHECK_TEXT(examine(DT_CHECK_gpu_health, ranks).text,
               "driver 550; no ECC errors, no throttling");
    CHECK_TEXT(examine(DT_CHECK_gpu_links, ranks).text, "18 NVLinks, PCIe 5 x16");
}

static void test_slurm(void)
{
    struct dt_rank_probe ranks[N_RANKS];
    make_fine(ranks);
    setenv("SLURM_JOB_ID", "17", 1);
    setenv("SLURM_STEP_ID", "0", 1);
    CHECK_INT(examine(DT_CHECK_slurm, ranks).verdict, DT_VERDICT_WARN);
    setenv("SLURM_CPUS_PER_TASK", "2", 1);
    CHECK_TEXT(examine(DT_CHECK_slurm, ranks).text, "job 17, CPUs per task: 2");
    setenv("SLURM_NTASKS", "8", 1);
    CHECK_TEXT(examine(DT_CHECK_slurm, ranks).text, "job 17 has 8 tasks, and 4 ranks are started");
    CHECK_INT(examine(DT_CHECK_slurm, ranks).verdict, DT_VERDICT_WARN);
}

/* Each is spoilt in some row above, or by test_slurm; a new one has to be. */
static void test_all_fail(void)
{
    for (enum dt_check i = 0; i < DT_CHECK_slurm; i++) {
        bool fails = false;
        for (size_t k = 0; k < sizeof faults / sizeof faults[0]; k++) {
            fails = fails || faults[k].check == i;
        }
        CHECK_MESSAGE(fails, "nothing makes check %d fail", (int)i);
    }
}

int main(void)
{
    unsetenv("SLURM_JOB_ID");
    unsetenv("SLURM_NTASKS");
    test_fine();
    test_faults();
    test_nothing_to_check();
    test_load();
    test_gpus();
    test_slurm();
    test_all_fail();
    return 0;
}
