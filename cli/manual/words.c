#include "cli/manual/words.h"

#include <stdlib.h>
#include <string.h>

#include "train/watch/inject.h"

/* Values by how the table of options calls them. */
static const struct {
    const char *value;
    enum source source;
} sources[] = {
    {"FILE", SOURCE_FILE},
    {"CHECKPOINT", SOURCE_FILE},
    {"DIR", SOURCE_FOLDER},
    {"KEY.PATH=VALUE", SOURCE_KEY},
};
#define N_SOURCES ((int)(sizeof sources / sizeof sources[0]))

/* Options whose values are names of another table. */
static const char *const names_of[N_OPTIONS] = {
    [OPTION_INJECT] = DT_FAULT_LIST(DT_BAR_NAME),
    [OPTION_ALGORITHM] = DT_ALGORITHM_LIST(DT_BAR_NAME),
    [OPTION_ALGORITHMS] = DT_ALLREDUCE_LIST(DT_BAR_NAME),
};

enum source dt_words_source(const struct dt_option *option)
{
    if (names_of[option - dt_options] != NULL || strchr(option->value, '|') != NULL) {
        return SOURCE_NAMES;
    }
    int i = 0;
    while (i < N_SOURCES && strcmp(sources[i].value, option->value) != 0) {
        i++;
    }
    return i < N_SOURCES ? sources[i].source : SOURCE_NOTHING;
}

/* "auto|yes|no" */
static void put_names(FILE *out, const char *names)
{
    for (; *names != '\0'; names++) {
        fputc(*names == '|' ? ' ' : *names, out);
    }
}

void dt_words_names(FILE *out, const struct dt_option *option)
{
    const char *names = names_of[option - dt_options];
    put_names(out,
              names != NULL ? names + 1 : option->value); /* the first has a bar before it, too */
}

bool dt_words_has_values(const struct dt_key *key)
{
    return key->kind == DT_KEY_BOOL || key->kind == DT_KEY_ENUM;
}

void dt_words_values(FILE *out, const struct dt_key *key)
{
    put_names(out, key->kind == DT_KEY_BOOL ? "true|false" : key->values + 1);
}

bool dt_words_first(int i, char out[WORD_SIZE])
{
    const char *word = dt_commands[i].word;
    const size_t n = strcspn(word, " ") + 1;
    snprintf(out, WORD_SIZE, "%.*s", (int)n - 1, word);
    return i == 0 || strncmp(dt_commands[i - 1].word, word, n) != 0;
}

const char *dt_words_second(int i)
{
    const char *space = strchr(dt_commands[i].word, ' ');
    return space == NULL ? NULL : space + 1;
}

void dt_words_logic(FILE *out, const char *name)
{
    char path[4096];
    snprintf(path, sizeof path, DT_SOURCE_DIR "/cli/manual/%s", name);
    FILE *file = fopen(path, "r");
    if (file == NULL) {
        perror(path);
        exit(DT_NO_INPUT);
    }
    for (int c; (c = fgetc(file)) != EOF;) {
        fputc(c, out);
    }
    fclose(file);
}
