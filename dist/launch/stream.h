/* Standard output and standard error whose reader is slow, has stopped (Ctrl-S, `| less`), or is
 * gone. A process that prints must not wait for its reader: other ranks would wait with it. The
 * descriptors are shared with other processes, so they never become non-blocking; where one is a
 * pipe or a terminal, it is opened once more instead. */
#ifndef DT_DIST_LAUNCH_STREAM_H
#define DT_DIST_LAUNCH_STREAM_H

#include <stdbool.h>
#include <stddef.h>

/* From now on, what the reader does not take at once is kept in memory when stdout or stderr is
 * printed to. Of stderr 64 KiB are kept; then older lines are dropped, and a line says so. Of
 * stdout 1 MiB is kept; then printing waits. Once, before anything is printed. */
void dt_stream_open(void);

/* Waits until the readers have everything, for a second at most. False: the reader of stdout does
 * not have everything. */
#define DT_STREAM_ENDS_MS 1000
bool dt_stream_flush(void);

/* The same for the reader of stdout alone, until `stops` says so. */
bool dt_stream_wait(bool (*stops)(void));

/* Writes to any descriptor, `limit_ms` at most (-1: no limit); returns the number of bytes written.
 * For what bypasses stdio. Safe in a signal handler. */
size_t dt_stream_write(int fd, const char *text, size_t n, int limit_ms);

#endif
