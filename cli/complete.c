#include "cli/args.h"

#include <string.h>

#include "cli/config/schema.h"
#include "dist/allreduce/algorithm.h"
#include "dist/allreduce/allreduce.h"
#include "train/hooks/inject.h"

/* Options whose values are names of another table. */
static const char *const names_of[DT_N_OPTIONS] = {
    [DT_OPTION_INJECT] = DT_FAULT_LIST(DT_BAR_NAME),
    [DT_OPTION_ALGORITHM] = DT_ALGORITHM_LIST(DT_BAR_NAME),
    [DT_OPTION_ALGORITHMS] = DT_ALLREDUCE_LIST(DT_BAR_NAME),
};

/* The word under the cursor, and how much of it stands before the value of an option. */
struct cursor {
    FILE *out;
    const char *word;
    int n_before;
};

/* Offers `name`, of n bytes, with `end` behind it, if it begins as the word under the cursor. */
static void offer(const struct cursor *c, const char *name, int n, const char *end,
                  const char *meaning)
{
    const char *typed = c->word + c->n_before;
    const int n_typed = (int)strlen(typed);
    if (strncmp(name, typed, (size_t)(n_typed < n ? n_typed : n)) == 0 && n_typed <= n) {
        fprintf(c->out, "%.*s%.*s%s%s%s\n", c->n_before, c->word, n, name, end,
                meaning != NULL ? "\t" : "", meaning != NULL ? meaning : "");
    }
}

/* Offers first words, or, behind `first`, second words. */
static bool offer_commands(const struct cursor *c, const struct dt_program *program,
                           const char *first)
{
    const struct dt_command *before = NULL;
    bool found = false;
    for (const struct dt_command *const *row = program->commands; *row != NULL; before = *row++) {
        const char *word = (*row)->word, *second = word + strlen(first) + 1;
        const int n = (int)strcspn(word, " ");
        if (first[0] != '\0' && dt_command_is_in(*row, first)) {
            offer(c, second, (int)strlen(second), "", (*row)->meaning);
            found = true;
        } else if (first[0] == '\0' && dt_command_has_word(*row) &&
                   !dt_command_repeats(*row, before)) {
            offer(c, word, n, "", word[n] == '\0' ? (*row)->meaning : NULL);
        }
    }
    return found;
}

/* Offers the names of "auto|yes|no"; a bar may precede the first name. */
static void offer_names(struct cursor c, const char *names)
{
    for (names += names[0] == '|'; *names != '\0';) {
        const int n = (int)strcspn(names, "|");
        offer(&c, names, n, "", NULL);
        names += n + (names[n] == '|');
    }
}

static void offer_keys(struct cursor c)
{
    const struct dt_key_list list = dt_config_keys();
    const char *typed = c.word + c.n_before;
    const size_t n_key = strcspn(typed, "=");
    for (int i = 0; i < list.n; i++) {
        const struct dt_key *key = &list.keys[i];
        if (typed[n_key] != '=') {
            offer(&c, key->path, (int)strlen(key->path), "=", key->meaning);
        } else if (strncmp(key->path, typed, n_key) == 0 && key->path[n_key] == '\0') {
            c.n_before += (int)n_key + 1;
            offer_names(c, key->kind == DT_KEY_BOOL   ? "true|false"
                           : key->kind == DT_KEY_ENUM ? key->values
                                                      : "");
            return;
        }
    }
}

static void offer_value(struct cursor c, int option)
{
    const char *value = dt_options[option].value;
    if (names_of[option] != NULL || strchr(value, '|') != NULL) {
        offer_names(c, names_of[option] != NULL ? names_of[option] : value);
    } else if (option == DT_OPTION_SET) {
        offer_keys(c);
    } else if (strcmp(value, "FILE") == 0 || strcmp(value, "RUN") == 0) {
        fputs(":file\n", c.out);
    } else if (strcmp(value, "DIR") == 0) {
        fputs(":folder\n", c.out);
    }
}

static void offer_arguments(struct cursor c, const struct dt_command *command, const char *before)
{
    const int n = (int)strcspn(c.word, "=");
    int option = dt_option_find(c.word, n);
    if (c.word[n] == '=' && option < DT_N_OPTIONS) {
        c.n_before = n + 1;
        offer_value(c, option);
        return;
    }
    option = dt_option_find(before, (int)strlen(before));
    if (option < DT_N_OPTIONS && dt_options[option].value[0] != '\0' &&
        !dt_options[option].optional) {
        offer_value(c, option);
    } else if (c.word[0] == '-') {
        for (int i = 0; i < DT_N_OPTIONS; i++) {
            char name[40];
            const int n_name = snprintf(name, sizeof name, "--%s", dt_options[i].name);
            if (dt_command_takes(command, i)) {
                const char *meaning = command->options[i].meaning;
                offer(&c, name, n_name, "", meaning != NULL ? meaning : dt_options[i].meaning);
            }
        }
    } else if (dt_command_takes(command, DT_PATHS)) {
        fputs(":file\n", c.out);
    }
}

void dt_complete(FILE *out, const struct dt_program *program, int n_words, char *const *words)
{
    const bool help = n_words > 1 && strcmp(words[0], "help") == 0;
    n_words -= help;
    words += help;
    struct cursor c = {.out = out, .word = n_words > 0 ? words[n_words - 1] : ""};
    const char *first = n_words > 0 && words[0][0] != '-' ? words[0] : "";
    const struct dt_command *command = program->commands[0];
    if (n_words <= 1 && c.word[0] != '-') {
        offer_commands(&c, program, "");
        return;
    }
    if (first[0] != '\0' && n_words == 2 && c.word[0] != '-' &&
        offer_commands(&c, program, first)) {
        return;
    }
    if (first[0] != '\0') {
        char two[64];
        snprintf(two, sizeof two, "%.30s %.30s", first, n_words > 1 ? words[1] : "");
        command = dt_command_find(program, first);
        command = command != NULL ? command : dt_command_find(program, two);
    }
    if (!help && command != NULL) {
        offer_arguments(c, command, n_words > 1 ? words[n_words - 2] : "");
    }
}
