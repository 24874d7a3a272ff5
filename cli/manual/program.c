/* dt_manual_program of cli/manual/manual.h. */
#include <string.h>

#include "cli/manual/manual.h"
#include "cli/manual/mdoc.h"
#include "cli/manual/words.h"
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

static void print_command(FILE *out, enum dt_command command)
{
    const struct dt_command_row *row = &dt_commands[command];
    fprintf(out, ".Ss %s\n", row->word);
    dt_mdoc_text(out, row->meaning, true);
    fputs(".Bl -hang -width Ds\n", out);
    dt_mdoc_usage(out, row->usage);
    fputs(".El\n", out);
    if (dt_prose_of_command(command)[0] != '\0') {
        fputs(".Pp\n", out);
        dt_mdoc_text(out, dt_prose_of_command(command), true);
    }
}

/* Whether the option belongs to every command that begins with the same word, of which `command` is
 * the first. */
static bool covers_group(const struct dt_option *option, int command)
{
    const char *word = dt_commands[command].word;
    const size_t n = strcspn(word, " ") + 1;
    int i = command;
    while (i < N_WORDS && strncmp(dt_commands[i].word, word, n) == 0 &&
           (option->commands & (1u << i)) != 0) {
        i++;
    }
    return word[n - 1] == ' ' && (i == N_WORDS || strncmp(dt_commands[i].word, word, n) != 0) &&
           (command == 0 || strncmp(dt_commands[command - 1].word, word, n) != 0);
}

/* "For `train`, `eval`, `lab`.": which commands have it. */
static void print_owners(FILE *out, const struct dt_option *option, const char *meaning)
{
    char owners[1024] = "For ";
    size_t n = strlen(owners);
    for (int i = 0; i < N_WORDS; i++) {
        const char *word = dt_commands[i].word;
        const bool group = covers_group(option, i);
        const size_t first = strcspn(word, " ");
        if ((option->commands & (1u << i)) != 0 && n < sizeof owners) {
            n += (size_t)snprintf(owners + n, sizeof owners - n, "%s`%.*s`", n > 4 ? ", " : "",
                                  group ? (int)first : 99, word);
        }
        while (group && i + 1 < N_WORDS && strncmp(dt_commands[i + 1].word, word, first + 1) == 0) {
            i++;
        }
    }
    if (meaning[0] != '\0' && n < sizeof owners) {
        snprintf(owners + n, sizeof owners - n, ": %s", meaning);
    }
    dt_mdoc_text(out, owners, true);
}

static void print_option(FILE *out, enum option i)
{
    const struct dt_option *o = &dt_options[i];
    fprintf(out, ".It Fl -%s", o->name);
    if (o->takes == TAKES_OPTIONAL_VALUE) {
        fprintf(out, " Ns Op = Ns Ar %s", o->value);
    } else if (o->takes == TAKES_VALUE) {
        dt_mdoc_value(out, o->value);
    }
    if (o->letter != '\0') {
        fprintf(out, " , Fl %c", o->letter);
    }
    if (o->letter != '\0' && o->takes == TAKES_VALUE) {
        dt_mdoc_value(out, o->value);
    }
    fputc('\n', out);
    dt_mdoc_text(out, o->meaning, true);
    dt_mdoc_text(out, dt_prose_of_option(i), dt_prose_of_option(i)[0] != '\0');
    if (o->commands != ON_ALL) {
        print_owners(out, o, "");
    }
    for (const struct dt_option_meaning *m = dt_option_meanings; m->text != NULL; m++) {
        if (m->option == i) {
            print_owners(out, &(struct dt_option){.commands = m->commands}, m->text);
        }
    }
}

static void print_options(FILE *out)
{
    fputs(".Sh OPTIONS\nAn option's value follows as the next argument or behind an equals "
          "sign.\n.Bl -tag -width Ds\n",
          out);
    for (int i = 0; i < N_OPTIONS; i++) {
        print_option(out, (enum option)i);
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
    for (int i = 0; i < N_WORDS; i++) {
        print_command(out, (enum dt_command)i);
    }
    print_options(out);
    print_tables(out);
    fputs(".Sh SEE ALSO\n.Xr mpirun 1 ,\n.Xr srun 1 ,\n.Xr dtrain-config 5\n", out);
}
