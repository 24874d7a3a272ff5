/* dt_manual_program of cli/manual/manual.h. */
#include <string.h>

#include "cli/manual/manual.h"
#include "cli/manual/mdoc.h"
#include "cli/program.h"
#include "cli/prose.h"
#include "train/watch/inject.h"

static void begin(FILE *out)
{
    dt_mdoc_head(out, "dtrain", 1,
                 "train small convolutional and dense networks, data-parallel over MPI ranks");
    fputs(".Sh SYNOPSIS\n.Bl -hang -width Ds -compact\n", out);
    dt_mdoc_usage(out, "mpirun -np N dtrain [COMMAND] [OPTION]...");
    dt_mdoc_usage(out, "dtrain help [COMMAND]");
    fputs(".El\n.Sh DESCRIPTION\n.Nm\ntrains a model that a JSON configuration describes\n.Po "
          "see\n.Xr dtrain-config 5\n.Pc ,\n"
          "and helps to see what happens between the ranks.\n"
          "The ranks are started by\n.Xr mpirun 1\nor\n.Xr srun 1 ;\nstarted alone it is one "
          "rank.\n.Pp\n",
          out);
    dt_mdoc_text(out,
                 "All paths, also those inside a configuration, are relative to the working "
                 "directory. Results go to the standard "
                 "output; the log, progress and errors to the standard error. An error is one "
                 "line, however many ranks there are.",
                 false);
}

static void print_command(FILE *out, const struct dt_command *row)
{
    fprintf(out, ".Ss %s\n", row->word);
    dt_mdoc_text(out, row->meaning, true);
    fputs(".Bl -hang -width Ds\n", out);
    dt_mdoc_usage(out, row->usage);
    fputs(".El\n", out);
    if (row->more != NULL) {
        fputs(".Pp\n", out);
        dt_mdoc_text(out, row->more, true);
    }
}

static bool same_group(const struct dt_command *a, const struct dt_command *b)
{
    const size_t n = strcspn(a->word, " ");
    return a->word[n] == ' ' && b != NULL && strncmp(a->word, b->word, n + 1) == 0;
}

/* Whether the command takes the option; where `meaning` is not NULL, with this meaning. */
static bool owns(const struct dt_command *command, int option, const char *meaning)
{
    const char *mine = command->options[option].meaning;
    return dt_command_has_word(command) && command->options[option].need != DT_NOT_TAKEN &&
           (meaning == NULL || (mine != NULL && strcmp(mine, meaning) == 0));
}

/* "For `train`, `eval`, `lab`.": which commands have it; where all of a group do, its first word.
 */
static void print_owners(FILE *out, int option, const char *meaning)
{
    char owners[1024] = "For ";
    size_t n = strlen(owners);
    for (const struct dt_command *const *c = dt_program.commands; *c != NULL; c++) {
        int n_group = 1, n_owners = owns(*c, option, meaning);
        const bool begins = c == dt_program.commands || !same_group(*c, c[-1]);
        while (begins && same_group(*c, c[n_group])) {
            n_owners += owns(c[n_group++], option, meaning);
        }
        const bool whole = n_group > 1 && n_owners == n_group;
        if (owns(*c, option, meaning) && n < sizeof owners) {
            n += (size_t)snprintf(owners + n, sizeof owners - n, "%s`%.*s`", n > 4 ? ", " : "",
                                  whole ? (int)strcspn((*c)->word, " ") : 99, (*c)->word);
        }
        c += whole ? n_group - 1 : 0;
    }
    if (meaning != NULL && n < sizeof owners) {
        snprintf(owners + n, sizeof owners - n, ": %s", meaning);
    }
    dt_mdoc_text(out, owners, true);
}

/* What it means to some commands alone, each meaning once. */
static void print_meanings(FILE *out, int option)
{
    for (const struct dt_command *const *c = dt_program.commands; *c != NULL; c++) {
        const char *meaning = (*c)->options[option].meaning;
        const struct dt_command *const *first = dt_program.commands;
        while (meaning != NULL && !owns(*first, option, meaning)) {
            first++;
        }
        if (meaning != NULL && first == c) {
            print_owners(out, option, meaning);
        }
    }
}

static void print_option(FILE *out, int i)
{
    const struct dt_option_row *o = &dt_options[i];
    fprintf(out, ".It Fl -%s", o->name);
    if (o->takes == DT_TAKES_OPTIONAL_VALUE) {
        fprintf(out, " Ns Op = Ns Ar %s", o->value);
    } else if (o->takes == DT_TAKES_VALUE) {
        dt_mdoc_value(out, o->value);
    }
    if (o->letter != '\0') {
        fprintf(out, " , Fl %c", o->letter);
    }
    if (o->letter != '\0' && o->takes == DT_TAKES_VALUE) {
        dt_mdoc_value(out, o->value);
    }
    fputc('\n', out);
    dt_mdoc_text(out, o->meaning, true);
    dt_mdoc_text(out, o->more, o->more[0] != '\0');
    if (o->use != DT_COMMON) {
        print_owners(out, i, NULL);
    }
    print_meanings(out, i);
}

static void print_options(FILE *out)
{
    fputs(".Sh OPTIONS\nAn option's value follows as the next argument or behind an equals "
          "sign.\n.Bl -tag -width Ds\n",
          out);
    for (int i = 0; i < DT_N_OPTIONS; i++) {
        print_option(out, i);
    }
    fputs(".El\n.Ss Faults\nWhat\n.Fl -inject\nputs in:\n.Bl -tag -width Ds\n", out);
#define FAULT_ITEM(constant, name, needs, may, example, meaning) \
    fputs(".It Cm " example "\n", out);                          \
    dt_mdoc_text(out, meaning, true);
    DT_FAULT_LIST(FAULT_ITEM)
    fputs(".El\n", out);
}

static void print_tables(FILE *out)
{
    fputs(".Sh ENVIRONMENT\n.Bl -tag -width DTRAIN_CUDA_MODULE\n", out);
#define VARIABLE_ITEM(variable, meaning, more) \
    fputs(".It Ev " variable "\n", out);       \
    dt_mdoc_text(out, meaning, true);          \
    dt_mdoc_text(out, more, (more)[0] != '\0');
    DT_ENVIRONMENT_LIST(VARIABLE_ITEM)
    fputs(".El\n.Sh FILES\nThe folder of a run holds\n.Bl -tag -width checkpoints/*.safetensors\n",
          out);
#define FILE_ITEM(file, meaning)     \
    fputs(".It Pa " file "\n", out); \
    dt_mdoc_text(out, meaning, true);
    DT_RUN_FILE_LIST(FILE_ITEM)
    fputs(".El\n.Sh EXIT STATUS\n.Bl -tag -width Ds -compact\n", out);
#define STATUS_ITEM(name, code, meaning) \
    fprintf(out, ".It %d\n", code);      \
    dt_mdoc_text(out, meaning, true);
    DT_STATUS_LIST(STATUS_ITEM)
    fputs(".El\n.Sh EXAMPLES\n", out);
    const char *between = "";
#define EXAMPLE_ITEM(what, commands) \
    fputs(between, out);             \
    dt_mdoc_text(out, what, true);   \
    dt_mdoc_literal(out, commands);  \
    between = ".Pp\n";
    DT_EXAMPLE_LIST(EXAMPLE_ITEM)
}

void dt_manual_program(FILE *out)
{
    begin(out);
    fputs(".Sh COMMANDS\n", out);
    for (const struct dt_command *const *c = dt_program.commands; *c != NULL; c++) {
        if (dt_command_has_word(*c)) {
            print_command(out, *c);
        }
    }
    print_options(out);
    print_tables(out);
    fputs(".Sh SEE ALSO\n.Xr mpirun 1 ,\n.Xr srun 1 ,\n.Xr dtrain-config 5\n", out);
}
