/* How the program was launched, so that it can be done again. */
#ifndef DT_CLI_LAUNCH_LINE_H
#define DT_CLI_LAUNCH_LINE_H

/* The program's line as a shell reads it, behind that of the mpirun that started it where that can
 * be known: it ran on this host, and its line ends in the program's. Else several ranks have the
 * plainest line that makes so many. The caller frees it; NULL: out of memory. */
char *dt_launch_line(int argc, char *const *argv);

#endif
