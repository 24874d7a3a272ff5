/* dt_manual_zsh of cli/manual/manual.h. */
#include <string.h>

#include "cli/manual/manual.h"
#include "cli/manual/words.h"

/* In single quotes, with `special` characters behind a backslash. */
static void put_text(FILE *out, const char *text, const char *special)
{
    for (; *text != '\0'; text++) {
        fputs(strchr(special, *text) != NULL ? "\\" : "", out);
        fputs(*text == '\'' ? "'\\''" : (const char[]){*text, '\0'}, out);
    }
}

static void print_word(FILE *out, const char *word, const char *meaning)
{
    fprintf(out, " '%s", word);
    if (meaning != NULL) {
        fputc(':', out);
        put_text(out, meaning, ":");
    }
    fputc('\'', out);
}

static void print_words(FILE *out)
{
    char first[WORD_SIZE], other[WORD_SIZE];
    fputs("_dtrain_words() { # [FIRST]: what may follow, in `described`\n  case $1 in\n    '') "
          "described=(",
          out);
    for (int i = 0; i < N_WORDS; i++) {
        if (dt_words_first(i, first)) {
            print_word(out, first, dt_words_second(i) == NULL ? dt_commands[i].meaning : NULL);
        }
    }
    fputs(") ;;\n", out);
    for (int i = 0; i < N_WORDS; i++) {
        if (dt_words_first(i, first) && dt_words_second(i) != NULL) {
            fprintf(out, "    %s) described=(", first);
            print_word(out, dt_words_second(i), dt_commands[i].meaning);
            for (; i + 1 < N_WORDS && !dt_words_first(i + 1, other); i++) {
                print_word(out, dt_words_second(i + 1), dt_commands[i + 1].meaning);
            }
            fputs(") ;;\n", out);
        }
    }
    fputs("    *) described=() ;;\n  esac\n}\n\n", out);
}

/* What _arguments does for the value, behind a colon. */
static void print_action(FILE *out, const struct dt_option *o)
{
    switch (dt_words_source(o)) {
    case SOURCE_NOTHING:
        fputc(' ', out);
        break;
    case SOURCE_FILE:
        fputs("_files", out);
        break;
    case SOURCE_FOLDER:
        fputs("_files -/", out);
        break;
    case SOURCE_KEY:
        fputs("_dtrain_set", out);
        break;
    case SOURCE_NAMES:
        fputc('(', out);
        dt_words_names(out, o);
        fputc(')', out);
        break;
    }
}

/* '--config=[meaning]:FILE:_files' */
static void print_option(FILE *out, enum option i)
{
    const struct dt_option *o = &dt_options[i];
    const bool takes = o->takes != TAKES_NOTHING, optional = o->takes == TAKES_OPTIONAL_VALUE;
    fputs(" \\\n        ", out);
    if (o->letter != 0) {
        fprintf(out, "'(--%s -%c)'{--%s%s,-%c}'", o->name, o->letter, o->name, takes ? "=" : "",
                o->letter);
    } else {
        fprintf(out, "'%s--%s%s", REPEATS(i) ? "*" : "", o->name,
                optional ? "=-"
                : takes  ? "="
                         : "");
    }
    fputc('[', out);
    put_text(out, o->meaning, "[]:");
    fputc(']', out);
    if (takes) {
        fputs(optional ? "::" : ":", out);
        put_text(out, o->value, ":");
        fputc(':', out);
        print_action(out, o);
    }
    fputc('\'', out);
}

static void print_arguments(FILE *out)
{
    fputs("_dtrain_arguments() { # of `command`\n  case $command in\n", out);
    for (int i = 0; i < N_WORDS; i++) {
        fprintf(out, "    '%s')\n      _arguments", dt_commands[i].word);
        for (int o = 0; o < N_OPTIONS; o++) {
            if ((dt_options[o].commands & (1u << i)) != 0) {
                print_option(out, (enum option)o);
            }
        }
        fputs((ON_PATHS & (1u << i)) != 0 ? " \\\n        '*:file:_files'" : "", out);
        fputs(" ;;\n", out);
    }
    fputs("  esac\n}\n\n", out);
}

static void print_keys(FILE *out)
{
    const struct dt_key_list list = dt_config_keys();
    fputs("_dtrain_keys() {\n  values=(", out);
    for (int i = 0; i < list.n; i++) {
        fprintf(out, "\n    '%s:", list.keys[i].path);
        put_text(out, list.keys[i].meaning, ":");
        fputc('\'', out);
    }
    fputs(")\n}\n\n_dtrain_key_values() { # KEY\n  case $1 in\n", out);
    for (int i = 0; i < list.n; i++) {
        if (dt_words_has_values(&list.keys[i])) {
            fprintf(out, "    %s) values=(", list.keys[i].path);
            dt_words_values(out, &list.keys[i]);
            fputs(") ;;\n", out);
        }
    }
    fputs("  esac\n}\n\n", out);
}

void dt_manual_zsh(FILE *out)
{
    fputs("#compdef dtrain\n# Completions of dtrain for zsh, made by `cmake --build build/release "
          "--target docs`.\n\n",
          out);
    print_words(out);
    print_arguments(out);
    print_keys(out);
    dt_words_logic(out, "logic.zsh");
}
