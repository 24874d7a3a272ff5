/* dt_manual_fish of cli/manual/manual.h. */
#include "cli/manual/manual.h"
#include "cli/manual/words.h"

/* In single quotes. */
static void put_quoted(FILE *out, const char *text)
{
    fputc('\'', out);
    for (; *text != '\0'; text++) {
        fprintf(out, *text == '\'' || *text == '\\' ? "\\%c" : "%c", *text);
    }
    fputc('\'', out);
}

static void print_keys(FILE *out)
{
    const struct dt_key_list list = dt_config_keys();
    fputs("function __dtrain_all_keys\n", out);
    for (int i = 0; i < list.n; i++) {
        fprintf(out, "    printf '%%s\\t%%s\\n' %s= ", list.keys[i].path);
        put_quoted(out, list.keys[i].meaning);
        fputc('\n', out);
    }
    fputs("end\n\nfunction __dtrain_key_values\n    switch $argv[1]\n", out);
    for (int i = 0; i < list.n; i++) {
        if (dt_words_has_values(&list.keys[i])) {
            fprintf(out, "        case %s\n            printf '%%s\\n' ", list.keys[i].path);
            dt_words_values(out, &list.keys[i]);
            fputc('\n', out);
        }
    }
    fputs("    end\nend\n\n", out);
}

/* One word of a command, where `condition` holds. */
static void print_word(FILE *out, const char *condition, const char *word, const char *meaning)
{
    fprintf(out, "complete -c dtrain -n '%s' -a %s", condition, word);
    if (meaning != NULL) {
        fputs(" -d ", out);
        put_quoted(out, meaning);
    }
    fputc('\n', out);
}

static void print_commands(FILE *out)
{
    for (int i = 0; i < N_WORDS; i++) {
        char first[WORD_SIZE], condition[64];
        const char *second = dt_words_second(i);
        if (dt_words_first(i, first)) {
            print_word(out, "__dtrain_first", first,
                       second == NULL ? dt_commands[i].meaning : NULL);
        }
        if (second != NULL) {
            snprintf(condition, sizeof condition, "__dtrain_second %s", first);
            print_word(out, condition, second, dt_commands[i].meaning);
        }
    }
}

/* complete ... -n '__dtrain_on train "bench blocks"' */
static void print_condition(FILE *out, unsigned commands)
{
    fputs("complete -c dtrain -n '__dtrain_on", out);
    for (int i = 0; i < N_WORDS; i++) {
        if ((commands & (1u << i)) != 0) {
            fprintf(out, dt_words_second(i) == NULL ? " %s" : " \"%s\"", dt_commands[i].word);
        }
    }
    fputc('\'', out);
}

static void print_option(FILE *out, const struct dt_option *o)
{
    print_condition(out, o->commands);
    fprintf(out, " -l %s", o->name);
    if (o->letter != 0) {
        fprintf(out, " -s %c", o->letter);
    }
    switch (dt_words_source(o)) {
    case SOURCE_NOTHING:
        fputs(o->takes == TAKES_NOTHING ? "" : " -x", out);
        break;
    case SOURCE_FILE:
        fputs(o->takes == TAKES_OPTIONAL_VALUE ? " -F" : " -r -F", out);
        break;
    case SOURCE_FOLDER:
        fputs(" -x -a '(__fish_complete_directories)'", out);
        break;
    case SOURCE_KEY:
        fputs(" -x -a '(__dtrain_keys)'", out);
        break;
    case SOURCE_NAMES:
        fputs(" -x -a '", out);
        dt_words_names(out, o);
        fputc('\'', out);
        break;
    }
    fputs(" -d ", out);
    put_quoted(out, o->meaning);
    fputc('\n', out);
}

void dt_manual_fish(FILE *out)
{
    fputs("# Completions of dtrain for fish, made by `cmake --build build/release --target "
          "docs`.\n\n",
          out);
    print_keys(out);
    dt_words_logic(out, "logic.fish");
    fputs("complete -c dtrain -f\n", out);
    print_commands(out);
    for (int i = 0; i < N_OPTIONS; i++) {
        print_option(out, &dt_options[i]);
    }
    print_condition(out, ON_PATHS);
    fputs(" -F\n", out);
}
