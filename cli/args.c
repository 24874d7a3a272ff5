#include "cli/args.h"

#include <stdlib.h>
#include <string.h>

#include "cli/config/schema.h"
#include "cli/launch_line.h"
#include "cli/options.h"
#include "cli/suggest.h"

const struct dt_option dt_options[N_OPTIONS] = {
#define OPTION_ROW(constant, name, letter, value, takes, commands, meaning) \
    {name, letter, value, takes, commands, meaning},
    DT_OPTION_LIST(OPTION_ROW)};

const struct dt_option_meaning dt_option_meanings[] = {
#define MEANING_ROW(option, commands, meaning) {option, commands, meaning},
    DT_OPTION_MEANING_LIST(MEANING_ROW){N_OPTIONS, 0, NULL}};

const struct dt_command_row dt_commands[DT_N_COMMANDS] = {
#define COMMAND_ROW(constant, word, meaning, usage, examples, ...) {word, meaning, usage, examples},
    DT_COMMAND_LIST(COMMAND_ROW)};
_Static_assert(DT_N_COMMANDS <= 32, "an option's commands are the bits of an unsigned");

/* What has been read so far. */
struct parser {
    int argc, next;
    char *const *argv;
    bool has_command, only_words; /* only_words: after "--" */
    bool given[N_OPTIONS];
    const char *values[N_OPTIONS];
    struct dt_args *out;
};

/* What stands behind an option that has its value in the next argument. */
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
    for (int i = 0; i < N_OPTIONS; i++) {
        dt_suggest_offer(&s, dt_options[i].name);
    }
    if (s.best != NULL) {
        return dt_error(DT_USAGE, "unknown option '--%s' (did you mean '--%s'?)", word, s.best);
    }
    return dt_error(DT_USAGE, "unknown option '--%s' (see dtrain --help)", word);
}

/* `value`: what stood behind an equals sign, else NULL. */
static enum dt_status take_option(struct parser *p, int i, const char *value)
{
    if (p->given[i] && !REPEATS(i) && i != OPTION_HELP) {
        return dt_error(DT_USAGE, "--%s is given twice (remove one)", dt_options[i].name);
    }
    p->given[i] = true;
    if (dt_options[i].takes == TAKES_NOTHING && value != NULL) {
        return dt_error(DT_USAGE, "--%s takes no value (remove '=%s')", dt_options[i].name, value);
    }
    if (dt_options[i].takes == TAKES_VALUE && value == NULL && p->next < p->argc &&
        strncmp(p->argv[p->next], "--", 2) != 0) {
        value = p->argv[p->next++];
    }
    if (dt_options[i].takes != TAKES_NOTHING &&
        (value == NULL ? dt_options[i].takes == TAKES_VALUE : value[0] == '\0')) {
        return dt_error(DT_USAGE, "--%s needs a value (write --%s %s)", dt_options[i].name,
                        dt_options[i].name, dt_options[i].value);
    }
    p->values[i] = value;
    if (i == OPTION_SET && strchr(value, '=') == NULL && next_word(p) != NULL) {
        return dt_error(DT_USAGE,
                        "--set: expected key.path=value, got '%.60s' (write --set %.60s=%.60s)",
                        value, value, next_word(p));
    }
    if (i == OPTION_SET) {
        p->out->sets[p->out->n_sets++] = value;
    }
    if (i == OPTION_INJECT) {
        p->out->injects[p->out->n_injects++] = value;
    }
    return DT_OK;
}

/* --name, or --name=value. */
static enum dt_status read_option(struct parser *p, const char *text)
{
    const int n = (int)strcspn(text, "=");
    int i = 0;
    while (i < N_OPTIONS &&
           !(strncmp(dt_options[i].name, text, (size_t)n) == 0 && dt_options[i].name[n] == '\0')) {
        i++;
    }
    return i < N_OPTIONS ? take_option(p, i, text[n] == '=' ? text + n + 1 : NULL)
                         : unknown_option(p, text, n);
}

/* -b; its value is the next argument. */
static enum dt_status read_letter(struct parser *p, const char *text)
{
    int i = 0;
    while (i < N_OPTIONS && !(text[1] == dt_options[i].letter && text[2] == '\0')) {
        i++;
    }
    if (i == N_OPTIONS && strcmp(text, "-np") == 0) {
        const char *n = next_word(p);
        return dt_error(DT_USAGE,
                        "unknown option '-np' (it is mpirun's: mpirun -np %.20s dtrain ...)",
                        n != NULL ? n : "4");
    }
    if (i == N_OPTIONS) {
        return dt_error(
            DT_USAGE, "unknown option '%.200s' (options begin with two dashes; see dtrain --help)",
            text);
    }
    return take_option(p, i, NULL);
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

/* "bench": with what follows one command, "bench blocks". */
static bool is_first_word(const char *word)
{
    const size_t n = strlen(word);
    int i = 0;
    while (i < DT_N_COMMANDS && dt_commands[i].word != NULL &&
           !(strncmp(dt_commands[i].word, word, n) == 0 && dt_commands[i].word[n] == ' ')) {
        i++;
    }
    return i < DT_N_COMMANDS && dt_commands[i].word != NULL;
}

/* Lists those that begin with the same word, or else the first words. */
static enum dt_status unknown_command(const char *word)
{
    const int n_word = (int)strcspn(word, " ");
    char words[256] = "", first[32];
    snprintf(first, sizeof first, "%.*s", n_word, word);
    const bool group = is_first_word(first);
    for (int i = 0; i < DT_N_COMMANDS && dt_commands[i].word != NULL; i++) {
        const char *other = dt_commands[i].word;
        const size_t n = strlen(words), n_first = strcspn(other, " ");
        const bool again = i > 0 && strncmp(dt_commands[i - 1].word, other, n_first + 1) == 0;
        if (group ? strncmp(other, first, n_first) == 0 && first[n_first] == '\0' : !again) {
            snprintf(words + n, sizeof words - n, "%s%.*s", n > 0 ? ", " : "",
                     group ? 99 : (int)n_first, other);
        }
    }
    return dt_error(DT_USAGE, "unknown command '%.200s' (one of %s)", word, words);
}

static enum dt_status read_command(struct parser *p, const char *first)
{
    char word[512];
    const bool two = is_first_word(first) && p->next < p->argc && p->argv[p->next][0] != '-';
    snprintf(word, sizeof word, "%.200s%s%.200s", first, two ? " " : "",
             two ? p->argv[p->next++] : "");
    if (is_first_word(word) && asks_for_help(p)) {
        p->has_command = true;
        p->out->command = DT_COMMAND_HELP;
        p->out->about = first;
        return DT_OK;
    }
    struct dt_suggestion s = {.word = word};
    for (int i = 0; i < DT_N_COMMANDS && dt_commands[i].word != NULL; i++) {
        if (strcmp(dt_commands[i].word, word) == 0) {
            p->out->command = (enum dt_command)i;
            p->has_command = true;
            return DT_OK;
        }
        dt_suggest_offer(&s, dt_commands[i].word);
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
    if (s.best != NULL && !is_first_word(word)) {
        return dt_error(DT_USAGE, "unknown command '%.200s' (did you mean '%s'?)", word, s.best);
    }
    return unknown_command(word);
}

static enum dt_status read_word(struct parser *p, const char *word)
{
    if (!p->has_command) {
        return read_command(p, word);
    }
    if (p->out->command == DT_COMMAND_HELP &&
        p->out->about == NULL) { /* help COMMAND: as if it came alone, with --help */
        const bool group = is_first_word(word) && p->next == p->argc;
        p->given[OPTION_HELP] = true;
        p->out->about = group ? word : NULL;
        return group ? DT_OK : read_command(p, word);
    }
    const bool takes_config = (dt_options[OPTION_CONFIG].commands & (1u << p->out->command)) != 0;
    if ((ON_PATHS & (1u << p->out->command)) == 0 && takes_config && ends_in(word, ".json")) {
        return dt_error(DT_USAGE,
                        "unexpected argument '%.200s' (for a configuration write --config %.200s)",
                        word, word);
    }
    if ((ON_PATHS & (1u << p->out->command)) == 0) {
        return dt_error(DT_USAGE,
                        "unexpected argument '%.200s' (%s takes options only; see dtrain --help)",
                        word, dt_commands[p->out->command].word);
    }
    p->out->paths[p->out->n_paths++] = word;
    return DT_OK;
}

static enum dt_status read_all(struct parser *p)
{
    while (p->next < p->argc) {
        const char *text = p->argv[p->next++];
        if (!p->only_words && strcmp(text, "--") == 0) {
            p->only_words = true;
        } else if (!p->only_words && strncmp(text, "--", 2) == 0) {
            DT_TRY(read_option(p, text + 2));
        } else if (!p->only_words && text[0] == '-' && text[1] != '\0') {
            DT_TRY(read_letter(p, text));
        } else {
            DT_TRY(read_word(p, text));
        }
    }
    return DT_OK;
}

/* Options that stand for a command; --help wins over all. */
static void choose_command(struct parser *p)
{
    if (p->given[OPTION_HELP]) {
        if (p->has_command && p->out->about == NULL && p->out->command != DT_COMMAND_HELP) {
            p->out->about = dt_commands[p->out->command].word;
        }
        p->out->command = DT_COMMAND_HELP;
    } else if (p->given[OPTION_VERSION]) {
        p->out->command = DT_COMMAND_VERSION;
    } else if (p->given[OPTION_HELP_CONFIG]) {
        p->out->command = DT_COMMAND_HELP_CONFIG;
    } else if (p->given[OPTION_PRINT_CONFIG] && p->out->command == DT_COMMAND_TRAIN) {
        p->out->command = DT_COMMAND_PRINT_CONFIG;
    }
}

static bool is_informative(enum dt_command command)
{
    return command == DT_COMMAND_HELP || command == DT_COMMAND_VERSION ||
           command == DT_COMMAND_HELP_CONFIG;
}

/* A checkpoint carries its configuration; bare weights do not. */
static enum dt_status check_model(const struct parser *p, const char *word)
{
    const bool bare = p->given[OPTION_WEIGHTS];
    if (!bare && !p->given[OPTION_CHECKPOINT]) {
        return dt_error(DT_USAGE,
                        "%s: --checkpoint FILE is required, or --config FILE with --weights FILE "
                        "(see dtrain --help)",
                        word);
    }
    if (bare && p->given[OPTION_CHECKPOINT]) {
        return dt_error(DT_USAGE, "%s: --checkpoint and --weights are both given (remove one)",
                        word);
    }
    if (bare && !p->given[OPTION_CONFIG]) {
        return dt_error(DT_USAGE,
                        "%s: --weights FILE needs --config FILE, which describes the model", word);
    }
    if (!bare && (p->given[OPTION_CONFIG] || p->given[OPTION_SET])) {
        return dt_error(
            DT_USAGE,
            "%s: --config and --set go with --weights (a checkpoint carries its configuration)",
            word);
    }
    return DT_OK;
}

static enum dt_status check_runs(const struct parser *p)
{
    const int n = p->out->n_paths;
    const bool page = p->out->command == DT_COMMAND_REPORT;
    if (n < (page ? 1 : 2)) {
        return page ? dt_error(DT_USAGE,
                               "report: the folder of a run is required (dtrain report RUN)")
                    : dt_error(
                          DT_USAGE,
                          "compare: the folders of two runs are required (dtrain compare RUN RUN)");
    }
    if (n > DT_REPORT_MAX_RUNS) {
        return dt_error(DT_USAGE, "%d runs, at most %d fit beside each other (name fewer)", n,
                        DT_REPORT_MAX_RUNS);
    }
    if (page && n > 1 && p->values[OPTION_HTML] == NULL) {
        return dt_error(DT_USAGE, "report: a page of several runs needs a name (add --html FILE)");
    }
    return DT_OK;
}

static enum dt_status check(const struct parser *p)
{
    const enum dt_command command = p->out->command;
    const char *word =
        dt_commands[command].word == NULL ? "--print-config" : dt_commands[command].word;
    if (is_informative(command)) {
        return DT_OK;
    }
    for (int i = 0; i < N_OPTIONS; i++) {
        const bool harmless =
            command == DT_COMMAND_PRINT_CONFIG && (dt_options[i].commands & ON(TRAIN)) != 0;
        const char *key = dt_config_key_of(dt_options[i].name);
        const bool foreign =
            p->given[i] && (dt_options[i].commands & (1u << command)) == 0 && !harmless;
        if (foreign && key != NULL && (dt_options[OPTION_SET].commands & (1u << command)) != 0) {
            return dt_error(
                DT_USAGE, "--%s does not belong to %s (for the key write --set %s=%.60s)",
                dt_options[i].name, word, key, p->values[i] != NULL ? p->values[i] : "VALUE");
        }
        if (foreign) {
            return dt_error(DT_USAGE, "--%s does not belong to %s (see dtrain --help)",
                            dt_options[i].name, word);
        }
    }
    if (((ON_RUNS | ON(LAB_MODEL_PARALLEL)) & (1u << command)) != 0 && !p->given[OPTION_CONFIG]) {
        return dt_error(DT_USAGE, "--config FILE is required (see dtrain --help)");
    }
    if (p->given[OPTION_RESUME] && p->values[OPTION_RESUME] == NULL && !p->given[OPTION_RUN]) {
        return dt_error(DT_USAGE, "--resume goes on with which run? (add --run DIR, or name a "
                                  "checkpoint: --resume=FILE)");
    }
    if (command == DT_COMMAND_TRAIN && p->values[OPTION_RESUME] != NULL &&
        p->given[OPTION_WEIGHTS]) {
        return dt_error(DT_USAGE, "--resume=FILE and --weights both say where to begin (keep one)");
    }
    if ((ON_USES & (1u << command)) != 0) {
        DT_TRY(check_model(p, word));
    }
    if (command == DT_COMMAND_EXPORT && !p->given[OPTION_ONNX]) {
        return dt_error(
            DT_USAGE,
            "export: --onnx FILE is required (dtrain export --onnx FILE --checkpoint FILE)");
    }
    if (command == DT_COMMAND_PREDICT && p->out->n_paths == 0) {
        return dt_error(DT_USAGE, "predict: at least one image is required (dtrain predict "
                                  "--checkpoint FILE IMAGE.png...)");
    }
    if (command == DT_COMMAND_SWEEP && p->values[OPTION_RESUME] != NULL) {
        return dt_error(DT_USAGE,
                        "sweep: --resume goes on with all runs of --run (leave out '=%s')",
                        p->values[OPTION_RESUME]);
    }
    if (command == DT_COMMAND_WATCH && p->out->n_paths != 1) {
        return dt_error(DT_USAGE, "watch: the folder of one run is required (dtrain watch RUN)");
    }
    return command == DT_COMMAND_REPORT || command == DT_COMMAND_COMPARE ? check_runs(p) : DT_OK;
}

static void take_values(const struct parser *p)
{
    struct dt_args *out = p->out;
    out->config = p->values[OPTION_CONFIG];
    out->data = p->values[OPTION_DATA];
    out->run = p->values[OPTION_RUN];
    out->resume = p->given[OPTION_RESUME];
    out->resume_from = p->values[OPTION_RESUME];
    out->checkpoint = p->values[OPTION_CHECKPOINT];
    out->weights = p->values[OPTION_WEIGHTS];
    out->invert = p->values[OPTION_INVERT];
    out->onnx = p->values[OPTION_ONNX];
    out->json = p->values[OPTION_JSON];
    out->junit = p->values[OPTION_JUNIT];
    out->baseline = p->values[OPTION_BASELINE];
    out->quick = p->given[OPTION_SHORT];
    out->min_bytes = p->values[OPTION_MIN_BYTES];
    out->max_bytes = p->values[OPTION_MAX_BYTES];
    out->factor = p->values[OPTION_FACTOR];
    out->algorithms = p->values[OPTION_ALGORITHMS];
    out->iters = p->values[OPTION_ITERS];
    out->warmup = p->values[OPTION_WARMUP];
    out->check = p->values[OPTION_CHECK];
    out->latency = p->values[OPTION_LATENCY];
    out->bandwidth = p->values[OPTION_BANDWIDTH];
    out->algorithm = p->values[OPTION_ALGORITHM];
    out->ranks = p->values[OPTION_RANKS];
    out->elements = p->values[OPTION_ELEMENTS];
    out->batch = p->values[OPTION_BATCH];
    out->html = p->values[OPTION_HTML];
    out->nodes = p->values[OPTION_NODES];
    out->ntasks_per_node = p->values[OPTION_NTASKS_PER_NODE];
    out->cpus_per_task = p->values[OPTION_CPUS_PER_TASK];
    out->gpus_per_node = p->values[OPTION_GPUS_PER_NODE];
    out->time = p->values[OPTION_TIME];
    out->partition = p->values[OPTION_PARTITION];
    out->account = p->values[OPTION_ACCOUNT];
    out->script = p->values[OPTION_SCRIPT];
}

enum dt_status dt_args_parse(int argc, char *const *argv, struct dt_args *out)
{
    struct parser p = {.argc = argc, .next = 1, .argv = argv, .out = out};
    *out = (struct dt_args){
        .sets = calloc((size_t)argc + 1, sizeof *out->sets),
        .injects = calloc((size_t)argc + 1, sizeof *out->injects),
        .paths = calloc((size_t)argc + 1, sizeof *out->paths),
        .line = dt_launch_line(argc, argv),
    };
    enum dt_status status = DT_OK;
    if (out->sets == NULL || out->injects == NULL || out->paths == NULL || out->line == NULL) {
        status = dt_error(DT_NO_MEMORY, "out of memory for the command line");
    }
    if (status == DT_OK) {
        status = read_all(&p);
    }
    if (status == DT_OK) {
        choose_command(&p);
        status = check(&p);
    }
    if (status != DT_OK) {
        dt_args_free(out);
        return status;
    }
    if (!is_informative(out->command)) { /* those name no files */
        take_values(&p);
    }
    return DT_OK;
}

enum dt_status dt_args_number(const char *option, const char *text, bool unit, size_t low,
                              size_t high, size_t *out)
{
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
        return dt_error(DT_USAGE, "--%s: expected %s %zu..%zu, got '%.60s'", option,
                        unit ? "bytes" : "a whole number", low, high, text);
    }
    *out = (size_t)n << shift;
    return DT_OK;
}

void dt_args_free(struct dt_args *args)
{
    free(args->sets);
    free(args->injects);
    free(args->paths);
    free(args->line);
    *args = (struct dt_args){0};
}

enum dt_status dt_args_decimal(const char *option, const char *text, double low, double high,
                               double *out)
{
    if (text == NULL) {
        return DT_OK;
    }
    char *end = NULL;
    const double value = strtod(text, &end);
    if (text[0] < '0' || text[0] > '9' || *end != '\0' || !(value >= low && value <= high)) {
        return dt_error(DT_USAGE, "--%s: expected a number %g..%g, got '%.60s'", option, low, high,
                        text);
    }
    *out = value;
    return DT_OK;
}
