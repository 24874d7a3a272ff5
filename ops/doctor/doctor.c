/* `dtrain doctor`: what these ranks have, before a job is given to them, and what is wrong with it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/status.h"
#include "cli/commands/load.h"
#include "cli/output.h"
#include "cli/result.h"
#include "cli/sinks/fields.h"
#include "ops/doctor/doctor.h"
#include "train/device.h"

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

struct dt_part *dt_record_show(struct dt_doc *doc, const struct dt_args *args,
                               const struct dt_rank_probe *ranks, int n)
{
    struct dt_part *record = dt_doc_figures(doc, "Record");
    const time_t now = time(NULL);
    struct tm utc;
    char date[24];
    strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
    dt_doc_fact(record, "date", "%s", date);
    dt_doc_fact(record, "command", "%s", args->line);
    dt_doc_fact(record, "version", "%s", dt_version);
    dt_doc_fact(record, "commit", "%s", dt_commit);
    dt_doc_fact(record, "mpi", "%s", ranks[0].mpi);
    dt_doc_fact(record, "launcher", "%s", ranks->launcher[0] != '\0' ? ranks->launcher : "hand");
    dt_doc_fact(record, "searched", "%s", dt_device_libraries);
    dt_doc_figure(record, "ranks::0", dt_n(n));
    return record;
}

static struct dt_doc *describe(const struct dt_world *world, const struct dt_args *args,
                               const struct dt_rank_probe *ranks,
                               const struct dt_finding findings[DT_N_CHECKS])
{
    const int n = world->size, n_hosts = dt_probe_count_hosts(ranks, n);
    struct dt_doc *doc = dt_doc_open("doctor", "Allocation of %d rank%s on %d host%s", n,
                                     n == 1 ? "" : "s", n_hosts, n_hosts == 1 ? "" : "s");
    struct dt_part *table =
        dt_doc_table(doc, "Ranks", "rank::+|host|local::+|CPUs|memory free::B|device");
    for (int r = 0; r < n; r++) {
        const struct dt_rank_probe *f = &ranks[r];
        char cpus[64];
        cpus_text(&f->cpus, cpus, sizeof cpus);
        dt_doc_row(table, dt_n(r), dt_t(f->host), dt_n(f->local_rank), dt_t(cpus),
                   dt_n(f->memory_free), dt_t(f->has_gpu ? f->gpu : "cpu"));
    }
    dt_findings_show(doc, findings, DT_N_CHECKS, false, -1);
    dt_doc_detail(dt_record_show(doc, args, ranks, n));
    return doc;
}

/* DT_UNAVAILABLE, agreed: there are problems; warnings are none. Rank 0 decides, because some
 * facts, like Slurm's settings, may differ between ranks. */
static enum dt_status report(struct dt_world *world, const struct dt_args *args,
                             const struct dt_rank_probe *ranks)
{
    static struct dt_finding findings[DT_N_CHECKS]; /* large */
    enum dt_status s = DT_OK;
    dt_checks_run(ranks, world->size, findings);
    int n_failed = dt_findings_count(findings, DT_N_CHECKS, DT_VERDICT_FAIL);
    DT_TRY(dt_comm_broadcast(world->comm, &n_failed, sizeof n_failed, 0, "findings"));
    if (world->rank == 0) {
        struct dt_doc *doc = describe(world, args, ranks, findings);
        s = dt_result_show(args, doc);
        dt_doc_close(doc);
    }
    s = n_failed > 0 && dt_output_failed(s) ? DT_OK : s; /* a problem takes precedence */
    DT_TRY(dt_world_agree(world, s));
    return n_failed == 0
               ? DT_OK
               : dt_error_agreed(dt_error(DT_UNAVAILABLE,
                                          "doctor: %d of %d checks failed (each says above how to "
                                          "mend it)",
                                          n_failed, DT_N_CHECKS));
}

/* Without a configuration it does not look for data. */
static enum dt_status run(struct dt_world *world, const struct dt_args *args)
{
    struct dt_config config;
    struct dt_doctor_spec spec = {.run = dt_args_text(args, DT_OPTION_RUN)};
    struct dt_rank_probe *ranks = NULL;
    if (dt_args_has(args, DT_OPTION_CONFIG)) {
        DT_TRY(dt_load_config_all(world, args, &config));
        spec.config = &config;
    }
    enum dt_status s = dt_probe_gather(world, &spec, &ranks);
    s = s == DT_OK ? report(world, args, ranks) : s;
    free(ranks);
    return s;
}

const struct dt_command dt_command_doctor = {
    .word = "doctor",
    .meaning = "check this allocation and report problems",
    .usage = "mpirun -np 4 dtrain doctor [--config FILE] [--data DIR] [--run DIR]\n"
             "      [--set KEY.PATH=VALUE]... [--junit FILE]" DT_RESULT_USAGE,
    .examples = "  mpirun -np 4 dtrain doctor\n"
                "  srun --mpi=pmi2 dtrain doctor --config configs/mnist.json --run runs/night\n",
    .more = "Run it where a job will run. It checks each rank's versions, cores, load, memory and "
            "its limits, shared memory, NUMA nodes, clocks, network, GPUs and their health "
            "(NVML), access to the configuration's data and to the folder of runs, and Slurm's "
            "settings. Each check is PASS, WARN or FAIL, with a hint how to mend it, or SKIPPED "
            "if there is nothing to check; a FAIL ends the program with status 69.",
    .options = {[DT_OPTION_CONFIG] =
                    {DT_TAKEN,
                     "also check that every rank can use this configuration and its data"},
                [DT_OPTION_DATA] = {DT_TAKEN},
                [DT_OPTION_RUN] = {DT_TAKEN, "folder in which a run is to write"},
                [DT_OPTION_SET] = {DT_TAKEN},
                [DT_OPTION_JUNIT] = {DT_TAKEN},
                DT_RESULT_OPTIONS},
    .tells_of_launch = true,
    .needs_no_ranks = true,
    .together = run,
};
