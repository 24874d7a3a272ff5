/* dt_manual_program of cli/manual/manual.h. */
#include <string.h>

#include "cli/args.h"
#include "cli/manual/manual.h"
#include "cli/prose.h"
#include "train/watch/inject.h"

static void begin(FILE *out)
{
    dt_scdoc_head(out, "dtrain", 1,
                  "train small convolutional and dense networks, data-parallel over MPI ranks");
    fputs("# SYNOPSIS\n\n", out);
    dt_scdoc_literal(out, "mpirun -np N dtrain [COMMAND] [OPTION]...\ndtrain help [COMMAND]\n");
    fputs("# DESCRIPTION\n\n", out);
    dt_scdoc_text(out, false,
                  "dtrain trains a model that a JSON configuration describes, see "
                  "`dtrain-config`(5), and helps to see what happens between the ranks. The ranks "
                  "are started by `mpirun`(1) or `srun`(1); started alone it is one rank.\n"
                  "All paths, also those inside a configuration, are relative to the working "
                  "directory. Results go to the standard output; the log, progress and errors to "
                  "the standard error. An error is one line, however many ranks there are.",
                  false);
}

static void print_command(FILE *out, const struct dt_command *row)
{
    fprintf(out, "## %s\n\n", row->word);
    dt_scdoc_text(out, false, row->meaning, true);
    dt_scdoc_literal(out, row->usage);
    dt_scdoc_text(out, false, row->more != NULL ? row->more : "", true);
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
    dt_scdoc_text(out, true, owners, true);
}

/* The meanings that only some commands give it, each once. */
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

static void print_value(FILE *out, const struct dt_option_row *o)
{
    const bool optional = o->takes == DT_TAKES_OPTIONAL_VALUE;
    if (o->takes != DT_TAKES_NOTHING) {
        fputs(optional ? "[=" : " ", out);
        dt_scdoc_name(out, o->value, o->value[0] >= 'A' && o->value[0] <= 'Z');
        fputs(optional ? "]" : "", out);
    }
}

static void print_option(FILE *out, int i)
{
    const struct dt_option_row *o = &dt_options[i];
    char name[40];
    snprintf(name, sizeof name, "--%s", o->name);
    dt_scdoc_name(out, name, false);
    print_value(out, o);
    if (o->letter != '\0') {
        fputs(", ", out);
        dt_scdoc_name(out, (const char[]){'-', o->letter, '\0'}, false);
        print_value(out, o);
    }
    fputc('\n', out);
    dt_scdoc_text(out, true, o->meaning, true);
    dt_scdoc_text(out, true, o->more, true);
    if (o->use != DT_COMMON) {
        print_owners(out, i, NULL);
    }
    print_meanings(out, i);
}

static void print_item(FILE *out, const char *name, const char *meaning, const char *more)
{
    dt_scdoc_name(out, name, false);
    fputc('\n', out);
    dt_scdoc_text(out, true, meaning, true);
    dt_scdoc_text(out, true, more, true);
}

static void print_options(FILE *out)
{
    fputs("# OPTIONS\n\nThe value of an option follows as the next argument or behind an equals "
          "sign.\n\n",
          out);
    for (int i = 0; i < DT_N_OPTIONS; i++) {
        print_option(out, i);
    }
    fputs("## Faults\n\nWhat *--inject* puts in:\n\n", out);
#define FAULT_ITEM(constant, name, needs, may, example, meaning) \
    print_item(out, example, meaning, "");
    DT_FAULT_LIST(FAULT_ITEM)
}

static void print_tables(FILE *out)
{
    fputs("# ENVIRONMENT\n\n", out);
#define VARIABLE_ITEM(variable, meaning, more) print_item(out, variable, meaning, more);
    DT_ENVIRONMENT_LIST(VARIABLE_ITEM)
    fputs("# FILES\n\nThe folder of a run holds\n\n", out);
#define FILE_ITEM(file, meaning) print_item(out, file, meaning, "");
    DT_RUN_FILE_LIST(FILE_ITEM)
    fputs("# EXIT STATUS\n\n", out);
#define STATUS_ITEM(name, code, meaning) print_item(out, #code, meaning, "");
    DT_STATUS_LIST(STATUS_ITEM)
    fputs("# EXAMPLES\n\n", out);
#define EXAMPLE_ITEM(purpose, commands)       \
    dt_scdoc_text(out, false, purpose, true); \
    dt_scdoc_literal(out, commands);
    DT_EXAMPLE_LIST(EXAMPLE_ITEM)
}

void dt_manual_program(FILE *out)
{
    begin(out);
    fputs("# COMMANDS\n\n", out);
    for (const struct dt_command *const *c = dt_program.commands; *c != NULL; c++) {
        if (dt_command_has_word(*c)) {
            print_command(out, *c);
        }
    }
    print_options(out);
    print_tables(out);
    fputs("# SEE ALSO\n\n*mpirun*(1), *srun*(1), *dtrain-config*(5)\n", out);
}
