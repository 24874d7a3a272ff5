#include "cli/args.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "cli/terminal.h"
#include "dist/launch/launch.h"

/* Whether the last words are the program's arguments; its own name may differ. */
static bool ends_in(const char *words, size_t n_bytes, int argc, char *const *argv)
{
    size_t at = n_bytes;
    for (int i = argc - 1; i > 0; i--) {
        const size_t n = strlen(argv[i]) + 1;
        if (n >= at || memcmp(words + at - n, argv[i], n) != 0 || words[at - n - 1] != '\0') {
            return false;
        }
        at -= n;
    }
    return at > 0;
}

static void put_word(FILE *out, const char *word, bool first)
{
    fputs(first ? "" : " ", out);
    dt_text_put_word(out, word);
}

static void put_line(FILE *out, int argc, char *const *argv)
{
    const int size = dt_launch_number(DT_LAUNCH_SIZE);
    if (size > 1) {
        fprintf(out, "%s %d ", getenv("SLURM_STEP_ID") != NULL ? "srun -n" : "mpirun -np", size);
    }
    for (int i = 0; i < argc; i++) {
        put_word(out, argv[i], i == 0);
    }
}

char *dt_launch_line(int argc, char *const *argv)
{
    char *text = NULL;
    size_t n = 0, n_words = 0;
    FILE *out = open_memstream(&text, &n);
    if (out == NULL) {
        return NULL;
    }
    char *words = dt_terminal_launcher_words(&n_words);
    if (words != NULL && ends_in(words, n_words, argc, argv)) {
        for (size_t at = 0; at < n_words; at += strlen(words + at) + 1) {
            put_word(out, words + at, at == 0);
        }
    } else {
        put_line(out, argc, argv);
    }
    free(words);
    dt_text_close(out, &text);
    return text;
}
