#include "ops/accept/rows.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/text.h"
#include "cli/args.h"
#include "cli/output.h"
#include "ops/accept/outcome.h"
#include "train/trainer.h"

/* It converges within a second, and its batch suits any number of ranks. */
static const char training[] = "{\"data\": {\"format\": \"synthetic\", \"train_samples\": 4096, "
                               "\"test_samples\": 512, \"noise\": 0.1}, \"model\": {\"input\": [1, "
                               "12, 12], \"layers\": [{\"type\": \"conv2d\", \"filters\": 8, "
                               "\"kernel\": 3, \"activation\": \"relu\"}, {\"type\": "
                               "\"max_pool2d\", \"size\": 2}, {\"type\": \"flatten\"}, {\"type\": "
                               "\"dense\", \"units\": 4}]}, \"train\": {\"epochs\": 5, \"seed\": "
                               "1, \"batch\": {\"global\": 64}, \"optimizer\": {\"type\": "
                               "\"adam\", \"lr\": 0.01}}, \"distributed\": {\"check_every\": 1}, "
                               "\"log\": {\"every_s\": 0}}";

/* An error on which all ranks agree becomes the row's text, and the next rows can run. */
static enum dt_status take_error(const struct dt_acceptance *a, enum dt_status status,
                                 struct dt_accept_row *row)
{
    if (status == DT_OK || status == DT_STALLED || status == DT_STOPPED ||
        (a->world->size > 1 && !dt_error_is_agreed())) {
        return status;
    }
    dt_accept_say(row, DT_ACCEPT_FAIL, "%s", dt_error_text());
    dt_error_clear();
    return DT_OK;
}

/* If the row fails without blaming a rank, marks all as failed. */
static void find_blame(struct dt_acceptance *a, const struct dt_accept_row *row)
{
    bool any = row->verdict != DT_ACCEPT_FAIL;
    for (int r = 0; r < a->world->size; r++) {
        any = any || a->cells[r].failed;
    }
    for (int r = 0; r < a->world->size && !any; r++) {
        a->cells[r].failed = true;
    }
}

/* Adds to a row that had nothing to compare its figures with the reason. */
static void explain_alone(const struct dt_acceptance *a, struct dt_accept_row *row)
{
    const size_t n = strlen(row->text);
    if (row->verdict == DT_ACCEPT_MEASURED) {
        snprintf(
            row->text + n, sizeof row->text - n, "; nothing to compare with: %s, %s", row->alone,
            !dt_args_has(a->args, DT_OPTION_BASELINE) ? "no --baseline" : "not in the --baseline");
    }
}

/* Rank 0's verdict holds for all ranks: figures may differ in their last digit, and only rank 0 has
 * the baseline. */
static enum dt_status run_check(struct dt_acceptance *a, const struct dt_accept_baseline *baseline,
                                int i, struct dt_accept_row *row)
{
    struct dt_comm *comm = a->world->comm;
    for (int r = 0; r < comm->size; r++) {
        a->cells[r] = (struct dt_accept_cell){.value = (double)NAN};
    }
    dt_comm_phase(comm, dt_accept_checks[i].name);
    const enum dt_status s = dt_accept_checks[i].run(a, row);
    if (s != DT_STALLED) { /* messages may still be on their way */
        dt_accept_free(a);
    }
    DT_TRY(take_error(a, s, row));
    if (a->world->rank == 0 && dt_args_has(a->args, DT_OPTION_BASELINE)) {
        dt_accept_baseline_apply(baseline, i, row);
    }
    explain_alone(a, row);
    find_blame(a, row);
    return dt_comm_broadcast(comm, row, sizeof *row, 0, "verdict");
}

static enum dt_status run_checks(struct dt_acceptance *a, const struct dt_accept_baseline *baseline)
{
    for (int i = 0; i < DT_N_ACCEPT; i++) {
        const double begin_s = dt_clock_s();
        a->cells = a->all_cells + i * a->world->size;
        if (a->world->rank == 0) {
            dt_accept_show_running(a, i);
        }
        DT_TRY(run_check(a, baseline, i, &a->rows[i]));
        a->seconds[i] = dt_clock_s() - begin_s;
        a->n_done++;
        a->counts[a->rows[i].verdict]++;
        if (a->world->rank == 0) {
            dt_accept_show_row(a, i);
        }
    }
    return DT_OK;
}

/* The outputs, as options name them. */
static const struct {
    int option;
    enum dt_status (*write)(const char *path, const struct dt_acceptance *a);
} files[] = {{DT_OPTION_JUNIT, dt_accept_write_junit},
             {DT_OPTION_JSON, dt_accept_write_json},
             {DT_OPTION_HTML, dt_accept_write_page}};
#define N_FILES (sizeof files / sizeof files[0])

/* Writes each file, even if one before it failed. True if all were written. */
static bool write_files(const struct dt_acceptance *a)
{
    bool written = true;
    for (size_t i = 0; i < N_FILES; i++) {
        const char *path = dt_args_text(a->args, files[i].option);
        written = (path == NULL || !dt_output_failed(files[i].write(path, a))) && written;
    }
    return written;
}

static enum dt_status report(const struct dt_acceptance *a)
{
    const int n_failed = a->counts[DT_ACCEPT_FAIL];
    bool written = true;
    if (a->world->rank == 0) {
        dt_accept_show_end(a);
        written = write_files(a);
    }
    const bool unwritten = !written && n_failed == 0; /* a failed check takes precedence */
    DT_TRY(dt_world_agree(
        a->world, unwritten
                      ? dt_error(DT_IO, "accept: a file was not written (see the message above)")
                      : DT_OK));
    return n_failed == 0 ? DT_OK
                         : dt_error_agreed(dt_error(
                               DT_FAILED,
                               "accept: %d of %d checks failed (see the rows that begin with FAIL)",
                               n_failed, a->n_done));
}

/* Refuses faults that cannot be injected into the training, before any row runs. Lost messages
 * require an algorithm of dtrain's own: the ring. */
static enum dt_status try_faults(struct dt_acceptance *a)
{
    const struct dt_faults *faults = a->faults;
    struct dt_trainer trainer;
    for (int i = 0; i < faults->n; i++) {
        if (faults->faults[i].kind == DT_FAULT_DROP) {
            a->config.dist.allreduce = DT_ALLREDUCE_RING;
        }
    }
    if (faults->n == 0) {
        return DT_OK;
    }
    DT_TRY(dt_trainer_open(a->world, &a->config, &dt_config_json, &dt_all_parts, &trainer));
    const enum dt_status s = dt_inject_open(&trainer, faults);
    dt_trainer_close(&trainer);
    return s;
}

static void take_date(char out[24])
{
    const time_t now = time(NULL);
    struct tm utc;
    gmtime_r(&now, &utc);
    strftime(out, 24, "%Y-%m-%dT%H:%M:%SZ", &utc);
}

static enum dt_status try_files(const struct dt_acceptance *a)
{
    for (size_t i = 0; i < N_FILES; i++) {
        DT_TRY(dt_file_try(dt_args_text(a->args, files[i].option), NULL));
    }
    return DT_OK;
}

/* Checks that the results can be written, before measuring. */
static enum dt_status prepare_places(struct dt_acceptance *a)
{
    const enum dt_status s = dt_run_dir_open(a->world, dt_args_text(a->args, DT_OPTION_RUN),
                                             "accept", false, &a->folder);
    if (s == DT_OK && a->world->rank == 0) {
        dt_run_dir_begin(&a->folder); /* it stays */
    }
    dt_run_dir_close(&a->folder); /* the training reopens it */
    if (s != DT_OK) {
        a->folder.path[0] = '\0'; /* this run did not create it */
        return s;
    }
    return dt_world_agree(a->world, a->world->rank == 0 ? try_files(a) : DT_OK);
}

/* Removes a folder that the user did not name, unless it holds evidence of a failure. */
static void leave_folder(const struct dt_acceptance *a, enum dt_status status)
{
    char config[DT_PATH_SIZE + 16];
    bool used = false;
    snprintf(config, sizeof config, "%s/config.json", a->folder.path);
    if (a->world->rank != 0 || dt_args_has(a->args, DT_OPTION_RUN) || a->folder.path[0] == '\0') {
        return;
    }
    if (status != DT_OK && dt_file_exists(config, &used) == DT_OK && used) {
        dt_text_print(stderr, "the training's folder is kept: %s", a->folder.path);
    } else {
        dt_run_dir_remove(&a->folder);
        rmdir("runs/accept"); /* if they are empty */
        rmdir("runs");
    }
}

/* Prepares everything that the rows need. */
static enum dt_status prepare(struct dt_acceptance *a, struct dt_accept_baseline *baseline)
{
    struct dt_world *world = a->world;
    const char *before = dt_args_text(a->args, DT_OPTION_BASELINE);
    const struct dt_doctor_spec doctor = {.run = dt_args_text(a->args, DT_OPTION_RUN)};
    DT_TRY(dt_world_agree(
        world, dt_config_parse("accept", training, sizeof training - 1, NULL, 0, &a->config)));
    DT_TRY(try_faults(a));
    DT_TRY(prepare_places(a));
    DT_TRY(dt_device_choose(world, &a->config, &a->device));
    DT_TRY(dt_world_alloc(world, DT_N_ACCEPT * (size_t)world->size, sizeof *a->all_cells,
                          "the ranks' results", (void **)&a->all_cells));
    DT_TRY(dt_facts_gather(world, &doctor, &a->ranks));
    const bool reads = world->rank == 0 && before != NULL;
    return dt_world_agree(world, reads ? dt_accept_baseline_read(a, before, baseline) : DT_OK);
}

static enum dt_status accept_cluster(struct dt_acceptance *a)
{
    static struct dt_accept_baseline baseline;
    const bool shows = a->world->rank == 0;
    if (shows) {
        dt_accept_show_begin(a);
    }
    enum dt_status s = prepare(a, &baseline);
    s = s == DT_OK ? run_checks(a, &baseline) : s;
    if (s != DT_OK && shows) {
        dt_accept_show_break();
    }
    return s == DT_OK ? report(a) : s;
}

/* Prints to stdout a row for each check (rows.h) as it ends. DT_FAILED, agreed: one has. A rank
 * that stalls ends it with the error of that. */
static enum dt_status run(struct dt_world *world, const struct dt_args *args)
{
    static struct dt_acceptance a; /* too large for the stack */
    struct dt_faults faults;
    const struct dt_values *injects = &args->values[DT_OPTION_INJECT];
    DT_TRY(dt_world_agree(world, dt_faults_parse(injects->texts, injects->n, &faults)));
    a.world = world;
    a.args = args;
    a.faults = &faults;
    a.measure_s = dt_args_has(args, DT_OPTION_SHORT) ? 0.1 : 1;
    take_date(a.date);
    const enum dt_status s = accept_cluster(&a);
    leave_folder(&a, s);
    free(a.links.bandwidth_gbs);
    free(a.links.latency_us);
    free(a.ranks);
    free(a.all_cells);
    return s;
}

const struct dt_command dt_command_accept = {
    .word = "accept",
    .meaning = "PASS or FAIL for what a cluster must be able to do",
    .usage = "mpirun -np 4 dtrain accept [--short] [--run DIR] [--baseline FILE]\n"
             "      [--junit FILE] [--json FILE] [--html FILE] [--inject FAULT]...",
    .examples = "  srun --mpi=pmi2 dtrain accept --run runs/acceptance --junit accept.xml\n",
    .more = "Runs each check and prints PASS or FAIL: all ranks run, of one version and as many on "
            "each host; `dtrain doctor` finds no problem; Horovod's worked example of the gradient "
            "tape is reproduced bit for bit; the backward pass agrees with finite differences; "
            "every allreduce algorithm, also between GPUs, gives exact sums of integers; of three "
            "hosts or more none is 38 % below the median in messages between any two ranks, memory "
            "bandwidth and matrix products, or has twice the latency; a training of a few seconds, "
            "on GPUs if there are any, keeps its replicas equal after each step; every rank reads "
            "its checkpoint; a frozen rank is named within a second. With fewer hosts, and without "
            "`--baseline`, figures cannot be compared with anything: their row is MEASURED. A "
            "failed check ends the program with status 1; `--inject` makes the training fail. The "
            "files begin with date, command, commit, MPI and the hosts' hardware.",
    .options =
        {[DT_OPTION_RUN] = {DT_TAKEN, "folder for its files; default runs/accept/<UTC time>"},
         [DT_OPTION_INJECT] = {DT_TAKEN, "inject a fault into the training (see "
                                         "docs/operating.md), which must then fail"},
         [DT_OPTION_JSON] = {DT_TAKEN,
                             "also write the record to this file, which a later --baseline takes"},
         [DT_OPTION_JUNIT] = {DT_TAKEN},
         [DT_OPTION_BASELINE] = {DT_TAKEN},
         [DT_OPTION_SHORT] = {DT_TAKEN},
         [DT_OPTION_HTML] = {DT_TAKEN, "also write the record as a page, to be printed or sent"}},
    .tries_outputs = true,
    .together = run,
};
