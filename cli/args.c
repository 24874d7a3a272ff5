#include "cli/args.h"

#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "cli/config/schema.h"
#include "cli/suggest.h"

const struct dt_option_entry dt_options[DT_N_OPTIONS] = {
#define OPTION_ROW(constant, ...) {.name = __VA_ARGS__},
    DT_OPTION_LIST(OPTION_ROW)};

/* State of the parser. */
struct parser {
    int argc, next;
    char *const *argv;
    bool has_command, only_words; /* only_words: after "--" */
    bool is_old;                  /* something was called by its old name */
    struct dt_args *out;
};

/* The next argument, if it can be an option's value; else NULL. */
static const char *next_word(const struct parser *p)
{
    return p->next < p->argc && p->argv[p->next][0] != '-' ? p->argv[p->next] : NULL;
}

/* The text is copied. */
static enum dt_status add(struct dt_args *args, int i, const char *text)
{
    struct dt_values *v = &args->values[i];
    const char **texts = realloc(v->texts, ((size_t)v->n + 1) * sizeof *texts);
    v->texts = texts != NULL ? texts : v->texts;
    const char *copy = text != NULL ? strdup(text) : NULL;
    if (texts == NULL || (text != NULL && copy == NULL)) {
        return dt_error(DT_NO_MEMORY, "out of memory for the command line");
    }
    texts[v->n++] = copy;
    return DT_OK;
}

static bool is_help(const struct dt_command *command)
{
    return strcmp(command->word, "help") == 0;
}

/* ---- options that are not there */

/* Words of other programs, and the words of dtrain that do the same; %s: the value. */
static const struct {
    const char *said, *meant;
} other_words[] = {
    {"fit", "dtrain train"},
    {"test", "dtrain eval"},
    {"evaluate", "dtrain eval"},
    {"infer", "dtrain predict"},
    {"version", "dtrain --version"},
    {"-v", "dtrain --version"},
    {"-n", "mpirun -np %s dtrain ..."},
    {"-np", "mpirun -np %s dtrain ..."},
    {"--nproc-per-node", "mpirun -np %s dtrain ..."},
    {"--gpu", "--set device=cuda"},
    {"--gpus", "--set device=cuda"},
    {"--num-workers", "--set threads=%s"},
    {"--output", "--run %s"},
    {"--output-dir", "--run %s"},
    {"--dry-run", "dtrain plan"},
};

/* DT_USAGE "unknown <kind> '<word>' (write ...)", if the word is another program's; else DT_OK. */
static enum dt_status check_other(const char *kind, const char *word, const char *value)
{
    char name[64], meant[160];
    snprintf(name, sizeof name, "%s", word);
    for (char *c = strchr(name, '_'); c != NULL; c = strchr(c, '_')) {
        *c = '-';
    }
    for (size_t i = 0; i < sizeof other_words / sizeof other_words[0]; i++) {
        const char *text = other_words[i].meant, *hole = strstr(text, "%s");
        if (strcmp(other_words[i].said, name) == 0) {
            snprintf(meant, sizeof meant, "%.*s%.60s%s", (int)strcspn(text, "%"), text,
                     hole == NULL    ? ""
                     : value != NULL ? value
                                     : "N",
                     hole != NULL ? hole + 2 : "");
            return dt_error(DT_USAGE, "unknown %s '%s' (write %s)", kind, word, meant);
        }
    }
    return DT_OK;
}

/* The option that the user probably meant: it has this name, begins with this letter, or has a
 * similar name. NULL: no option. */
static const char *similar_option(const struct dt_command *command, const char *name)
{
    struct dt_suggestion s = {.word = name};
    for (int i = 0; i < DT_N_OPTIONS; i++) {
        const char *other = dt_options[i].name;
        if (strcmp(name, other) == 0 ||
            (name[1] == '\0' && name[0] == other[0] && dt_command_takes(command, i))) {
            return other;
        }
        dt_suggest_offer(&s, other);
    }
    return s.best;
}

/* `text`: with its dashes, and with a value behind an equals sign if it has one. */
static enum dt_status unknown_option(const struct parser *p, const char *text)
{
    const size_t n = strcspn(text, "=");
    const char *value = text[n] == '=' ? text + n + 1 : next_word(p);
    char word[64];
    snprintf(word, sizeof word, "%.*s", (int)n, text);
    DT_TRY(check_other("option", word, value));
    const char *name = word + strspn(word, "-"), *key = dt_config_key_of(name);
    if (key != NULL) {
        return dt_error(DT_USAGE,
                        "unknown option '%s' (a key of the configuration: --set %s=%.60s)", word,
                        key, value != NULL ? value : "VALUE");
    }
    const char *similar = similar_option(p->out->command, name);
    if (similar != NULL) {
        return dt_error(DT_USAGE, "unknown option '%s' (did you mean '--%s'?)", word, similar);
    }
    return dt_error(DT_USAGE, "unknown option '%s' (%ssee dtrain --help)", word,
                    word[1] != '-' ? "options begin with two dashes; " : "");
}

/* ---- options */

/* Takes --epochs 3 as --set train.epochs=3. */
static enum dt_status add_key(struct dt_args *args, int i, const char *value)
{
    char text[256];
    const int n = snprintf(text, sizeof text, "%s=%s", dt_config_key_of(dt_options[i].name), value);
    return n < (int)sizeof text ? add(args, DT_OPTION_SET, text)
                                : dt_error(DT_USAGE,
                                           "--%s: the value is too long (at most 200 "
                                           "bytes)",
                                           dt_options[i].name);
}

/* `value`: the text behind an equals sign, or NULL. */
static enum dt_status take_option(struct parser *p, int i, const char *value)
{
    const struct dt_option_entry *o = &dt_options[i];
    const bool takes = o->value[0] != '\0';
    if (i == DT_OPTION_JSON && p->has_command && is_help(p->out->command)) {
        p->out->about = "--json"; /* of help it takes no value */
        return DT_OK;
    }
    if (dt_args_has(p->out, i) && o->use != DT_REPEATED && i != DT_OPTION_HELP) {
        return dt_error(DT_USAGE, "--%s is given twice (remove one)", o->name);
    }
    if (!takes && value != NULL) {
        return dt_error(DT_USAGE, "--%s takes no value (remove '=%s')", o->name, value);
    }
    if (takes && !o->optional && value == NULL && p->next < p->argc &&
        strncmp(p->argv[p->next], "--", 2) != 0) {
        value = p->argv[p->next++];
    }
    if (takes && (value == NULL ? !o->optional : value[0] == '\0')) {
        return dt_error(DT_USAGE, "--%s needs a value (write --%s %s)", o->name, o->name, o->value);
    }
    if (i == DT_OPTION_SET && strchr(value, '=') == NULL && next_word(p) != NULL) {
        return dt_error(DT_USAGE,
                        "--set: expected key.path=value, got '%.60s' (write --set %.60s=%.60s)",
                        value, value, next_word(p));
    }
    return o->use == DT_OF_KEY && dt_command_takes(p->out->command, i) &&
                   dt_command_takes(p->out->command, DT_OPTION_SET)
               ? add_key(p->out, i, value)
               : add(p->out, i, value);
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

/* ---- old forms: they work for this release, and dtrain prints the new form */

static const struct {
    const char *old, *now; /* RUN, FILE: the value becomes this word */
} old_forms[] = {
    {"compare", "report"},           {"watch", "report --follow"},     {"scale", "bench scaling"},
    {"bench blocks", "bench model"}, {"--checkpoint", "RUN"},          {"--onnx", "FILE"},
    {"--safetensors", "FILE"},       {"--help-config", "help config"},
};

/* The new form of an old word or option, or NULL. */
static const char *find_old(const char *word, int n)
{
    for (size_t i = 0; i < sizeof old_forms / sizeof old_forms[0]; i++) {
        if (strncmp(old_forms[i].old, word, (size_t)n) == 0 && old_forms[i].old[n] == '\0') {
            return old_forms[i].now;
        }
    }
    return NULL;
}

static enum dt_status take_old_command(struct parser *p, const char *now)
{
    char word[32];
    const char *option = strstr(now, " --");
    snprintf(word, sizeof word, "%.*s", option != NULL ? (int)(option - now) : 31, now);
    p->is_old = p->has_command = true;
    p->out->command = dt_command_find(p->out->program, word);
    return option != NULL ? add(p->out, dt_option_find(option + 1, (int)strlen(option + 1)), NULL)
                          : DT_OK;
}

static enum dt_status take_old_option(struct parser *p, const char *text, const char *now)
{
    struct dt_args *args = p->out;
    const char *equals = strchr(text, '=');
    p->is_old = true;
    if (strcmp(now, "help config") == 0) {
        p->has_command = true;
        args->command = dt_command_find(args->program, "help");
        args->key = "config";
        return DT_OK;
    }
    const char *value = equals != NULL ? equals + 1 : next_word(p);
    p->next += equals == NULL && value != NULL;
    if (value == NULL || value[0] == '\0') {
        return dt_error(DT_USAGE, "%.*s needs a value (write %s)", (int)strcspn(text, "="), text,
                        now);
    }
    DT_TRY(add(args, DT_PATHS, value));
    const struct dt_values *v = &args->values[DT_PATHS];
    if (strcmp(now, "RUN") == 0) { /* the first word */
        const char *run = v->texts[v->n - 1];
        memmove(v->texts + 1, v->texts, (size_t)(v->n - 1) * sizeof *v->texts);
        v->texts[0] = run;
    }
    return DT_OK;
}

/* The line in its new form; the caller frees it; NULL: out of memory. */
static char *new_form(const struct dt_args *args)
{
    char *text = NULL;
    size_t n = 0;
    FILE *out = open_memstream(&text, &n);
    if (out == NULL) {
        return NULL;
    }
    fprintf(out, "dtrain %s", args->command->word);
    if (args->key != NULL) { /* "train" alone would be the command */
        const bool is_command = dt_command_find(args->program, args->key) != NULL;
        fprintf(out, " %s%s", is_command ? "config " : "", args->key);
    }
    const bool help = args->command->informative;
    fprintf(out, help && args->about != NULL ? " %s" : "", args->about);
    for (int v = DT_N_VALUES - 1; v >= 0 && !help; v--) { /* words first */
        for (int i = 0; i < args->values[v].n; i++) {
            const char *value = args->values[v].texts[i];
            fprintf(out, v < DT_N_OPTIONS ? " --%s" : "",
                    v < DT_N_OPTIONS ? dt_options[v].name : "");
            if (value != NULL) {
                fputc(v < DT_N_OPTIONS && dt_options[v].optional ? '=' : ' ', out);
                dt_text_put_word(out, value);
            }
        }
    }
    dt_text_close(out, &text);
    return text;
}

/* Reads --name, --name=value, or -n, whose value is the next argument. A letter belongs to the
 * command that takes the option, and so must come behind the command. */
static enum dt_status read_option(struct parser *p, const char *text)
{
    const int n = (int)strcspn(text, "="), i = dt_option_find(text, n);
    const char *now = find_old(text, n);
    const bool whole = text[1] == '-' || text[2] == '\0';
    if (now != NULL) {
        return take_old_option(p, text, now);
    }
    return i < DT_N_OPTIONS && whole && (text[1] == '-' || dt_command_takes(p->out->command, i))
               ? take_option(p, i, text[n] == '=' ? text + n + 1 : NULL)
               : unknown_option(p, text);
}

/* ---- words */

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

bool dt_command_is_in(const struct dt_command *command, const char *group)
{
    const size_t n = strlen(group);
    return strncmp(command->word, group, n) == 0 && command->word[n] == ' ';
}

bool dt_command_is_group(const struct dt_program *program, const char *word)
{
    const struct dt_command *const *c = program->commands;
    while (*c != NULL && !dt_command_is_in(*c, word)) {
        c++;
    }
    return *c != NULL;
}

bool dt_command_repeats(const struct dt_command *command, const struct dt_command *before)
{
    const size_t n = strcspn(command->word, " ");
    return before != NULL && strncmp(before->word, command->word, n) == 0 &&
           strcspn(before->word, " ") == n;
}

/* Lists the commands that begin with the same word, or else all first words. */
static enum dt_status unknown_command(const struct dt_program *program, const char *word)
{
    char words[256] = "", first[32];
    const struct dt_command *before = NULL;
    snprintf(first, sizeof first, "%.*s", (int)strcspn(word, " "), word);
    const bool group = dt_command_is_group(program, first);
    for (const struct dt_command *const *c = program->commands; *c != NULL; before = *c++) {
        const size_t n = strlen(words);
        if (dt_command_has_word(*c) &&
            (group ? dt_command_is_in(*c, first) : !dt_command_repeats(*c, before))) {
            snprintf(words + n, sizeof words - n, "%s%.*s", n > 0 ? ", " : "",
                     group ? 99 : (int)strcspn((*c)->word, " "), (*c)->word);
        }
    }
    return dt_error(DT_USAGE, "unknown command '%.200s' (one of %s)", word, words);
}

/* DT_USAGE: "<what> '<word>' (...)", if the word shows which option the user forgot; else DT_OK. */
static enum dt_status check_meant(const struct parser *p, const char *what, const char *word)
{
    const char *last = p->next >= 2 ? p->argv[p->next - 2] : "", *equals = strchr(word, '=');
    char name[64], cure[DT_ERROR_TEXT_SIZE] = "";
    snprintf(name, sizeof name, "%.*s", equals != NULL ? (int)(equals - word) : 0, word);
    if (strcmp(last, "--resume") == 0) {
        snprintf(cure, sizeof cure, "write --resume=%.200s", word);
    } else if (ends_in(word, ".json") || ends_in(word, ".yaml") || ends_in(word, ".yml")) {
        snprintf(cure, sizeof cure, "for a configuration write --config %.200s", word);
    } else if (ends_in(word, ".safetensors")) {
        snprintf(cure, sizeof cure,
                 "to resume from it write --resume=%.100s, to measure it dtrain eval %.100s", word,
                 word);
    } else if (dt_config_key_of(name) != NULL) {
        snprintf(cure, sizeof cure, "a key needs --set: --set %s%.100s", dt_config_key_of(name),
                 equals);
    }
    return cure[0] == '\0' ? DT_OK : dt_error(DT_USAGE, "%s '%.200s' (%s)", what, word, cure);
}

static enum dt_status refuse_command(const struct parser *p, const char *word)
{
    const struct dt_program *program = p->out->program;
    struct dt_suggestion s = {.word = word};
    DT_TRY(check_meant(p, "unknown command", word));
    DT_TRY(check_other("command", word, NULL));
    for (const struct dt_command *const *c = program->commands; *c != NULL; c++) {
        const size_t n = strlen((*c)->word);
        if (dt_command_has_word(*c) && !(strncmp((*c)->word, word, n) == 0 && word[n] == ' ')) {
            dt_suggest_offer(&s, (*c)->word);
        }
    }
    if (s.best != NULL && !dt_command_is_group(program, word)) {
        return dt_error(DT_USAGE, "unknown command '%.200s' (did you mean '%s'?)", word, s.best);
    }
    return unknown_command(program, word);
}

static enum dt_status read_command(struct parser *p, const char *first)
{
    char word[512];
    struct dt_args *args = p->out;
    const bool two = dt_command_is_group(args->program, first) && p->next < p->argc &&
                     p->argv[p->next][0] != '-';
    snprintf(word, sizeof word, "%.200s%s%.200s", first, two ? " " : "",
             two ? p->argv[p->next++] : "");
    const bool group = dt_command_is_group(args->program, word) && asks_for_help(p);
    const struct dt_command *command = dt_command_find(args->program, group ? "help" : word);
    const char *now = find_old(word, (int)strlen(word));
    if (command == NULL && now != NULL) {
        return take_old_command(p, now);
    }
    if (command == NULL || !dt_command_has_word(command)) {
        return refuse_command(p, word);
    }
    p->has_command = true;
    args->command = command;
    args->about = group ? first : args->about;
    return DT_OK;
}

/* Reads a word behind `help`: a command, as if it came alone with --help, a group of commands,
 * "config", or a key. */
static enum dt_status read_about(struct parser *p, const char *word)
{
    struct dt_args *args = p->out;
    const bool keys = args->key != NULL && strcmp(args->key, "config") == 0;
    const bool is_command = !keys && dt_command_find(args->program, word) != NULL;
    const bool group = !keys && dt_command_is_group(args->program, word) && p->next == p->argc;
    const bool is_key = dt_config_names(word);
    if (args->about != NULL || (args->key != NULL && !(keys && is_key))) {
        return dt_error(DT_USAGE, "help: '%.60s' is %s (see dtrain help%s)", word,
                        keys ? "no key" : "one word too many", keys ? " config" : "");
    }
    if (group) {
        args->about = word;
    } else if (is_key && !is_command) {
        args->key = word;
    } else {
        DT_TRY(add(args, DT_OPTION_HELP, NULL));
        return read_command(p, word);
    }
    return DT_OK;
}

static enum dt_status read_word(struct parser *p, const char *word)
{
    struct dt_args *args = p->out;
    if (!p->has_command) {
        return read_command(p, word);
    }
    if (is_help(args->command)) {
        return read_about(p, word);
    }
    if (dt_command_takes(args->command, DT_PATHS)) {
        return add(args, DT_PATHS, word);
    }
    DT_TRY(check_meant(p, "unexpected argument", word));
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
        } else if (!p->only_words && text[0] == '-' && text[1] != '\0') {
            DT_TRY(read_option(p, text));
        } else {
            DT_TRY(read_word(p, text));
        }
    }
    return DT_OK;
}

/* Some options stand for a command, as --version does; --help wins over all of them. */
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
    if (i == DT_OPTION_RUN && strstr(args->command->usage, "RUN") != NULL) {
        return dt_error(DT_USAGE, "--run does not belong to %s (write dtrain %s %.200s)",
                        args->command->word, args->command->word, value);
    }
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
    if (dt_args_has(args, DT_PATHS) && !dt_command_takes(args->command, DT_PATHS)) {
        return dt_error(DT_USAGE, "unexpected argument '%.200s' (%s takes options only)",
                        dt_args_text(args, DT_PATHS), args->command->word);
    }
    return args->command->check != NULL ? args->command->check(args) : DT_OK;
}

static void free_values(struct dt_args *args)
{
    for (int i = 0; i < DT_N_VALUES; i++) {
        for (int k = 0; k < args->values[i].n; k++) {
            free((char *)args->values[i].texts[k]);
        }
        free(args->values[i].texts);
        args->values[i] = (struct dt_values){0};
    }
}

void dt_args_free(struct dt_args *args)
{
    free_values(args);
    free(args->line);
    free(args->now);
    *args = (struct dt_args){0};
}

static enum dt_status parse(struct parser *p)
{
    if (p->out->line == NULL) {
        return dt_error(DT_NO_MEMORY, "out of memory for the command line");
    }
    DT_TRY(read_all(p));
    choose_command(p);
    DT_TRY(p->out->command->informative ? DT_OK : check(p->out));
    p->out->now = p->is_old ? new_form(p->out) : NULL;
    return !p->is_old || p->out->now != NULL
               ? DT_OK
               : dt_error(DT_NO_MEMORY, "out of memory for the command line");
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
