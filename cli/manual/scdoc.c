#include "cli/manual/manual.h"

#include <ctype.h>
#include <string.h>

void dt_scdoc_head(FILE *out, const char *name, int section, const char *about)
{
    fprintf(out, "%s(%d)\n\n# NAME\n\n%s - %s\n\n", name, section, name, about);
}

static void put(FILE *out, char c)
{
    fprintf(out, strchr("\\*_#|[].-+<>", c) != NULL ? "\\%c" : "%c", c);
}

/* Not a word that is explained, as in "shard: each rank ...". */
static bool begins_sentence(const char *text)
{
    const size_t n = strcspn(text, " ");
    return n > 0 && text[n - 1] != ':';
}

void dt_scdoc_text(FILE *out, bool indented, const char *text, bool sentence)
{
    while (text[0] != '\0') {
        const char *end = text + strcspn(text, "\n");
        const bool stop = sentence && end[-1] != ':' && end[-1] != '.' &&
                          !(end - text > 1 && end[-1] == ')' && end[-2] == '.');
        fputs(indented ? "\t" : "", out);
        if (sentence && begins_sentence(text)) {
            put(out, (char)toupper((unsigned char)*text++));
        }
        for (; text < end; text++) {
            if (*text == '`') {
                fputc('*', out);
            } else {
                put(out, *text);
            }
        }
        fputs(stop ? ".\n\n" : "\n\n", out);
        text = end + (*end == '\n');
        sentence = false;
    }
}

void dt_scdoc_name(FILE *out, const char *name, bool variable)
{
    fputc(variable ? '_' : '*', out);
    for (; *name != '\0'; name++) {
        put(out, *name);
    }
    fputc(variable ? '_' : '*', out);
}

void dt_scdoc_literal(FILE *out, const char *lines)
{
    const size_t n = strlen(lines);
    fputs("```\n", out);
    for (const char *c = lines; *c != '\0'; c++) {
        fputs(*c == '\\' ? "\\\\" : (const char[]){*c, '\0'}, out);
    }
    fprintf(out, "%s```\n\n", n > 0 && lines[n - 1] == '\n' ? "" : "\n");
}
