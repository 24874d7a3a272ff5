/* Also dt_args_help of cli/args.h. */
#include "cli/help.h"

#include <string.h>

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

static const char *meaning_of(enum option option, unsigned command)
{
    const struct dt_option_meaning *m = dt_option_meanings;
    while (m->text != NULL && !(m->option == option && (m->commands & command) != 0)) {
        m++;
    }
    return m->text != NULL ? m->text : dt_options[option].meaning;
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
            print_row(out, left, common ? o->meaning : meaning_of((enum option)i, mask));
        }
    }
}

static bool has_options(unsigned mask)
{
    int i = 0;
    while (i < N_OPTIONS &&
           ((dt_options[i].commands & mask) == 0 || dt_options[i].commands == ON_ALL)) {
        i++;
    }
    return i < N_OPTIONS;
}

static void print_command(FILE *out, int i)
{
    fprintf(out, "dtrain %s: %s\n\n  %s\n", dt_commands[i].word, dt_commands[i].meaning,
            dt_commands[i].usage);
    const char *more = dt_prose_of_command((enum dt_command)i);
    if (more[0] != '\0') {
        fputc('\n', out);
        dt_help_wrap(out, 0, more);
    }
    if (has_options(1u << i)) {
        fputs("\nOptions\n", out);
        print_options(out, 1u << i, false);
    }
    fprintf(out, "\nExamples\n%s", dt_commands[i].examples);
}

static void print_all(FILE *out)
{
    fputs("dtrain: trains small convolutional and dense networks, data-parallel over MPI\n\n"
          "  mpirun -np 4 dtrain [COMMAND] [OPTION]...\n\nCommands\n",
          out);
    for (int i = 0; dt_commands[i].word != NULL; i++) {
        print_row(out, dt_commands[i].word, dt_commands[i].meaning);
    }
    fputs("\nOptions\n", out);
    print_options(out, ON_ALL, true);
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

void dt_args_help(FILE *out, const char *about)
{
    const size_t n = about == NULL ? 0 : strlen(about);
    bool first = true;
    for (int i = 0; n > 0 && dt_commands[i].word != NULL; i++) {
        const char *word = dt_commands[i].word;
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
