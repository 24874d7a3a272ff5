/* The terminal's abilities. */
#ifndef DT_CLI_TERMINAL_H
#define DT_CLI_TERMINAL_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* MPICH's mpirun, if it started this process on its own host; else 0. */
pid_t dt_terminal_launcher(void);

/* The words of that mpirun's command line, each with a NUL behind it; the caller frees them. NULL:
 * there is none, or no memory. */
char *dt_terminal_launcher_words(size_t *n_bytes);

/* Columns of the terminal that shows this stream (STDOUT_FILENO or STDERR_FILENO), also by way of
 * mpirun on this host. Asked anew each time: it may have been resized. 0: it is no terminal. */
int dt_terminal_width(int stream);

int dt_terminal_height(int stream); /* in lines; 24 if there is no terminal */
bool dt_terminal_utf8(void);        /* whether the locale has UTF-8 */

/* Sequences that move the cursor of a terminal. */
#define DT_TERMINAL_CLEAR "\r\033[K"            /* the whole line */
#define DT_TERMINAL_REST "\033[K"               /* the rest of the line */
#define DT_TERMINAL_BELOW "\033[J"              /* and all lines below */
#define DT_TERMINAL_HOME "\033[H"               /* to the first line */
#define DT_TERMINAL_OPEN "\033[?1049h\033[?25l" /* a separate screen, without a cursor */
#define DT_TERMINAL_CLOSE "\033[?25h\033[?1049l"

#define DT_TERMINAL_LIVE_S 0.1 /* between two live lines */

/* A live line on stderr, for a command that takes more than two seconds: on a terminal alone, cut
 * to its width; the next one replaces it, at most ten in a second. NULL takes it away: before any
 * other line on stderr or stdout, and at the end. One rank draws it; any rank may take it away. */
void dt_terminal_live(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* "×" if the locale has UTF-8, else "x". */
const char *dt_terminal_times(void);

#endif
