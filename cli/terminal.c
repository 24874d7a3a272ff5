#include "cli/terminal.h"

#include <fcntl.h>
#include <langinfo.h>
#include <locale.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/text.h"
#include "dist/launch/launch.h"
#include "dist/launch/launcher.h"

#define USUAL_WIDTH 80
#define USUAL_HEIGHT 24

static int width_of(int fd)
{
    struct winsize size;
    if (fd < 0 || isatty(fd) != 1) {
        return 0;
    }
    return ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : USUAL_WIDTH;
}

/* Rank, wrappers, proxy, mpirun is the line of descent on its host. */
pid_t dt_terminal_launcher(void)
{
    struct dt_process proxy;
    const bool here = getenv("HYDI_CONTROL_FD") != NULL;
    const int rank = dt_launch_number(DT_LAUNCH_RANK);
    return here && dt_process_read(dt_launcher_of(getpid(), rank), &proxy) ? proxy.parent : 0;
}

char *dt_terminal_launcher_words(size_t *n_bytes)
{
    const pid_t launcher = dt_terminal_launcher();
    char path[48], *words = NULL;
    snprintf(path, sizeof path, "/proc/%d/cmdline", (int)launcher);
    FILE *file = launcher > 0 ? fopen(path, "re") : NULL;
    FILE *out = file != NULL ? open_memstream(&words, n_bytes) : NULL;
    for (int c; out != NULL && (c = fgetc(file)) != EOF;) {
        fputc(c, out);
    }
    dt_text_close(out, &words);
    if (file != NULL) {
        fclose(file);
    }
    return words;
}

/* Under mpirun our streams are pipes, and mpirun's own streams show the output. */
int dt_terminal_width(int stream)
{
    const pid_t launcher = dt_terminal_launcher();
    if (isatty(stream) == 1 || launcher == 0 || stream < 0) { /* below 0: a stream in memory */
        return width_of(stream);
    }
    char path[48];
    snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)launcher, stream);
    const int fd = open(path, O_WRONLY | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
    const int width = width_of(fd);
    if (fd >= 0) {
        close(fd);
    }
    return width;
}

bool dt_terminal_utf8(void)
{
    const locale_t locale = newlocale(LC_CTYPE_MASK, "", (locale_t)0);
    const bool utf8 = locale != (locale_t)0 && strcmp(nl_langinfo_l(CODESET, locale), "UTF-8") == 0;
    if (locale != (locale_t)0) {
        freelocale(locale);
    }
    return utf8;
}

int dt_terminal_height(int stream)
{
    struct winsize size;
    return isatty(stream) == 1 && ioctl(stream, TIOCGWINSZ, &size) == 0 && size.ws_row > 0
               ? size.ws_row
               : USUAL_HEIGHT;
}

void dt_terminal_live(const char *format, ...)
{
    static double next_s;
    const int width =
        format != NULL && dt_clock_s() >= next_s ? dt_terminal_width(STDERR_FILENO) : 0;
    char line[256];
    va_list values;
    if (format == NULL) {
        fputs(dt_terminal_width(STDERR_FILENO) > 0 ? DT_TERMINAL_CLEAR : "", stderr);
        fflush(stderr); /* before the next line, also of stdout */
    } else if (width > 0) {
        va_start(values, format);
        vsnprintf(line, sizeof line, format, values);
        va_end(values);
        fprintf(stderr, DT_TERMINAL_CLEAR "%.*s", width - 1, line);
        fflush(stderr);
        next_s = dt_clock_s() + DT_TERMINAL_LIVE_S;
    }
}

const char *dt_terminal_times(void)
{
    return dt_terminal_utf8() ? "×" : "x";
}
