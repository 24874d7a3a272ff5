/* `dtrain help`: dt_args_help of cli/args.h, dt_config_help of cli/config/config.h. */
#include <string.h>

#include "cli/args.h"
#include "cli/config/schema.h"
#include "cli/prose.h"

#define WIDTH 80
#define INDENT 27 /* where the right column begins */

/* Prints a word without backticks. Returns how many columns it takes. */
static int put_word(FILE *out, const char *word, int n)
{
    int columns = 0;
    for (int i = 0; i < n; i++) {
        columns += word[i] != '`' && fputc(word[i], out) != EOF;
    }
    return columns;
}

/* Prints the words of `text` from `column` on, where the line is already, in 80 columns; further
 * lines begin at `column`. Leaves out backticks. */
static void put_wrapped(FILE *out, int column, const char *text)
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
    put_wrapped(out, INDENT, text);
}

static void print_option(FILE *out, const struct dt_option_entry *o, const char *meaning)
{
    char left[64], letter[8] = "";
    if (o->letter != 0) {
        snprintf(letter, sizeof letter, ", -%c", o->letter);
    }
    snprintf(left, sizeof left, "--%s%s%s%s%s", o->name, letter,
             o->optional           ? "[="
             : o->value[0] != '\0' ? " "
                                   : "",
             o->value, o->optional ? "]" : "");
    print_row(out, left, meaning != NULL ? meaning : o->meaning);
}

static void print_command(FILE *out, const struct dt_command *c)
{
    fprintf(out, "dtrain %s: %s\n\n  %s\n", c->word, c->meaning, c->usage);
    if (c->more != NULL) {
        fputc('\n', out);
        put_wrapped(out, 0, c->more);
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

void dt_args_brief(FILE *out)
{
    fputs("dtrain trains small convolutional and dense networks, data-parallel over MPI.\n\n"
          "  dtrain init                              write a configuration, mnist.json\n"
          "  mpirun -np 2 dtrain --config mnist.json  train with it on two ranks\n"
          "  dtrain lab                               a course in distributed training\n"
          "  dtrain help                              all commands and options\n",
          out);
}

static void print_all(FILE *out, const struct dt_program *program)
{
    fputs("dtrain: trains small convolutional and dense networks, data-parallel over MPI\n\n"
          "  mpirun -np 4 dtrain [COMMAND] [OPTION]...\n\nCommands\n",
          out);
    for (const struct dt_command *const *c = program->commands; *c != NULL; c++) {
        if (dt_command_has_word(*c) && (*c)->minutes == 0) {
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

/* A command, with a line for each command of its group; or all commands of a group. */
static void print_commands(FILE *out, const struct dt_program *program, const char *about)
{
    const struct dt_command *command = dt_command_find(program, about);
    const char *before = command != NULL ? "\nCommands\n" : "";
    if (command != NULL) {
        print_command(out, command);
    }
    for (const struct dt_command *const *c = program->commands; *c != NULL; c++) {
        if (dt_command_is_in(*c, about)) {
            fputs(before, out);
            command != NULL ? print_row(out, (*c)->word, (*c)->meaning) : print_command(out, *c);
            before = command != NULL ? "" : "\n";
        }
    }
}

void dt_args_help(FILE *out, const struct dt_program *program, const char *about)
{
    if (about != NULL &&
        (dt_command_find(program, about) != NULL || dt_command_is_group(program, about))) {
        print_commands(out, program, about);
    } else {
        print_all(out, program);
    }
}

/* ---- keys */

static const char *default_text(const struct dt_key *key)
{
    return key->default_text == NULL      ? "required"
           : key->default_text[0] == '\0' ? "-"
                                          : key->default_text;
}

/* "train.schedule.type=cosine or plateau": put_wrapped can break the line there. */
static void when_text(const struct dt_key *key, char *text, size_t size)
{
    size_t n = 0;
    text[0] = '\0';
    for (const char *part = key->when; *part != '\0' && n < size;) {
        const int length = (int)strcspn(part, "|");
        n += (size_t)snprintf(text + n, size - n, "%s%.*s", part != key->when ? " or " : "", length,
                              part);
        part += length + (part[length] == '|');
    }
}

/* One key: its line of three aligned columns, and its meaning below. */
static void help_key(FILE *out, const struct dt_key *key, int indent)
{
    char values[DT_EXPECTED_SIZE], when[160], meaning[512];
    dt_key_values(key, values);
    when_text(key, when, sizeof when);
    const bool is_long = strlen(key->path) > (size_t)(27 - indent); /* then on a line of its own */
    fprintf(out, "%*s%-*s%s%*s%-10s  ", indent, "", 27 - indent, key->path, is_long ? "\n" : "",
            is_long ? 29 : 2, "", default_text(key));
    put_wrapped(out, 41, values);
    snprintf(meaning, sizeof meaning, "%s%s%s%s", key->meaning,
             when[0] == '\0' ? "" : " (only with ", when, when[0] == '\0' ? "" : ")");
    fprintf(out, "%*s", indent + 4, "");
    put_wrapped(out, indent + 4, meaning);
}

void dt_config_help(FILE *out, const char *about)
{
    const struct dt_key_list list = dt_config_keys();
    const bool all = strcmp(about, "config") == 0;
    int n = 0;
    if (all) {
        fputs(
            "The configuration is a JSON object; a dot in a key stands for an object inside.\n"
            "// begins a comment. \"extends\": \"other.json\" takes what is not said from there.\n"
            "Any key can be set with --set KEY=VALUE.\n\n",
            out);
    }
    for (int i = 0; i < list.n; i++) {
        if (all || dt_key_is_about(&list.keys[i], about)) {
            fputs(n++ == 0 ? "Key                          Default     Values\n" : "", out);
            help_key(out, &list.keys[i], 0);
        }
    }
    if (all) {
        fputs("\nLayers: objects of the list model.layers, each with a \"type\" and its keys\n",
              out);
    }
    for (int i = 0; i < DT_N_LAYER_TYPES; i++) {
        const struct dt_key_list keys = dt_layer_keys((enum dt_layer_type)i);
        const bool wanted = all || strcmp(about, dt_layer_names[i]) == 0;
        fprintf(out, wanted ? "  %s\n" : "", dt_layer_names[i]);
        for (int k = 0; wanted && k < keys.n; k++) {
            help_key(out, &keys.keys[k], 4);
        }
    }
}

static enum dt_status help(const struct dt_args *args)
{
    if (args->about != NULL && strcmp(args->about, "--json") == 0) {
        dt_manual_json(stdout, args->program);
    } else if (args->key != NULL) {
        dt_config_help(stdout, args->key);
    } else {
        dt_args_help(stdout, args->program, args->about);
    }
    return DT_OK;
}

const struct dt_command dt_command_help = {
    .word = "help",
    .meaning = "list the commands; explain one, or keys of the configuration",
    .usage = "dtrain help [COMMAND | KEY | config [KEY]]",
    .examples = "  dtrain help train\n"
                "  dtrain help train.optimizer.lr\n"
                "  dtrain help config\n",
    .more = "`dtrain help --json` prints the tables of commands, options, keys and files as one "
            "JSON object.",
    .informative = true,
    .alone = help,
};
