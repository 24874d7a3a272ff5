/* dt_manual_bash of cli/manual/manual.h. */
#include "cli/manual/manual.h"
#include "cli/manual/words.h"

/* Commands by their first word. */
static void print_words(FILE *out)
{
    char first[WORD_SIZE], other[WORD_SIZE];
    fputs("_dtrain_words() { # [FIRST]: the words that may follow\n  case $1 in\n    '') echo",
          out);
    for (int i = 0; i < N_WORDS; i++) {
        if (dt_words_first(i, first)) {
            fprintf(out, " %s", first);
        }
    }
    fputs(" ;;\n", out);
    for (int i = 0; i < N_WORDS; i++) {
        if (dt_words_first(i, first) && dt_words_second(i) != NULL) {
            fprintf(out, "    %s) echo %s", first, dt_words_second(i));
            for (; i + 1 < N_WORDS && !dt_words_first(i + 1, other); i++) {
                fprintf(out, " %s", dt_words_second(i + 1));
            }
            fputs(" ;;\n", out);
        }
    }
    fputs("  esac\n}\n\n", out);
}

static void print_options(FILE *out)
{
    fputs("_dtrain_options() { # COMMAND: its options, behind \"files\" where it takes names of "
          "files\n  case $1 in\n",
          out);
    for (int i = 0; i < N_WORDS; i++) {
        fprintf(out, "    '%s') echo%s", dt_commands[i].word,
                (ON_PATHS & (1u << i)) != 0 ? " files" : "");
        for (int o = 0; o < N_OPTIONS; o++) {
            if ((dt_options[o].commands & (1u << i)) != 0) {
                fprintf(out, " --%s", dt_options[o].name);
            }
        }
        fputs(" ;;\n", out);
    }
    fputs("  esac\n}\n\n", out);
}

static void print_value(FILE *out)
{
    fputs("_dtrain_value() { # OPTION: what its value is; nothing where the next word is not its "
          "value\n  case $1 in\n",
          out);
    for (int i = 0; i < N_OPTIONS; i++) {
        static const char *const kinds[] = {"any", "file", "folder", "key", "names "};
        const struct dt_option *o = &dt_options[i];
        if (o->takes == TAKES_NOTHING) {
            continue;
        }
        fprintf(out, "    --%s", o->name);
        if (o->letter != 0) {
            fprintf(out, " | -%c", o->letter);
        }
        /* One that may lack a value has it behind an equals sign alone. */
        fprintf(out, ") %secho %s",
                o->takes == TAKES_OPTIONAL_VALUE ? "[[ ${words[-1]} != *=* ]] || " : "",
                kinds[dt_words_source(o)]);
        if (dt_words_source(o) == SOURCE_NAMES) {
            dt_words_names(out, o);
        }
        fputs(" ;;\n", out);
    }
    fputs("  esac\n}\n\n", out);
}

static void print_keys(FILE *out)
{
    const struct dt_key_list list = dt_config_keys();
    fputs("_dtrain_keys() { # of the configuration\n  echo", out);
    for (int i = 0; i < list.n; i++) {
        fprintf(out, " \\\n    %s=", list.keys[i].path);
    }
    fputs("\n}\n\n_dtrain_key_values() { # KEY: the values that have names\n  case $1 in\n", out);
    for (int i = 0; i < list.n; i++) {
        if (dt_words_has_values(&list.keys[i])) {
            fprintf(out, "    %s) echo ", list.keys[i].path);
            dt_words_values(out, &list.keys[i]);
            fputs(" ;;\n", out);
        }
    }
    fputs("  esac\n}\n\n", out);
}

void dt_manual_bash(FILE *out)
{
    fputs("# shellcheck shell=bash\n# Completions of dtrain for bash, made by `cmake --build "
          "build/release --target docs`.\n\n",
          out);
    print_words(out);
    print_options(out);
    print_value(out);
    print_keys(out);
    dt_words_logic(out, "logic.bash");
}
