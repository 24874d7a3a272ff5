#include "ops/accept/accept.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/text.h"
#include "cli/output.h"
#include "cli/result.h"
#include "cli/terminal.h"
#include "train/trainer.h"
#include "view/render.h"

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

/* ---- the rows */

#define CHECK(name, meaning) {#name, dt_accept_##name},
static const struct {
    const char *name;
    enum dt_status (*run)(struct dt_acceptance *a, struct dt_finding *row);
} checks[DT_N_ACCEPT] = {DT_ACCEPT_LIST(CHECK)};

/* An error on which all ranks agree becomes the row's text, and the next rows can run. */
static enum dt_status take_error(const struct dt_acceptance *a, enum dt_status status,
                                 struct dt_finding *row)
{
    if (status == DT_OK || status == DT_STALLED || status == DT_STOPPED ||
        (a->world->size > 1 && !dt_error_is_agreed())) {
        return status;
    }
    *row = dt_find(DT_VERDICT_FAIL, NULL, "%s", dt_error_text());
    dt_error_clear();
    return DT_OK;
}

/* A row that fails without blaming a rank blames all. */
static void find_blame(struct dt_acceptance *a, const struct dt_finding *row)
{
    bool any = row->verdict != DT_VERDICT_FAIL;
    for (int r = 0; r < a->world->size; r++) {
        any = any || a->cells[r].failed;
    }
    for (int r = 0; r < a->world->size && !any; r++) {
        a->cells[r].failed = true;
    }
}

/* Rank 0's verdict holds for all ranks: figures may differ in their last digit, and only rank 0 has
 * the baseline. */
static enum dt_status run_check(struct dt_acceptance *a, int i, struct dt_finding *row)
{
    struct dt_comm *comm = a->world->comm;
    a->cells = a->all_cells + i * comm->size;
    for (int r = 0; r < comm->size; r++) {
        a->cells[r] = (struct dt_accept_cell){.value = (double)NAN};
    }
    dt_comm_phase(comm, checks[i].name);
    const double begin_s = dt_clock_s();
    const enum dt_status s = checks[i].run(a, row);
    while (s != DT_STALLED && a->n_memory > 0) { /* messages may still be on their way */
        free(a->memory[--a->n_memory]);
    }
    DT_TRY(take_error(a, s, row));
    dt_accept_baseline_apply(a, i, row);
    if (row->verdict == DT_VERDICT_MEASURED) {
        snprintf(row->hint, sizeof row->hint, "nothing to compare with: %s, %s", a->alone,
                 dt_args_has(a->args, DT_OPTION_BASELINE) ? "not in the --baseline"
                                                          : "no --baseline");
    }
    find_blame(a, row);
    DT_TRY(dt_comm_broadcast(comm, row, sizeof *row, 0, "verdict"));
    row->name = checks[i].name; /* an address of this process */
    row->seconds = dt_clock_s() - begin_s;
    a->n_done++;
    return DT_OK;
}

/* Prints a row to stderr as it comes, so that it can be read before the program ends. */
static void tell(const struct dt_finding *row)
{
#define WORD(constant, word, class) word,
    static const char *const words[] = {DT_VERDICT_LIST(WORD)};
    const struct dt_text_view view = {.width = dt_terminal_width(STDERR_FILENO),
                                      .utf8 = dt_terminal_utf8()};
    dt_terminal_live(NULL);
    const int at =
        fprintf(stderr, "%-8s  %-10s  %5.1f s  ", words[row->verdict], row->name, row->seconds);
    dt_view_wrap(stderr, view, row->text, at, at);
    if (row->hint[0] != '\0') {
        fprintf(stderr, "%*s", at, "");
        dt_view_wrap(stderr, view, row->hint, at, at);
    }
}

static enum dt_status run_checks(struct dt_acceptance *a)
{
    for (int i = 0; i < DT_N_ACCEPT; i++) {
        if (a->world->rank == 0) {
            dt_terminal_live("%s (%d of %d)", checks[i].name, i + 1, DT_N_ACCEPT);
        }
        DT_TRY(run_check(a, i, &a->rows[i]));
        if (a->world->rank == 0) {
            tell(&a->rows[i]);
        }
    }
    return DT_OK;
}

static enum dt_status report(const struct dt_acceptance *a)
{
    const int n_failed = dt_findings_count(a->rows, a->n_done, DT_VERDICT_FAIL);
    enum dt_status s = DT_OK;
    if (a->world->rank == 0) {
        struct dt_doc *doc = dt_accept_document(a);
        s = dt_result_show(a->args, doc);
        dt_doc_close(doc);
    }
    if (n_failed > 0 && dt_output_failed(s)) {
        s = DT_OK; /* a failed check takes precedence */
    }
    DT_TRY(dt_world_agree(a->world, s));
    return n_failed == 0 ? DT_OK
                         : dt_error_agreed(dt_error(
                               DT_FAILED,
                               "accept: %d of %d checks failed (see the rows that begin with FAIL)",
                               n_failed, a->n_done));
}

/* ---- the command */

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

/* Checks that the results can be written, before measuring: they may go to the run's folder. */
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
    return dt_world_agree(a->world, a->world->rank == 0 ? dt_result_try(a->args) : DT_OK);
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

static enum dt_status prepare(struct dt_acceptance *a)
{
    struct dt_world *world = a->world;
    const char *before = dt_args_text(a->args, DT_OPTION_BASELINE);
    const struct dt_doctor_spec doctor = {.run = dt_args_text(a->args, DT_OPTION_RUN)};
    for (int k = 0; k < DT_ACCEPT_FIGURES; k++) {
        a->figures[k] = a->baseline[k] = (double)NAN;
    }
    DT_TRY(dt_world_agree(
        world, dt_config_parse("accept", training, sizeof training - 1, NULL, 0, &a->config)));
    DT_TRY(try_faults(a));
    DT_TRY(prepare_places(a));
    DT_TRY(dt_device_choose(world, &a->config, &a->device));
    DT_TRY(dt_world_alloc(world, DT_N_ACCEPT * (size_t)world->size, sizeof *a->all_cells,
                          "the ranks' results", (void **)&a->all_cells));
    DT_TRY(dt_probe_gather(world, &doctor, &a->ranks));
    return dt_world_agree(
        world, world->rank == 0 && before != NULL ? dt_accept_baseline_read(a, before) : DT_OK);
}

/* DT_FAILED, agreed: a row has failed. A rank that stalls ends it with the error of that. */
static enum dt_status run(struct dt_world *world, const struct dt_args *args)
{
    static struct dt_acceptance a; /* too large for the stack */
    static struct dt_faults faults;
    const struct dt_values *injects = &args->values[DT_OPTION_INJECT];
    double percent = 10;
    enum dt_status s = dt_args_decimal(args, DT_OPTION_TOLERANCE, 0, 1000, &percent);
    DT_TRY(dt_world_agree(world,
                          s == DT_OK ? dt_faults_parse(injects->texts, injects->n, &faults) : s));
    a.world = world;
    a.args = args;
    a.faults = &faults;
    a.tolerance = percent / 100;
    a.measure_s = dt_args_has(args, DT_OPTION_SHORT) ? 0.1 : 1;
    s = prepare(&a);
    s = s == DT_OK ? run_checks(&a) : s;
    if (world->rank == 0) {
        dt_terminal_live(NULL);
    }
    s = s == DT_OK ? report(&a) : s;
    leave_folder(&a, s);
    free(a.links.bandwidth_gbs);
    free(a.links.latency_us);
    free(a.ranks);
    free(a.all_cells);
    return s;
}

const struct dt_command dt_command_accept = {
    .word = "accept",
    .meaning = "run acceptance tests on a cluster",
    .usage = "mpirun -np 4 dtrain accept [--short] [--run DIR] [--baseline FILE]\n"
             "      [--tolerance PERCENT] [--junit FILE] [--inject FAULT]..." DT_RESULT_USAGE,
    .examples = "  srun --mpi=pmi2 dtrain accept --run runs/acceptance --junit accept.xml\n",
    .more = "Runs eleven checks, prints each result to stderr as it comes and all of them at the "
            "end. Each row is PASS, FAIL, MEASURED if its figures cannot be compared with those of "
            "three hosts or of a `--baseline`, or SKIPPED if there is nothing to check; a FAIL "
            "ends the program with status 1. docs/operating.md says what each row requires. "
            "`--json` also writes the baseline of a later run.",
    .options = {[DT_OPTION_RUN] = {DT_TAKEN,
                                   "folder for its files; default runs/accept/<UTC time>"},
                [DT_OPTION_INJECT] = {DT_TAKEN, "inject a fault into the training (see "
                                                "docs/operating.md), which must then fail"},
                [DT_OPTION_JUNIT] = {DT_TAKEN},
                [DT_OPTION_BASELINE] = {DT_TAKEN},
                [DT_OPTION_TOLERANCE] = {DT_TAKEN},
                [DT_OPTION_SHORT] = {DT_TAKEN},
                DT_RESULT_OPTIONS},
    .tries_outputs = true,
    .together = run,
};
