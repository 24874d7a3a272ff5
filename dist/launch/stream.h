/* Printing to a reader that is slow, has stopped (Ctrl-S, `| less`), or is gone. A process must not
 * wait for its reader: other ranks would wait with it. Other processes share the descriptors, so
 * these never become non-blocking; a pipe or a terminal is opened once more instead. */
#ifndef DT_DIST_LAUNCH_STREAM_H
#define DT_DIST_LAUNCH_STREAM_H

#include <stdbool.h>
#include <stddef.h>

/* From now on, text that the reader does not take at once is kept in memory: 64 KiB of stderr, then
 * older lines are dropped and a line says so; 1 MiB of stdout, then printing waits. Call it once,
 * before anything is printed. */
void dt_stream_open(void);

/* Waits until the readers have everything, for a second at most. False: the reader of stdout does
 * not have everything. */
#define DT_STREAM_ENDS_MS 1000
bool dt_stream_flush(void);

/* The same for the reader of stdout alone, without a limit, until `stops` returns true. */
bool dt_stream_wait(bool (*stops)(void));

/* Writes to any descriptor without stdio, for at most `limit_ms` (-1: no limit), and returns the
 * number of bytes written. Safe in a signal handler. */
size_t dt_stream_write(int fd, const char *text, size_t n, int limit_ms);

#endif
