/* `dtrain slurm`: the batch script of a job, which is scripts/dtrain.sbatch with the values of the
 * command line in some of its lines. */
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/text.h"
#include "cli/args.h"
#include "cli/config/config.h"
#include "cli/output.h"
#include "dist/strategy/roles.h"

#define NOTICE_S 180 /* the template's --signal */

extern const char dt_batch_template[]; /* scripts/dtrain.sbatch */

struct job {
    struct dt_args args;
    struct dt_config config;
    struct dt_roles roles;
    int n_ranks;
};

static enum dt_status read_job(struct job *job)
{
    struct dt_args *a = &job->args;
    const struct dt_values *sets = &a->values[DT_OPTION_SET];
    size_t n_nodes = 1, n_per_node = 4, n_cpus = 1, n_gpus = 0;
    double time_s = NOTICE_S + 1;
    if (!dt_args_has(a, DT_OPTION_NTASKS_PER_NODE)) { /* a rank for each GPU */
        a->values[DT_OPTION_NTASKS_PER_NODE] = a->values[DT_OPTION_GPUS_PER_NODE];
    }
    DT_TRY(dt_args_number(a, DT_OPTION_NODES, false, 1, 100000, &n_nodes));
    DT_TRY(dt_args_number(a, DT_OPTION_GPUS_PER_NODE, false, 1, 4096, &n_gpus));
    DT_TRY(dt_args_number(a, DT_OPTION_NTASKS_PER_NODE, false, 1, 4096, &n_per_node));
    DT_TRY(dt_args_number(a, DT_OPTION_CPUS_PER_TASK, false, 1, 4096, &n_cpus));
    DT_TRY(dt_args_time(a, DT_OPTION_TIME, &time_s));
    DT_TRY(dt_args_name(a, DT_OPTION_PARTITION));
    DT_TRY(dt_args_name(a, DT_OPTION_ACCOUNT));
    if (time_s <= NOTICE_S) {
        return dt_error(DT_USAGE,
                        "--time %s: the ranks save a checkpoint %d s before the end (give them "
                        "longer)",
                        dt_args_text(a, DT_OPTION_TIME), NOTICE_S);
    }
    if (n_gpus > 0 && n_per_node > n_gpus) {
        return dt_error(DT_USAGE,
                        "%zu ranks on a node share %zu GPU%s (at most one rank for each GPU: "
                        "--ntasks-per-node %zu)",
                        n_per_node, n_gpus, n_gpus == 1 ? "" : "s", n_gpus);
    }
    DT_TRY(dt_config_load(dt_args_text(a, DT_OPTION_CONFIG), sets->texts, sets->n, &job->config));
    if (job->config.device == DT_DEVICE_CUDA && n_gpus == 0) {
        return dt_error(DT_USAGE,
                        "%s: device is cuda, and the job asks for no GPU (add --gpus-per-node N)",
                        dt_args_text(a, DT_OPTION_CONFIG));
    }
    job->n_ranks = (int)(n_nodes * n_per_node);
    return dt_roles_find(&job->config.dist, 0, job->n_ranks, &job->roles);
}

static void put_options(FILE *out, const struct job *job)
{
    static const enum dt_option passed[] = {DT_OPTION_SET, DT_OPTION_DATA};
    const bool gpu = dt_args_has(&job->args, DT_OPTION_GPUS_PER_NODE);
    fputs(gpu && job->config.device == DT_DEVICE_AUTO ? "options=(--set device=cuda" : "options=(",
          out);
    for (int o = 0; o < 2; o++) {
        const struct dt_values *values = &job->args.values[passed[o]];
        for (int i = 0; i < values->n; i++) {
            fprintf(out, " --%s ", dt_options[passed[o]].name);
            dt_text_put_word(out, values->texts[i]);
        }
    }
    fputs(")\n", out);
}

/* A line of the template: `#SBATCH --nodes=1`, also behind another #, and `run=${DTRAIN_RUN:-DIR}`
 * get the value of the option of that name, if there is one. */
static void put_line(FILE *out, const struct job *job, const char *line)
{
    static const char directive[] = "#SBATCH --";
    const char *bare = line + (strncmp(line, "##", 2) == 0), *value = NULL;
    const bool is_directive = strncmp(bare, directive, strlen(directive)) == 0;
    const char *key = is_directive ? bare + strlen(directive) : bare;
    for (int i = 0; i < DT_N_OPTIONS; i++) {
        const size_t n = strlen(dt_options[i].name);
        if (strncmp(key, dt_options[i].name, n) == 0 && key[n] == '=') {
            value = dt_args_text(&job->args, i);
        }
    }
    if (strncmp(key, "job-name=", 9) == 0 && dt_args_is_name(job->config.name)) {
        value = job->config.name;
    }
    if (value == NULL) {
        fprintf(out, "%.*s\n", (int)strcspn(line, "\n"), line);
        return;
    }
    fprintf(out, "%.*s", (int)strcspn(bare, is_directive ? "=" : "-") + 1, bare);
    dt_text_put_word(out, value);
    fputs(is_directive ? "\n" : "}\n", out);
}

/* A dt_file_put_fn. */
static void put_script(FILE *out, const void *context)
{
    const struct job *job = context;
    const struct dt_config *c = &job->config;
    const int n = job->roles.n_workers;
    for (const char *line = dt_batch_template; *line != '\0'; line += strcspn(line, "\n") + 1) {
        if (strncmp(line, "options=", 8) == 0) {
            put_options(out, job);
        } else {
            put_line(out, job, line);
        }
        if (line == dt_batch_template) {
            fprintf(out, "# %d rank%s: %lld samples a step, learning rate %g\n", job->n_ranks,
                    job->n_ranks == 1 ? "" : "s",
                    (long long)(c->batch_global > 0 ? c->batch_global : n * c->batch_per_rank),
                    c->optimizer.lr * (c->batch_global > 0 ? 1 : dt_lr_scale(c->lr_scaling, n)));
        }
    }
}

/* Runs `sbatch --test-only`, which submits nothing; its output goes to stderr. */
static enum dt_status test_with_sbatch(const char *script)
{
    FILE *sbatch = popen("if ! command -v sbatch >/dev/null\n"
                         "then echo not checked: no sbatch here\n"
                         "else timeout -s KILL 30 sbatch --test-only\n"
                         "fi >&2",
                         "w");
    if (sbatch != NULL) {
        fputs(script, sbatch);
    }
    return sbatch != NULL && pclose(sbatch) == 0
               ? DT_OK
               : dt_error(DT_UNAVAILABLE,
                          "sbatch --test-only refuses the script, as it says above, or did not "
                          "answer within 30 s (change the options, or try scontrol ping)");
}

/* DT_UNAVAILABLE: Slurm rejects the script, which is written all the same. */
static enum dt_status slurm(const struct dt_args *args)
{
    const char *path = dt_args_text(args, DT_OPTION_SCRIPT);
    char *text = NULL;
    size_t n = 0;
    struct job *job = malloc(sizeof *job);
    if (job == NULL) {
        return dt_error(DT_NO_MEMORY, "out of memory for a batch script");
    }
    job->args = *args;
    enum dt_status s = read_job(job);
    s = s == DT_OK ? dt_file_collect("the batch script", put_script, job, &text, &n) : s;
    if (s == DT_OK && path != NULL) {
        DT_TRY_GOTO(s, dt_output_new(path, text, "name another file"), done);
        dt_text_print(stderr, "wrote %s", path);
    } else if (s == DT_OK) {
        fputs(text, stdout);
        fflush(stdout);
    }
    s = s == DT_OK ? test_with_sbatch(text) : s;
done:
    free(text);
    free(job);
    return s;
}

const struct dt_command dt_command_slurm = {
    .word = "slurm",
    .meaning = "write the batch script of a job, and have Slurm check it",
    .usage = "dtrain slurm --config FILE [--nodes N] [--ntasks-per-node N]\n"
             "      [--cpus-per-task N] [--gpus-per-node N] [--time [D-]HH:MM:SS]\n"
             "      [--partition NAME] [--account NAME] [--data DIR] [--run DIR]\n"
             "      [--set KEY.PATH=VALUE]... [--script FILE]",
    .examples = "  dtrain slurm --config configs/mnist.json --nodes 2 --time 00:20:00 \\\n"
                "      --script night.sbatch\n",
    .more = "Writes the batch script of a job to stdout or to a new file: the one in `scripts/`, "
            "which saves before the time limit, requeues the job and resumes, with the "
            "configuration and options given here. If there is a `sbatch`, its `--test-only` "
            "checks the script; if it rejects the script, the program ends with status 69.",
    .options = {[DT_OPTION_CONFIG] = {DT_REQUIRED},
                [DT_OPTION_DATA] = {DT_TAKEN},
                [DT_OPTION_RUN] = {DT_TAKEN, "the job's run; default runs/<job name>-<job id>"},
                [DT_OPTION_SET] = {DT_TAKEN},
                [DT_OPTION_NODES] = {DT_TAKEN},
                [DT_OPTION_NTASKS_PER_NODE] = {DT_TAKEN},
                [DT_OPTION_CPUS_PER_TASK] = {DT_TAKEN},
                [DT_OPTION_GPUS_PER_NODE] = {DT_TAKEN},
                [DT_OPTION_TIME] = {DT_TAKEN},
                [DT_OPTION_PARTITION] = {DT_TAKEN},
                [DT_OPTION_ACCOUNT] = {DT_TAKEN},
                [DT_OPTION_SCRIPT] = {DT_TAKEN}},
    .alone = slurm,
};
