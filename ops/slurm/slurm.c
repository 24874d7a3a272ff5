#include "ops/slurm/slurm.h"

#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/text.h"
#include "cli/args.h"
#include "cli/config/config.h"
#include "cli/text.h"
#include "dist/strategy/roles.h"

#define MAX_NODES 100000
#define MAX_PER_NODE 4096
#define SBATCH_LIMIT_S 30.0
#define LOOK_MS 20

/* ---- Slurm's opinion of the script */

/* Stores the script in an unnamed file: unlike a pipe it takes all of it at once, even without a
 * reader. */
static enum dt_status hold(const char *script, size_t n, FILE **out)
{
    *out = tmpfile();
    if (*out == NULL || fwrite(script, 1, n, *out) != n || fflush(*out) != 0 ||
        lseek(fileno(*out), 0, SEEK_SET) != 0) {
        return dt_error_errno(DT_IO, "no temporary file for sbatch");
    }
    return DT_OK;
}

/* Finds the program on the PATH, and skips folders that cannot be searched or do not exist:
 * posix_spawnp stops at some of them, and reports others as a program without permission. */
static bool find_program(char path[DT_PATH_SIZE])
{
    const char *part = getenv("PATH");
    struct stat info;
    for (size_t n; part != NULL; part = part[n] == ':' ? part + n + 1 : NULL) {
        n = strcspn(part, ":");
        const int n_path = snprintf(path, DT_PATH_SIZE, "%.*s/sbatch", (int)n, part);
        if (n > 0 && n_path < DT_PATH_SIZE && stat(path, &info) == 0 && S_ISREG(info.st_mode) &&
            access(path, X_OK) == 0) {
            return true;
        }
    }
    return false;
}

/* Starts it with the script as stdin, all output to stderr, and no signal blocked. Returns an error
 * number, or 0. */
static int start(const char *path, int script, pid_t *child)
{
    static char program[] = "sbatch", option[] = "--test-only";
    char *const words[] = {program, option, NULL};
    sigset_t none;
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attributes;
    sigemptyset(&none);
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_adddup2(&files, script, STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&files, STDERR_FILENO, STDOUT_FILENO);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
    const int error = posix_spawn(child, path, &files, &attributes, words, environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&files);
    return error;
}

static enum dt_status wait_for(pid_t child)
{
    const double begin = dt_clock_s();
    int state = 0;
    while (waitpid(child, &state, WNOHANG) == 0) {
        if (dt_clock_s() - begin > SBATCH_LIMIT_S) {
            kill(child, SIGKILL);
            waitpid(child, &state, 0);
            return dt_error(DT_UNAVAILABLE,
                            "sbatch --test-only: no answer within %.0f s (ask your cluster's "
                            "controller: scontrol ping)",
                            SBATCH_LIMIT_S);
        }
        dt_sleep_ms(LOOK_MS);
    }
    if (!WIFEXITED(state) || WEXITSTATUS(state) != 0) {
        return dt_error(
            DT_UNAVAILABLE,
            "sbatch --test-only refuses the script, as it says above (change the options)");
    }
    return DT_OK;
}

/* Runs `sbatch --test-only` with the script on its stdin, and passes its output to stderr. Nothing
 * is submitted. `*found`: there is such a program on the PATH; if not, DT_OK. DT_UNAVAILABLE: it
 * rejects the script, or does not answer within SBATCH_LIMIT_S. */
static enum dt_status test_with_sbatch(const char *script, size_t n, bool *found)
{
    FILE *file = NULL;
    pid_t child = 0;
    char path[DT_PATH_SIZE];
    *found = find_program(path);
    if (!*found) {
        return DT_OK;
    }
    const enum dt_status s = hold(script, n, &file);
    const int error = s == DT_OK ? start(path, fileno(file), &child) : 0;
    if (file != NULL) {
        fclose(file);
    }
    errno = error;
    if (s != DT_OK) {
        return s;
    }
    return error != 0 ? dt_error_errno(DT_UNAVAILABLE, "sbatch does not start") : wait_for(child);
}

/* ---- the script */

/* The values of the script's lines. */
struct job {
    const struct dt_args *args;
    struct dt_config config;
    size_t n_nodes, n_per_node, n_cpus, n_gpus; /* n_cpus: per rank; n_gpus: per node */
    char numbers[4][24];                        /* the same as texts */
};

/* Parses [D-]HH:MM:SS; negative: invalid. */
static double time_limit_s(const char *text)
{
    unsigned days = 0, hours = 0, minutes = 0, seconds = 0;
    int n = 0;
    const bool plain = strspn(text, "0123456789:-") == strlen(text);
    if (plain && sscanf(text, "%4u-%2u:%2u:%2u%n", &days, &hours, &minutes, &seconds, &n) != 4) {
        days = 0;
        sscanf(text, "%4u:%2u:%2u%n", &hours, &minutes, &seconds, &n);
    }
    if (n == 0 || text[n] != '\0' || minutes > 59 || seconds > 59) {
        return -1;
    }
    return 86400.0 * days + 3600.0 * hours + 60.0 * minutes + seconds;
}

/* Seconds before the time limit at which Slurm signals the ranks to save. */
static double notice_s(void)
{
    static const char key[] = "#SBATCH --signal=USR1@";
    const char *found = strstr(dt_batch_template, key);
    return found != NULL ? strtod(found + strlen(key), NULL) : 0;
}

static enum dt_status check_time(const char *text)
{
    if (text != NULL && time_limit_s(text) < 0) {
        return dt_error(DT_USAGE, "--time: expected [D-]HH:MM:SS, got '%.60s'", text);
    }
    if (text != NULL && time_limit_s(text) <= notice_s()) {
        return dt_error(
            DT_USAGE,
            "--time %s: the ranks save a checkpoint %.0f s before the end (give them longer)", text,
            notice_s());
    }
    return DT_OK;
}

/* Names are copied into a line for Slurm. */
static bool is_name(const char *text)
{
    static const char allowed[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.,@+";
    return text[0] != '\0' && text[strspn(text, allowed)] == '\0';
}

static enum dt_status check_name(const char *option, const char *text)
{
    if (text != NULL && !is_name(text)) {
        return dt_error(DT_USAGE, "--%s: expected letters, digits and _-.,@+, got '%.60s'", option,
                        text);
    }
    return DT_OK;
}

static enum dt_status read_options(struct job *job)
{
    const struct dt_args *a = job->args;
    DT_TRY(dt_args_number(a, DT_OPTION_NODES, false, 1, MAX_NODES, &job->n_nodes));
    DT_TRY(dt_args_number(a, DT_OPTION_GPUS_PER_NODE, false, 1, MAX_PER_NODE, &job->n_gpus));
    job->n_per_node = job->n_gpus > 0 ? job->n_gpus : 4;
    DT_TRY(dt_args_number(a, DT_OPTION_NTASKS_PER_NODE, false, 1, MAX_PER_NODE, &job->n_per_node));
    DT_TRY(dt_args_number(a, DT_OPTION_CPUS_PER_TASK, false, 1, MAX_PER_NODE, &job->n_cpus));
    if (job->n_gpus > 0 && job->n_per_node > job->n_gpus) {
        return dt_error(DT_USAGE,
                        "%zu ranks on a node share %zu GPU%s (at most one rank for each GPU: "
                        "--ntasks-per-node %zu)",
                        job->n_per_node, job->n_gpus, job->n_gpus == 1 ? "" : "s", job->n_gpus);
    }
    DT_TRY(check_time(dt_args_text(a, DT_OPTION_TIME)));
    DT_TRY(check_name("partition", dt_args_text(a, DT_OPTION_PARTITION)));
    return check_name("account", dt_args_text(a, DT_OPTION_ACCOUNT));
}

static enum dt_status read_job(const struct dt_args *args, struct job *out)
{
    *out = (struct job){.args = args, .n_nodes = 1, .n_cpus = 1};
    struct dt_roles roles;
    DT_TRY(read_options(out));
    DT_TRY(dt_config_load(dt_args_text(args, DT_OPTION_CONFIG), args->values[DT_OPTION_SET].texts,
                          args->values[DT_OPTION_SET].n, &out->config));
    if (out->config.device == DT_DEVICE_CUDA && out->n_gpus == 0) {
        return dt_error(DT_USAGE,
                        "%s: device is cuda, and the job asks for no GPU (add --gpus-per-node N)",
                        dt_args_text(args, DT_OPTION_CONFIG));
    }
    const size_t numbers[] = {out->n_nodes, out->n_per_node, out->n_cpus, out->n_gpus};
    for (int i = 0; i < 4; i++) {
        snprintf(out->numbers[i], sizeof out->numbers[i], "%zu", numbers[i]);
    }
    return dt_roles_find(&out->config.dist, 0, (int)(out->n_nodes * out->n_per_node), &roles);
}

/* The value of an sbatch option; NULL: the template's line stays. */
static const char *value_of(const struct job *job, const char *key, size_t n)
{
    const struct dt_args *a = job->args;
    const char *name = is_name(job->config.name) ? job->config.name : NULL;
    const struct {
        const char *key, *value;
    } rows[] = {{"job-name", name},
                {"nodes", job->numbers[0]},
                {"ntasks-per-node", job->numbers[1]},
                {"cpus-per-task", job->numbers[2]},
                {"gpus-per-node", job->n_gpus > 0 ? job->numbers[3] : NULL},
                {"time", dt_args_text(a, DT_OPTION_TIME)},
                {"partition", dt_args_text(a, DT_OPTION_PARTITION)},
                {"account", dt_args_text(a, DT_OPTION_ACCOUNT)}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (strlen(rows[i].key) == n && strncmp(rows[i].key, key, n) == 0) {
            return rows[i].value;
        }
    }
    return NULL;
}

/* #SBATCH --key=value, also if commented out with another #. */
static bool put_directive(FILE *out, const struct job *job, const char *line)
{
    static const char head[] = "#SBATCH --";
    line += strncmp(line, "##SBATCH", 8) == 0;
    if (strncmp(line, head, strlen(head)) != 0) {
        return false;
    }
    const char *key = line + strlen(head);
    const size_t n = strcspn(key, "=\n");
    const char *value = value_of(job, key, n);
    if (value != NULL) {
        fprintf(out, "%s%.*s=%s\n", head, (int)n, key, value);
    }
    return value != NULL;
}

/* Prints the batch arithmetic of these ranks with this configuration. */
static void put_arithmetic(FILE *out, const struct job *job)
{
    const struct dt_config *c = &job->config;
    const int n_ranks = (int)(job->n_nodes * job->n_per_node);
    char count[32], path[DT_LINE_SIZE];
    struct dt_roles roles = {.n_workers = n_ranks};
    dt_roles_find(&c->dist, 0, n_ranks, &roles);
    fprintf(out, "# %s on %d rank%s: ",
            dt_text_escape(dt_args_text(job->args, DT_OPTION_CONFIG), path, sizeof path), n_ranks,
            n_ranks == 1 ? "" : "s");
    if (c->batch_per_rank > 0) {
        const double scale = dt_lr_scale(c->lr_scaling, roles.n_workers);
        fprintf(out, "%lld x %d = %s samples a step, learning rate %g x %g = %g\n",
                (long long)c->batch_per_rank, roles.n_workers,
                dt_count_text((double)c->batch_per_rank * roles.n_workers, count, sizeof count),
                c->optimizer.lr, scale, c->optimizer.lr * scale);
    } else {
        fprintf(out, "%s samples a step, learning rate %g\n",
                dt_count_text((double)c->batch_global, count, sizeof count), c->optimizer.lr);
    }
}

/* name=${VARIABLE:-value} */
static void put_default(FILE *out, const char *name, const char *variable, const char *value)
{
    fprintf(out, "%s=${%s:-", name, variable);
    dt_text_put_word(out, value);
    fputs("}\n", out);
}

static void put_options(FILE *out, const struct job *job)
{
    const struct dt_args *a = job->args;
    const char *gap = "";
    fputs("options=(", out);
    if (job->n_gpus > 0 && job->config.device == DT_DEVICE_AUTO) {
        fputs("--set device=cuda", out);
        gap = " ";
    }
    for (int i = 0; i < a->values[DT_OPTION_SET].n; i++) {
        fprintf(out, "%s--set ", gap);
        dt_text_put_word(out, a->values[DT_OPTION_SET].texts[i]);
        gap = " ";
    }
    if (dt_args_text(a, DT_OPTION_DATA) != NULL) {
        fprintf(out, "%s--data ", gap);
        dt_text_put_word(out, dt_args_text(a, DT_OPTION_DATA));
    }
    fputs(")\n", out);
}

static void put_line(FILE *out, const struct job *job, const char *line)
{
    if (strncmp(line, "config=", 7) == 0) {
        put_arithmetic(out, job);
        put_default(out, "config", "DTRAIN_CONFIG", dt_args_text(job->args, DT_OPTION_CONFIG));
    } else if (strncmp(line, "run=", 4) == 0 && dt_args_text(job->args, DT_OPTION_RUN) != NULL) {
        put_default(out, "run", "DTRAIN_RUN", dt_args_text(job->args, DT_OPTION_RUN));
    } else if (strncmp(line, "options=", 8) == 0) {
        put_options(out, job);
    } else if (!put_directive(out, job, line)) {
        fprintf(out, "%.*s\n", (int)strcspn(line, "\n"), line);
    }
}

/* A dt_file_put_fn. */
static void put_script(FILE *out, const void *job)
{
    for (const char *line = dt_batch_template; *line != '\0'; line += strcspn(line, "\n") + 1) {
        put_line(out, job, line);
    }
}

/* Never overwrites an existing file: it may have been edited by hand. */
static enum dt_status write_file(const char *path, const char *text, size_t n)
{
    bool replaces = false;
    DT_TRY(dt_file_try(path, &replaces));
    if (replaces) {
        return dt_error(DT_CANT_CREATE, "%s: exists already (remove it, or name another file)",
                        path);
    }
    DT_TRY(dt_file_write(path, &(struct dt_file_part){text, n}, 1));
    dt_text_print(stderr, "wrote %s", path);
    return DT_OK;
}

static enum dt_status check(const char *text, size_t n)
{
    bool found = false;
    const enum dt_status s = test_with_sbatch(text, n, &found);
    if (!found && s == DT_OK) {
        fputs("not checked: no sbatch here\n", stderr);
    }
    return s;
}

/* Writes the script to stdout or to --script, a new file, and has Slurm check it if Slurm is
 * strategy does not fit these ranks. DT_CANT_CREATE: the file exists, or its folder does not;
 * DT_IO. DT_UNAVAILABLE: Slurm rejects the script, which is written all the same. */
static enum dt_status slurm(const struct dt_args *args)
{
    static struct job job; /* too large for the stack */
    char *text = NULL;
    size_t n = 0;
    DT_TRY(read_job(args, &job));
    enum dt_status s = dt_file_collect("the batch script", put_script, &job, &text, &n);
    if (s == DT_OK && dt_args_text(args, DT_OPTION_SCRIPT) != NULL) {
        s = write_file(dt_args_text(args, DT_OPTION_SCRIPT), text, n);
    } else if (s == DT_OK) {
        fputs(text, stdout);
        fflush(stdout);
    }
    s = s == DT_OK ? check(text, n) : s;
    free(text);
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
