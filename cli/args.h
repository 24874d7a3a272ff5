/* The command line: `dtrain [command] [options]`. A command is a row, an option is a row of
 * cli/options.h; parser, help, manual page and completions follow from both. */
#ifndef DT_CLI_ARGS_H
#define DT_CLI_ARGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "base/status.h"
#include "cli/options.h"

struct dt_args;
struct dt_run_reader;
struct dt_world;

/* Indices of the parsed values: the options, then the words without an option. */
enum { DT_PATHS = DT_N_OPTIONS, DT_N_VALUES };

enum dt_need { DT_NOT_TAKEN, DT_TAKEN, DT_REQUIRED };

/* How a command ends when a signal asks it to. */
enum dt_ending {
    DT_ENDS_AT_ONCE,
    DT_AGREES_WITH_OTHERS,
    DT_SAVES /* or puts the screen back */
};

struct dt_command {
    const char *word; /* "bench model"; "--version" is called by an option, and no help lists it */
    const char *meaning, *usage, *examples;
    const char *more; /* a paragraph for the help and the manual page, or NULL */
    struct {
        enum dt_need need;
        const char *meaning; /* NULL: as in the option's row */
    } options[DT_N_VALUES];
    int minutes;      /* of a lesson, for the course; its meaning is the question that it answers */
    bool informative; /* ignores the rest of the line */
    bool tries_outputs;    /* checks its output files itself, after it has made their folder */
    bool needs_no_ranks;   /* works however it was launched */
    bool tells_of_launch;  /* reports itself what is wrong with the launch */
    enum dt_ending ending; /* of a command that works for a while */
    /* DT_USAGE: the options do not fit together. NULL: no check beyond `options`. */
    enum dt_status (*check)(const struct dt_args *args);
    /* The command's function: `together` runs on all ranks; `alone` runs without MPI, so it works
     * anywhere. */
    enum dt_status (*together)(struct dt_world *world, const struct dt_args *args);
    enum dt_status (*alone)(const struct dt_args *args);
    /* After `together`, with the status that the ranks have agreed on last; NULL: nothing to do. */
    void (*ended)(enum dt_status status);
};

struct dt_program {
    const struct dt_command *const *commands; /* the first needs no word; NULL behind the last */
    const struct dt_run_reader *reader;       /* for the sinks of a training (cli/sinks/sinks.h) */
};

extern const struct dt_program dt_program; /* also with the commands of lab/, ops/ and report/ */

struct dt_args {
    const struct dt_program *program;
    const struct dt_command *command;
    char *line;        /* the whole line, with its launcher: dt_launch_line; owned */
    char *now;         /* the line in its new form, if it has an old name; owned */
    const char *about; /* help: of "train", or of "bench", a group; "--json"; NULL: of all */
    const char *key;   /* help: of these keys, as dt_config_help takes them; NULL: of commands */
    struct dt_values {
        const char **texts; /* each is owned; NULL: the option came without a value */
        int n;              /* how often the option was given */
    } values[DT_N_VALUES];
};

/* DT_USAGE: the text names the nearest option or command, if there is one. A failed parse owes
 * nothing; argv and `program` must outlive `out`. An option of a key, such as --epochs, becomes a
 * --set of commands that take both. */
enum dt_status dt_args_parse(int argc, char *const *argv, const struct dt_program *program,
                             struct dt_args *out);
void dt_args_free(struct dt_args *args);

static inline bool dt_args_has(const struct dt_args *args, int option)
{
    return args->values[option].n > 0;
}

/* The last value given, or NULL. */
static inline const char *dt_args_text(const struct dt_args *args, int option)
{
    const struct dt_values *v = &args->values[option];
    return v->n > 0 ? v->texts[v->n - 1] : NULL;
}

/* Reads the value of an option, a whole number in [low, high]; with `unit` also with K, M or G. An
 * option that is not given leaves `out` as it is. DT_USAGE. */
enum dt_status dt_args_number(const struct dt_args *args, enum dt_option option, bool unit,
                              size_t low, size_t high, size_t *out);

/* Reads any number, such as 0.5, in the same way. */
enum dt_status dt_args_decimal(const struct dt_args *args, enum dt_option option, double low,
                               double high, double *out);

/* Checks an option whose value goes into a line for another program: only letters, digits and a few
 * more characters are safe. DT_USAGE. */
enum dt_status dt_args_name(const struct dt_args *args, enum dt_option option);
bool dt_args_is_name(const char *text);

/* A time [D-]HH:MM:SS in seconds. DT_USAGE. */
enum dt_status dt_args_time(const struct dt_args *args, enum dt_option option, double *out_s);

/* The option "--name" or "-n": the first `n` bytes of a word. DT_N_OPTIONS: no such option. */
int dt_option_find(const char *word, int n);
/* The command of this word, or NULL. */
const struct dt_command *dt_command_find(const struct dt_program *program, const char *word);
/* Whether `word` is the first of two words of commands: "bench" of "bench model". */
bool dt_command_is_group(const struct dt_program *program, const char *word);
bool dt_command_is_in(const struct dt_command *command, const char *group);
/* Whether a list of first words has this command's already, by the command before it (or NULL). */
bool dt_command_repeats(const struct dt_command *command, const struct dt_command *before);

static inline bool dt_command_takes(const struct dt_command *command, int option)
{
    return command->options[option].need != DT_NOT_TAKEN ||
           (option < DT_N_OPTIONS && dt_options[option].use == DT_COMMON);
}

static inline bool dt_command_has_word(const struct dt_command *command)
{
    return command->word[0] != '-';
}

/* Prints help in 80 columns: all commands and common options, or usage, options and examples of the
 * commands that `about` names. */
void dt_args_help(FILE *out, const struct dt_program *program, const char *about);

/* All tables of the program as one JSON object (manual.c): commands, options, keys, and so on. */
void dt_manual_json(FILE *out, const struct dt_program *program);

void dt_args_brief(FILE *out); /* the first commands to type */

/* ---- the TAB key (complete.c), the line again (launch_line.c) */

/* Completions for the TAB key: the stubs in packaging/completions call `dtrain __complete
 * WORDS...`. `words`: the words typed behind the program's name; the cursor is at the end of the
 * last one, which may be empty. Prints a line for each completion, with a tab and its meaning, or
 * ":file" or ":folder" alone: the shell completes names of files. */
void dt_complete(FILE *out, const struct dt_program *program, int n_words, char *const *words);

/* The program's line as a shell reads it, behind the line of the mpirun that started it, if that
 * mpirun runs on this host and its line ends in the program's. Else several ranks get the simplest
 * line that starts that many. The caller frees the text. NULL: out of memory. */
char *dt_launch_line(int argc, char *const *argv);

#endif
