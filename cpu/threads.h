/* A small fixed pool of threads that process numbered work items. */
#ifndef DT_CPU_THREADS_H
#define DT_CPU_THREADS_H

#include "base/status.h"

struct dt_threads;

/* n_threads >= 1, including the caller: with 1 there is no pool. DT_NO_MEMORY: threads cannot be
 * started. */
enum dt_status dt_threads_open(int n_threads, struct dt_threads **out);
void dt_threads_close(struct dt_threads *threads);
int dt_threads_count(const struct dt_threads *threads);

/* Processes one item; `thread` is 0 (the caller) .. n_threads - 1. Which thread gets which item is
 * not fixed, so results must not depend on it. */
typedef void (*dt_threads_fn)(void *context, int item, int thread);

/* Runs items 0 .. n_items - 1 and returns when all are done. */
void dt_threads_run(struct dt_threads *threads, int n_items, dt_threads_fn fn, void *context);

#endif
