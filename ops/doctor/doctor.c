/* `dtrain doctor`: what these ranks have, before a job is given to them, and what is wrong with it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/text.h"
#include "cli/commands/load.h"
#include "ops/doctor/checks.h"

static const char *const verdict_names[] = {DT_VERDICT_LIST(DT_ENUM_NAME)};

/* "0-3,8", the form of taskset and cpusets. */
static void cpus_text(const cpu_set_t *cpus, char *text, size_t size)
{
    size_t n = 0;
    text[0] = '\0';
    for (int first = 0; first < CPU_SETSIZE && n + 16 < size; first++) {
        int last = first;
        while (CPU_ISSET(first, cpus) && last + 1 < CPU_SETSIZE && CPU_ISSET(last + 1, cpus)) {
            last++;
        }
        if (CPU_ISSET(first, cpus)) {
            n += (size_t)snprintf(text + n, size - n, last > first ? "%s%d-%d" : "%s%d",
                                  n > 0 ? "," : "", first, last);
            first = last;
        }
    }
}

static void print_ranks(const struct dt_rank_facts *ranks, int n)
{
    int width = 4;
    char cpus[24], memory[DT_BYTES_TEXT_SIZE];
    for (int r = 0; r < n; r++) {
        const int length = (int)strlen(ranks[r].host);
        width = length > width ? length : width;
    }
    printf("rank  %-*s  local  %-23s  memory free  device\n", width, "host", "CPUs");
    for (int r = 0; r < n; r++) {
        cpus_text(&ranks[r].cpus, cpus, sizeof cpus);
        dt_text_print(stdout, "%4d  %-*s  %5d  %-23s  %11s  %s", r, width, ranks[r].host,
                      ranks[r].local_rank, cpus, dt_bytes_text(ranks[r].memory_free, memory),
                      ranks[r].has_gpu ? ranks[r].gpu : "cpu");
    }
}

static void print_finding(const char *name, const struct dt_finding *finding)
{
    dt_text_print(stdout, "%-7s  %-13s  %s", verdict_names[finding->verdict], name, finding->text);
    if (finding->cure[0] != '\0') {
        dt_text_print(stdout, "%24s(%s)", "", finding->cure);
    }
}

/* `counts`: number of each verdict. */
static void examine(const struct dt_world *world, const struct dt_rank_facts *ranks,
                    int counts[DT_N_VERDICTS])
{
    for (int i = 0; i < dt_n_checks; i++) {
        char name[24];
        const struct dt_finding finding = dt_checks[i].run(ranks, world->size);
        snprintf(name, sizeof name, "%s", dt_checks[i].name);
        for (char *c = strchr(name, '_'); c != NULL; c = strchr(name, '_')) {
            *c = ' ';
        }
        if (world->rank == 0) {
            print_finding(name, &finding);
        }
        counts[finding.verdict]++;
    }
}

/* Prints to stdout: a row for each rank, then a line for each check (checks.h) with its verdict and
 * cure. DT_UNAVAILABLE, agreed: there are problems; warnings are none. */
static enum dt_status report(struct dt_world *world, const struct dt_rank_facts *ranks)
{
    int counts[DT_N_VERDICTS] = {0};
    const int *n_problems = &counts[DT_VERDICT_PROBLEM], *n_warnings = &counts[DT_VERDICT_WARNING];
    if (world->rank == 0) {
        print_ranks(ranks, world->size);
        putchar('\n');
    }
    examine(world, ranks, counts);
    /* Some facts, like Slurm's settings, are those of one rank: rank 0 decides. */
    DT_TRY(dt_comm_broadcast(world->comm, counts, sizeof counts, 0, "findings"));
    if (world->rank == 0) {
        printf("\n%d ok, %d not checked, %d warning%s, %d problem%s\n", counts[DT_VERDICT_OK],
               counts[DT_VERDICT_NONE], *n_warnings, *n_warnings == 1 ? "" : "s", *n_problems,
               *n_problems == 1 ? "" : "s");
        fflush(stdout);
    }
    return *n_problems == 0
               ? DT_OK
               : dt_error_agreed(dt_error(DT_UNAVAILABLE,
                                          "doctor: %d of %d checks found a problem (each says "
                                          "above how to mend it)",
                                          *n_problems, dt_n_checks));
}

/* Without a configuration it does not look for data. */
static enum dt_status run(struct dt_world *world, const struct dt_args *args)
{
    struct dt_config config;
    struct dt_doctor_spec spec = {.run = dt_args_text(args, DT_OPTION_RUN)};
    struct dt_rank_facts *ranks = NULL;
    if (dt_args_has(args, DT_OPTION_CONFIG)) {
        DT_TRY(dt_load_config_all(world, args, &config));
        spec.config = &config;
    }
    enum dt_status s = dt_facts_gather(world, &spec, &ranks);
    s = s == DT_OK ? report(world, ranks) : s;
    free(ranks);
    return s;
}

const struct dt_command dt_command_doctor = {
    .word = "doctor",
    .meaning = "check this allocation and report problems",
    .usage = "mpirun -np 4 dtrain doctor [--config FILE] [--data DIR] [--run DIR]\n"
             "      [--set KEY.PATH=VALUE]...",
    .examples = "  mpirun -np 4 dtrain doctor\n"
                "  srun --mpi=pmi2 dtrain doctor --config configs/mnist.json --run runs/night\n",
    .more = "Run it where a job will run. It checks each rank's versions, cores, load, memory and "
            "its limits, shared memory, NUMA nodes, clocks, network, GPUs and their health "
            "(NVML), access to the configuration's data and to the folder of runs, and Slurm's "
            "settings. Each check is ok, a warning or a problem, with its cure, or `-` if there "
            "is nothing to check; a problem ends the program with status 69.",
    .options = {[DT_OPTION_CONFIG] =
                    {DT_TAKEN,
                     "also check that every rank can use this configuration and its data"},
                [DT_OPTION_DATA] = {DT_TAKEN},
                [DT_OPTION_RUN] = {DT_TAKEN, "folder in which a run is to write"},
                [DT_OPTION_SET] = {DT_TAKEN}},
    .tells_of_launch = true,
    .needs_no_ranks = true,
    .together = run,
};
