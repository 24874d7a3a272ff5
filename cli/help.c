/* Also dt_args_help of cli/args.h. */
#include "cli/help.h"

#include <string.h>

#include "cli/options.h"

#define WIDTH 80
#define INDENT 27 /* where the right column begins */

static const struct {
    const char *word, *meaning, *usage, *examples;
} commands[] = {
#define COMMAND_ROW(constant, word, meaning, usage, examples, ...) {word, meaning, usage, examples},
    DT_COMMAND_LIST(COMMAND_ROW)};

void dt_help_wrap(FILE *out, int column, const char *text)
{
    for (int at = column; *text != '\0';) {
        const int n = (int)strcspn(text, " ");
        if (at > column && at + 1 + n > WIDTH) {
            fprintf(out, "\n%*s", column, "");
            at = column;
        }
        at += fprintf(out, "%s%.*s", at > column ? " " : "", n, text);
        text += n + (text[n] == ' ');
    }
    fputc('\n', out);
}

static void print_row(FILE *out, const char *left, const char *text)
{
    fprintf(out, "  %-*s", INDENT - 2, left);
    dt_help_wrap(out, INDENT, text);
}

/* Those of a command, or those that every command has. */
static void print_options(FILE *out, unsigned mask, bool common)
{
    for (int i = 0; i < N_OPTIONS; i++) {
        const struct dt_option *o = &dt_options[i];
        char left[64], letter[8] = "";
        if (o->letter != 0) {
            snprintf(letter, sizeof letter, ", -%c", o->letter);
        }
        const bool optional = o->takes == TAKES_OPTIONAL_VALUE;
        snprintf(left, sizeof left, "--%s%s%s%s%s", o->name, letter,
                 optional              ? "[="
                 : o->value[0] != '\0' ? " "
                                       : "",
                 o->value, optional ? "]" : "");
        if ((o->commands & mask) != 0 && (o->commands == ON_ALL) == common) {
            print_row(out, left, o->meaning);
        }
    }
}

static bool has_options(unsigned mask)
{
    int i = 0;
    while (i < N_OPTIONS && ((dt_options[i].commands & mask) == 0 || dt_options[i].commands == ON_ALL)) {
        i++;
    }
    return i < N_OPTIONS;
}

static void print_command(FILE *out, int i)
{
    fprintf(out, "dtrain %s: %s\n\n  %s\n", commands[i].word, commands[i].meaning, commands[i].usage);
    if (has_options(1u << i)) {
        fputs("\nOptions\n", out);
        print_options(out, 1u << i, false);
    }
    fprintf(out, "\nExamples\n%s", commands[i].examples);
}

static void print_all(FILE *out)
{
    fputs("dtrain: trains small convolutional and dense networks, data-parallel over MPI\n\n"
          "  mpirun -np 4 dtrain [COMMAND] [OPTION]...\n\nCommands\n",
          out);
    for (int i = 0; commands[i].word != NULL; i++) {
        print_row(out, commands[i].word, commands[i].meaning);
    }
    fputs("\nOptions\n", out);
    print_options(out, ON_ALL, true);
    fputs("\nPaths, also those in a configuration (data.dir), are relative to the working\n"
          "directory. A value of --set is JSON, and otherwise a string; numbers in the path\n"
          "reach into lists. Results go to stdout; the log, progress and errors to stderr.\n\n"
          "Examples\n"
          "  mpirun -np 4 dtrain --config configs/mnist.json --data data/mnist \\\n      --run runs/night\n"
          "  dtrain --print-config --config configs/mnist.json\n\n"
          "Environment\n",
          out);
    print_row(out, "DTRAIN_ISA", "CPU kernels in place of the best: x86-64-v4, x86-64-v3 or baseline");
    print_row(out, "DTRAIN_TIMEOUT", "seconds (2..3600) until a collective counts as stalled, over distributed.timeout_s");
    fputs("\nExit status\n", out);
    static const char *const meanings[] = {
#define STATUS_MEANING(name, code, meaning) #code, meaning,
        DT_STATUS_LIST(STATUS_MEANING) NULL};
    for (int i = 0; meanings[i] != NULL; i += 2) {
        print_row(out, meanings[i], meanings[i + 1]);
    }
}

void dt_args_help(FILE *out, const char *about)
{
    const size_t n = about == NULL ? 0 : strlen(about);
    bool first = true;
    for (int i = 0; n > 0 && commands[i].word != NULL; i++) {
        const char *word = commands[i].word;
        if (strncmp(word, about, n) == 0 && (word[n] == '\0' || word[n] == ' ')) {
            fputs(first ? "" : "\n", out);
            print_command(out, i);
            first = false;
        }
    }
    if (first) {
        print_all(out);
    }
}
