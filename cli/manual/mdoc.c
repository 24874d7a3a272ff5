#include "cli/manual/mdoc.h"

#include <ctype.h>
#include <string.h>

#include "base/version.h"

#define WIDTH 79
#define DATE "November 22, 2026" /* of the last release or change */

void dt_mdoc_head(FILE *out, const char *name, int section, const char *what)
{
    fprintf(out,
            ".\\\" Made by `cmake --build build/release --target docs` from the tables of dtrain "
            "%s's source.\n"
            ".Dd %s\n.Dt ",
            dt_version, DATE);
    for (const char *c = name; *c != '\0'; c++) {
        fputc(toupper((unsigned char)*c), out);
    }
    fprintf(out, " %d\n.Os\n.Sh NAME\n.Nm %s\n.Nd %s\n", section, name, what);
}

/* One character as roff reads it. */
static void put(FILE *out, char c)
{
    fputs(c == '\\' ? "\\e" : c == '-' ? "\\-" : (const char[]){c, '\0'}, out);
}

/* One word of prose; `code` is whether it lies between backticks, and changes with them. */
static void put_word(FILE *out, const char *word, int n, bool *code)
{
    const bool option = word[0] == '-';
    for (int i = 0; i < n; i++) {
        if (word[i] == '`') {
            *code = !*code;
            fputs(*code ? "\\fB" : "\\fR", out);
        } else if (word[i] == '-' && !*code && !option) {
            fputc('-', out); /* a hyphen, not what is typed */
        } else {
            put(out, word[i]);
        }
    }
}

/* Bytes of the word with what roff adds, at most. */
static int roff_bytes(const char *word, int n)
{
    int bytes = n;
    for (int i = 0; i < n; i++) {
        bytes += word[i] == '`' ? 2 : word[i] == '-' || word[i] == '\\';
    }
    return bytes;
}

static bool ends_sentence(const char *word, int n)
{
    const int stop = word[n - 1] == ')' ? n - 2 : n - 1;
    return stop > 0 && word[stop] == '.' && word[stop - 1] != '.';
}

static void put_words(FILE *out, const char *text, const char *end)
{
    bool code = false, ended = false;
    int at = 0;
    while (text < end) {
        const int n = (int)strcspn(text, " \n"), bytes = roff_bytes(text, n);
        if (at > 0 && (at + 1 + bytes > WIDTH || ended)) {
            fputc('\n', out);
            at = 0;
        }
        fputs(at > 0 ? " " : text[0] == '.' || text[0] == '\'' ? "\\&" : "", out);
        put_word(out, text, n, &code);
        at += bytes + 1;
        ended = ends_sentence(text, n);
        text += n + 1;
    }
}

/* Not a word that is explained, as in "shard: each rank ...". */
static bool begins_sentence(const char *text)
{
    const size_t n = strcspn(text, " ");
    return n > 0 && text[n - 1] != ':';
}

void dt_mdoc_text(FILE *out, const char *text, bool sentence)
{
    while (text[0] != '\0') {
        const char *end = text + strcspn(text, "\n");
        const bool stop = sentence && end[-1] != ':' && !ends_sentence(text, (int)(end - text));
        if (sentence && begins_sentence(text)) {
            fputc(toupper((unsigned char)*text++), out);
        }
        put_words(out, text, end);
        fputs(stop ? ".\n" : "\n", out);
        fputs(*end == '\n' ? ".Pp\n" : "", out);
        text = end + (*end == '\n');
        sentence = false;
    }
}

void dt_mdoc_usage(FILE *out, const char *usage)
{
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._";
    fputs(".It ", out);
    while (*usage != '\0') {
        const size_t n = strspn(usage, letters), space = strspn(usage, " \n");
        if (n > 0) {
            fputs(isupper((unsigned char)usage[0]) ? "\\fI" : "\\fB", out);
            for (size_t i = 0; i < n; i++) {
                put(out, usage[i]);
            }
            fputs("\\fR", out);
        } else {
            fputc(space > 0 ? ' ' : usage[0], out);
        }
        usage += n > 0 ? n : space > 0 ? space : 1;
    }
    fputc('\n', out);
}

void dt_mdoc_literal(FILE *out, const char *lines)
{
    fputs(".Bd -literal -offset indent\n", out);
    for (; *lines != '\0'; lines++) {
        put(out, *lines);
    }
    fputs(".Ed\n", out);
}

void dt_mdoc_value(FILE *out, const char *value)
{
    fprintf(out, " %s ", isupper((unsigned char)value[0]) ? "Ar" : "Cm");
    for (; *value != '\0'; value++) {
        fprintf(out, *value == '|' ? " %c " : "%c", *value);
    }
}
