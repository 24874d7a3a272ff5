#include "cli/args.h"

#include <stdlib.h>
#include <string.h>

#include "cli/config/schema.h"
#include "cli/suggest.h"

const struct dt_option_row dt_options[DT_N_OPTIONS] = {
#define OPTION_ROW(constant, ...) {__VA_ARGS__},
    DT_OPTION_LIST(OPTION_ROW)};

/* State of the parser. */
struct parser {
    int argc, next;
    char *const *argv;
    bool has_command, only_words; /* only_words: after "--" */
    struct dt_args *out;
};

/* The next argument, where it can be an option's value; else NULL. */
static const char *next_word(const struct parser *p)
{
    return p->next < p->argc && p->argv[p->next][0] != '-' ? p->argv[p->next] : NULL;
}

/* `name`: without dashes, and with a value behind an equals sign if it has one. */
static enum dt_status unknown_option(const struct parser *p, const char *name, int n)
{
    char word[64];
    struct dt_suggestion s = {.word = word};
    snprintf(word, sizeof word, "%.*s", n, name);
    const char *key = dt_config_key_of(word), *value = name[n] == '=' ? name + n + 1 : next_word(p);
    if (key != NULL) {
        return dt_error(DT_USAGE,
                        "unknown option '--%s' (a key of the configuration: --set %s=%.60s)", word,
                        key, value != NULL ? value : "VALUE");
    }
    for (int i = 0; i < DT_N_OPTIONS; i++) {
        dt_suggest_offer(&s, dt_options[i].name);
    }
    if (s.best != NULL) {
        return dt_error(DT_USAGE, "unknown option '--%s' (did you mean '--%s'?)", word, s.best);
    }
    return dt_error(DT_USAGE, "unknown option '--%s' (see dtrain --help)", word);
}

static enum dt_status add(struct dt_args *args, int i, const char *text)
{
    struct dt_values *v = &args->values[i];
    const char **texts = realloc(v->texts, ((size_t)v->n + 1) * sizeof *texts);
    if (texts == NULL) {
        return dt_error(DT_NO_MEMORY, "out of memory for the command line");
    }
    v->texts = texts;
    v->texts[v->n++] = text;
    return DT_OK;
}

static bool is_help(const struct dt_command *command)
{
    return strcmp(command->word, "help") == 0;
}

/* `value`: what stood behind an equals sign, else NULL. */
static enum dt_status take_option(struct parser *p, int i, const char *value)
{
    const struct dt_option_row *o = &dt_options[i];
    if (i == DT_OPTION_JSON && p->has_command && is_help(p->out->command)) {
        p->out->about = "--json"; /* of help it takes no value */
        return DT_OK;
    }
    if (dt_args_has(p->out, i) && o->use != DT_REPEATED && i != DT_OPTION_HELP) {
        return dt_error(DT_USAGE, "--%s is given twice (remove one)", o->name);
    }
    if (o->takes == DT_TAKES_NOTHING && value != NULL) {
        return dt_error(DT_USAGE, "--%s takes no value (remove '=%s')", o->name, value);
    }
    if (o->takes == DT_TAKES_VALUE && value == NULL && p->next < p->argc &&
        strncmp(p->argv[p->next], "--", 2) != 0) {
        value = p->argv[p->next++];
    }
    if (o->takes != DT_TAKES_NOTHING &&
        (value == NULL ? o->takes == DT_TAKES_VALUE : value[0] == '\0')) {
        return dt_error(DT_USAGE, "--%s needs a value (write --%s %s)", o->name, o->name, o->value);
    }
    if (i == DT_OPTION_SET && strchr(value, '=') == NULL && next_word(p) != NULL) {
        return dt_error(DT_USAGE,
                        "--set: expected key.path=value, got '%.60s' (write --set %.60s=%.60s)",
                        value, value, next_word(p));
    }
    return add(p->out, i, value);
}

int dt_option_find(const char *word, int n)
{
    int i = 0;
    while (i < DT_N_OPTIONS &&
           !(n > 2 && strncmp(word, "--", 2) == 0 &&
             strncmp(dt_options[i].name, word + 2, (size_t)n - 2) == 0 &&
             dt_options[i].name[n - 2] == '\0') &&
           !(n == 2 && word[0] == '-' && word[1] == dt_options[i].letter)) {
        i++;
    }
    return i;
}

/* --name, or --name=value. */
static enum dt_status read_option(struct parser *p, const char *text)
{
    const int n = (int)strcspn(text, "="), i = dt_option_find(text, n);
    return i < DT_N_OPTIONS ? take_option(p, i, text[n] == '=' ? text + n + 1 : NULL)
                            : unknown_option(p, text + 2, n - 2);
}

/* -b; its value is the next argument. */
static enum dt_status read_letter(struct parser *p, const char *text)
{
    const int i = dt_option_find(text, (int)strlen(text));
    const char *next = next_word(p);
    if (i < DT_N_OPTIONS) {
        return take_option(p, i, NULL);
    }
    if (strcmp(text, "-np") == 0) {
        return dt_error(DT_USAGE,
                        "unknown option '-np' (it is mpirun's: mpirun -np %.20s dtrain ...)",
                        next != NULL ? next : "4");
    }
    return dt_error(DT_USAGE,
                    "unknown option '%.200s' (options begin with two dashes; see dtrain --help)",
                    text);
}

static bool ends_in(const char *word, const char *suffix)
{
    const size_t n = strlen(word), n_suffix = strlen(suffix);
    return n > n_suffix && strcmp(word + n - n_suffix, suffix) == 0;
}

static bool asks_for_help(const struct parser *p)
{
    int i = p->next;
    while (i < p->argc && strcmp(p->argv[i], "--help") != 0 && strcmp(p->argv[i], "-h") != 0) {
        i++;
    }
    return i < p->argc;
}

const struct dt_command *dt_command_find(const struct dt_program *program, const char *word)
{
    const struct dt_command *const *c = program->commands;
    while (*c != NULL && strcmp((*c)->word, word) != 0) {
        c++;
    }
    return *c;
}

/* "bench": with what follows one command, "bench blocks". */
static bool is_first_word(const struct dt_program *program, const char *word)
{
    const size_t n = strlen(word);
    const struct dt_command *const *c = program->commands;
    while (*c != NULL && !(strncmp((*c)->word, word, n) == 0 && (*c)->word[n] == ' ')) {
        c++;
    }
    return *c != NULL;
}

/* Lists those that begin with the same word, or else the first words. */
static enum dt_status unknown_command(const struct dt_program *program, const char *word)
{
    const int n_word = (int)strcspn(word, " ");
    char words[256] = "", first[32];
    const char *last = "";
    snprintf(first, sizeof first, "%.*s", n_word, word);
    const bool group = is_first_word(program, first);
    for (const struct dt_command *const *c = program->commands; *c != NULL; c++) {
        const char *other = (*c)->word;
        const size_t n = strlen(words), n_first = strcspn(other, " ");
        const bool again = strncmp(last, other, n_first + 1) == 0;
        if (dt_command_has_word(*c) &&
            (group ? strncmp(other, first, n_first) == 0 && first[n_first] == '\0' : !again)) {
            snprintf(words + n, sizeof words - n, "%s%.*s", n > 0 ? ", " : "",
                     group ? 99 : (int)n_first, other);
        }
        last = other;
    }
    return dt_error(DT_USAGE, "unknown command '%.200s' (one of %s)", word, words);
}

static enum dt_status refuse_command(const struct dt_program *program, const char *word)
{
    struct dt_suggestion s = {.word = word};
    for (const struct dt_command *const *c = program->commands; *c != NULL; c++) {
        if (dt_command_has_word(*c)) {
            dt_suggest_offer(&s, (*c)->word);
        }
    }
    if (ends_in(word, ".json")) {
        return dt_error(DT_USAGE,
                        "unknown command '%.200s' (for a configuration write --config %.200s)",
                        word, word);
    }
    if (ends_in(word, ".safetensors")) {
        return dt_error(
            DT_USAGE,
            "unknown command '%.200s' (for a checkpoint write --resume=FILE or --checkpoint FILE)",
            word);
    }
    if (s.best != NULL && !is_first_word(program, word)) {
        return dt_error(DT_USAGE, "unknown command '%.200s' (did you mean '%s'?)", word, s.best);
    }
    return unknown_command(program, word);
}

static enum dt_status read_command(struct parser *p, const char *first)
{
    char word[512];
    struct dt_args *args = p->out;
    const bool two =
        is_first_word(args->program, first) && p->next < p->argc && p->argv[p->next][0] != '-';
    snprintf(word, sizeof word, "%.200s%s%.200s", first, two ? " " : "",
             two ? p->argv[p->next++] : "");
    const bool group = is_first_word(args->program, word) && asks_for_help(p);
    const struct dt_command *command = dt_command_find(args->program, group ? "help" : word);
    if (command == NULL || !dt_command_has_word(command)) {
        return refuse_command(args->program, word);
    }
    p->has_command = true;
    args->command = command;
    args->about = group ? first : args->about;
    return DT_OK;
}

static enum dt_status read_word(struct parser *p, const char *word)
{
    struct dt_args *args = p->out;
    if (!p->has_command) {
        return read_command(p, word);
    }
    if (is_help(args->command) && args->about == NULL) { /* as if it came alone, with --help */
        const bool group = is_first_word(args->program, word) && p->next == p->argc;
        DT_TRY(add(args, DT_OPTION_HELP, NULL));
        args->about = group ? word : NULL;
        return group ? DT_OK : read_command(p, word);
    }
    if (dt_command_takes(args->command, DT_PATHS)) {
        return add(args, DT_PATHS, word);
    }
    if (dt_command_takes(args->command, DT_OPTION_CONFIG) && ends_in(word, ".json")) {
        return dt_error(DT_USAGE,
                        "unexpected argument '%.200s' (for a configuration write --config %.200s)",
                        word, word);
    }
    return dt_error(DT_USAGE,
                    "unexpected argument '%.200s' (%s takes options only; see dtrain %s --help)",
                    word, args->command->word, args->command->word);
}

static enum dt_status read_all(struct parser *p)
{
    while (p->next < p->argc) {
        const char *text = p->argv[p->next++];
        if (!p->only_words && strcmp(text, "--") == 0) {
            p->only_words = true;
        } else if (!p->only_words && strncmp(text, "--", 2) == 0) {
            DT_TRY(read_option(p, text));
        } else if (!p->only_words && text[0] == '-' && text[1] != '\0') {
            DT_TRY(read_letter(p, text));
        } else {
            DT_TRY(read_word(p, text));
        }
    }
    return DT_OK;
}

/* Options that stand for a command, as --version does; --help wins over all. */
static void choose_command(struct parser *p)
{
    struct dt_args *args = p->out;
    if (dt_args_has(args, DT_OPTION_HELP)) {
        if (p->has_command && args->about == NULL && !is_help(args->command)) {
            args->about = args->command->word;
        }
        args->command = dt_command_find(args->program, "help");
        return;
    }
    for (int i = 0; i < DT_N_OPTIONS; i++) {
        char word[32];
        snprintf(word, sizeof word, "--%s", dt_options[i].name);
        const struct dt_command *asked = dt_command_find(args->program, word);
        if (asked != NULL && dt_args_has(args, i) && dt_command_takes(args->command, i)) {
            args->command = asked;
            return;
        }
    }
}

static enum dt_status refuse_option(const struct dt_args *args, int i)
{
    const char *key = dt_config_key_of(dt_options[i].name), *value = dt_args_text(args, i);
    if (key != NULL && dt_command_takes(args->command, DT_OPTION_SET)) {
        return dt_error(DT_USAGE, "--%s does not belong to %s (for the key write --set %s=%.60s)",
                        dt_options[i].name, args->command->word, key,
                        value != NULL ? value : "VALUE");
    }
    return dt_error(DT_USAGE, "--%s does not belong to %s (see dtrain %s --help)",
                    dt_options[i].name, args->command->word, args->command->word);
}

static enum dt_status check(const struct dt_args *args)
{
    for (int i = 0; i < DT_N_OPTIONS; i++) {
        if (dt_args_has(args, i) && !dt_command_takes(args->command, i)) {
            return refuse_option(args, i);
        }
    }
    for (int i = 0; i < DT_N_OPTIONS; i++) {
        if (args->command->options[i].need == DT_REQUIRED && !dt_args_has(args, i)) {
            return dt_error(DT_USAGE, "--%s %s is required (see dtrain %s --help)",
                            dt_options[i].name, dt_options[i].value, args->command->word);
        }
    }
    return args->command->check != NULL ? args->command->check(args) : DT_OK;
}

static void free_values(struct dt_args *args)
{
    for (int i = 0; i < DT_N_VALUES; i++) {
        free(args->values[i].texts);
        args->values[i] = (struct dt_values){0};
    }
}

void dt_args_free(struct dt_args *args)
{
    free_values(args);
    free(args->line);
    *args = (struct dt_args){0};
}

static enum dt_status parse(struct parser *p)
{
    if (p->out->line == NULL) {
        return dt_error(DT_NO_MEMORY, "out of memory for the command line");
    }
    DT_TRY(read_all(p));
    choose_command(p);
    return p->out->command->informative ? DT_OK : check(p->out);
}

enum dt_status dt_args_parse(int argc, char *const *argv, const struct dt_program *program,
                             struct dt_args *out)
{
    struct parser p = {.argc = argc, .next = 1, .argv = argv, .out = out};
    *out = (struct dt_args){
        .program = program, .command = program->commands[0], .line = dt_launch_line(argc, argv)};
    const enum dt_status status = parse(&p);
    if (status != DT_OK) {
        dt_args_free(out);
        out->command = program->commands[0];
    } else if (out->command->informative) {
        free_values(out);
    }
    return status;
}

enum dt_status dt_args_number(const struct dt_args *args, enum dt_option option, bool unit,
                              size_t low, size_t high, size_t *out)
{
    const char *text = dt_args_text(args, option);
    if (text == NULL) {
        return DT_OK;
    }
    static const char units[] = "KMG";
    char *end = NULL;
    const unsigned long long n = strtoull(text, &end, 10);
    const char *found = unit && *end != '\0' ? strchr(units, *end & ~0x20) : NULL; /* either case */
    const int shift = found != NULL ? 10 * (int)(found - units + 1) : 0;
    end += found != NULL;
    if (text[0] < '0' || text[0] > '9' || *end != '\0' || n > high || n << shift > high ||
        n << shift < low) {
        return dt_error(DT_USAGE, "--%s: expected %s %zu..%zu, got '%.60s'",
                        dt_options[option].name, unit ? "bytes" : "a whole number", low, high,
                        text);
    }
    *out = (size_t)n << shift;
    return DT_OK;
}

enum dt_status dt_args_decimal(const struct dt_args *args, enum dt_option option, double low,
                               double high, double *out)
{
    const char *text = dt_args_text(args, option);
    if (text == NULL) {
        return DT_OK;
    }
    char *end = NULL;
    const double value = strtod(text, &end);
    if (text[0] < '0' || text[0] > '9' || *end != '\0' || !(value >= low && value <= high)) {
        return dt_error(DT_USAGE, "--%s: expected a number %g..%g, got '%.60s'",
                        dt_options[option].name, low, high, text);
    }
    *out = value;
    return DT_OK;
}

bool dt_args_is_name(const char *text)
{
    return text[0] != '\0' && text[strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789_-.,@+"
                                                "ABCDEFGHIJKLMNOPQRSTUVWXYZ")] == '\0';
}

enum dt_status dt_args_name(const struct dt_args *args, enum dt_option option)
{
    const char *text = dt_args_text(args, option);
    return text == NULL || dt_args_is_name(text)
               ? DT_OK
               : dt_error(DT_USAGE, "--%s: expected letters, digits and _-.,@+, got '%.60s'",
                          dt_options[option].name, text);
}

enum dt_status dt_args_time(const struct dt_args *args, enum dt_option option, double *out_s)
{
    const char *text = dt_args_text(args, option);
    unsigned days = 0, hours = 0, minutes = 60, seconds = 0;
    int n_days = 0, n = 0;
    if (text == NULL) {
        return DT_OK;
    }
    sscanf(text, "%4u-%n", &days, &n_days);
    sscanf(text + n_days, "%4u:%2u:%2u%n", &hours, &minutes, &seconds, &n);
    if (text[strspn(text, "0123456789:-")] != '\0' || n == 0 || text[n_days + n] != '\0' ||
        minutes > 59 || seconds > 59) {
        return dt_error(DT_USAGE, "--%s: expected [D-]HH:MM:SS, got '%.60s'",
                        dt_options[option].name, text);
    }
    *out_s = 86400.0 * (n_days > 0 ? days : 0) + 3600.0 * hours + 60.0 * minutes + seconds;
    return DT_OK;
}
