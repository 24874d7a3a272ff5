/* The parts of text.h and status.h that print: lines, words for a shell, the meaning of a status.
 */
#include <string.h>

#include "base/text.h"

void dt_text_print(FILE *out, const char *format, ...)
{
    char line[DT_LINE_SIZE];
    va_list args;
    va_start(args, format);
    dt_text_format(line, sizeof line - 1, format, args);
    va_end(args);
    const size_t n = strlen(line);
    memcpy(line + n, "\n", 2);
    fputs(line, out);
}

void dt_text_put_word(FILE *out, const char *word)
{
    static const char plain[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=.,:/@%";
    if (word[0] != '\0' && word[strspn(word, plain)] == '\0') {
        fputs(word, out);
        return;
    }
    fputc('\'', out);
    for (; *word != '\0'; word++) {
        if (*word == '\'') {
            fputs("'\\'", out);
        }
        fputc(*word, out);
    }
    fputc('\'', out);
}
