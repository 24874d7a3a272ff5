/* `dtrain help`, and dt_args_help of cli/args.h. */
#include <string.h>

#include "cli/args.h"
#include "cli/prose.h"

#define WIDTH 80
#define INDENT 27 /* where the right column begins */

/* A word without backticks; how many columns it takes. */
static int put_word(FILE *out, const char *word, int n)
{
    int columns = 0;
    for (int i = 0; i < n; i++) {
        columns += word[i] != '`' && fputc(word[i], out) != EOF;
    }
    return columns;
}

void dt_help_wrap(FILE *out, int column, const char *text)
{
    for (int at = column; *text != '\0';) {
        const int n = (int)strcspn(text, " ");
        if (at > column && at + 1 + n > WIDTH) {
            fprintf(out, "\n%*s", column, "");
            at = column;
        }
        at += at > column ? fprintf(out, " ") : 0;
        at += put_word(out, text, n);
        text += n + (text[n] == ' ');
    }
    fputc('\n', out);
}

static void print_row(FILE *out, const char *left, const char *text)
{
    fprintf(out, "  %-*s", INDENT - 2, left);
    dt_help_wrap(out, INDENT, text);
}

static void print_option(FILE *out, const struct dt_option_row *o, const char *meaning)
{
    char left[64], letter[8] = "";
    if (o->letter != 0) {
        snprintf(letter, sizeof letter, ", -%c", o->letter);
    }
    const bool optional = o->takes == DT_TAKES_OPTIONAL_VALUE;
    snprintf(left, sizeof left, "--%s%s%s%s%s", o->name, letter,
             optional              ? "[="
             : o->value[0] != '\0' ? " "
                                   : "",
             o->value, optional ? "]" : "");
    print_row(out, left, meaning != NULL ? meaning : o->meaning);
}

static void print_command(FILE *out, const struct dt_command *c)
{
    fprintf(out, "dtrain %s: %s\n\n  %s\n", c->word, c->meaning, c->usage);
    if (c->more != NULL) {
        fputc('\n', out);
        dt_help_wrap(out, 0, c->more);
    }
    const char *head = "\nOptions\n";
    for (int i = 0; i < DT_N_OPTIONS; i++) {
        if (c->options[i].need != DT_NOT_TAKEN) {
            fputs(head, out);
            print_option(out, &dt_options[i], c->options[i].meaning);
            head = "";
        }
    }
    fprintf(out, "\nExamples\n%s", c->examples);
}

static void print_all(FILE *out, const struct dt_program *program)
{
    fputs("dtrain: trains small convolutional and dense networks, data-parallel over MPI\n\n"
          "  mpirun -np 4 dtrain [COMMAND] [OPTION]...\n\nCommands\n",
          out);
    for (const struct dt_command *const *c = program->commands; *c != NULL; c++) {
        if (dt_command_has_word(*c)) {
            print_row(out, (*c)->word, (*c)->meaning);
        }
    }
    fputs("\nOptions\n", out);
    for (int i = 0; i < DT_N_OPTIONS; i++) {
        if (dt_options[i].use == DT_COMMON) {
            print_option(out, &dt_options[i], NULL);
        }
    }
    fputs("\nPaths, also those in a configuration (data.dir), are relative to the working\n"
          "directory. A value of --set is JSON, and otherwise a string; numbers in the path\n"
          "reach into lists. Results go to stdout; the log, progress and errors to stderr.\n\n"
          "Examples\n"
          "  mpirun -np 4 dtrain --config configs/mnist.json --data data/mnist \\\n      --run "
          "runs/night\n"
          "  dtrain --print-config --config configs/mnist.json\n\n"
          "Environment\n",
          out);
#define VARIABLE_ROW(variable, meaning, more) print_row(out, variable, meaning);
    DT_ENVIRONMENT_LIST(VARIABLE_ROW)
    fputs("\nExit status\n", out);
    static const char *const meanings[] = {
#define STATUS_MEANING(name, code, meaning) #code, meaning,
        DT_STATUS_LIST(STATUS_MEANING) NULL};
    for (int i = 0; meanings[i] != NULL; i += 2) {
        print_row(out, meanings[i], meanings[i + 1]);
    }
}

void dt_args_help(FILE *out, const struct dt_program *program, const char *about)
{
    const size_t n = about == NULL ? 0 : strlen(about);
    bool first = true;
    for (const struct dt_command *const *c = program->commands; n > 0 && *c != NULL; c++) {
        const char *word = (*c)->word;
        if (strncmp(word, about, n) == 0 && (word[n] == '\0' || word[n] == ' ')) {
            fputs(first ? "" : "\n", out);
            print_command(out, *c);
            first = false;
        }
    }
    if (first) {
        print_all(out, program);
    }
}

static enum dt_status help(const struct dt_args *args)
{
    dt_args_help(stdout, args->program, args->about);
    return DT_OK;
}

const struct dt_command dt_command_help = {
    .word = "help",
    .meaning = "list the commands; help COMMAND: its options and examples",
    .usage = "dtrain help [COMMAND]",
    .examples = "  dtrain help train\n",
    .informative = true,
    .alone = help,
};
