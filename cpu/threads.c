#include "cpu/threads.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

struct worker {
    struct dt_threads *threads;
    pthread_t handle;
    int number;
};

struct dt_threads {
    int n_workers; /* beside the caller */
    struct worker *workers;
    pthread_mutex_t lock;
    pthread_cond_t work, done;
    unsigned long job; /* counts up; guarded by the lock, as the next four are */
    int n_busy;
    bool closing;
    dt_threads_fn fn;
    void *context;
    int n_items;
    atomic_int next_item;
};

static void run_items(struct dt_threads *threads, int number)
{
    for (;;) {
        const int item = atomic_fetch_add_explicit(&threads->next_item, 1, memory_order_relaxed);
        if (item >= threads->n_items) {
            return;
        }
        threads->fn(threads->context, item, number);
    }
}

static void *worker_main(void *context)
{
    const struct worker *self = context;
    struct dt_threads *threads = self->threads;
    unsigned long seen = 0;
    pthread_mutex_lock(&threads->lock);
    for (;;) {
        while (threads->job == seen && !threads->closing) {
            pthread_cond_wait(&threads->work, &threads->lock);
        }
        if (threads->closing) {
            break;
        }
        seen = threads->job;
        pthread_mutex_unlock(&threads->lock);
        run_items(threads, self->number);
        pthread_mutex_lock(&threads->lock);
        DT_ASSERT(threads->n_busy > 0);
        if (--threads->n_busy == 0) {
            pthread_cond_signal(&threads->done);
        }
    }
    pthread_mutex_unlock(&threads->lock);
    return NULL;
}

enum dt_status dt_threads_open(int n_threads, struct dt_threads **out)
{
    DT_ASSERT(n_threads >= 1);
    struct dt_threads *threads = calloc(1, sizeof *threads);
    struct worker *workers = calloc((size_t)n_threads, sizeof *workers);
    if (threads == NULL || workers == NULL) {
        free(threads);
        free(workers);
        return dt_error(DT_NO_MEMORY, "out of memory while starting %d threads", n_threads);
    }
    threads->workers = workers;
    pthread_mutex_init(&threads->lock, NULL);
    pthread_cond_init(&threads->work, NULL);
    pthread_cond_init(&threads->done, NULL);
    for (int i = 0; i < n_threads - 1; i++) {
        workers[i] = (struct worker){.threads = threads, .number = i + 1};
        if (pthread_create(&workers[i].handle, NULL, worker_main, &workers[i]) != 0) {
            dt_threads_close(threads);
            return dt_error(DT_NO_MEMORY,
                            "thread %d of %d cannot be started (use fewer threads, or raise the "
                            "limit: ulimit -u)",
                            i + 2, n_threads);
        }
        threads->n_workers++;
    }
    *out = threads;
    return DT_OK;
}

void dt_threads_close(struct dt_threads *threads)
{
    if (threads == NULL) {
        return;
    }
    pthread_mutex_lock(&threads->lock);
    threads->closing = true;
    DT_ASSERT(threads->n_busy == 0);
    pthread_cond_broadcast(&threads->work);
    pthread_mutex_unlock(&threads->lock);
    for (int i = 0; i < threads->n_workers; i++) {
        pthread_join(threads->workers[i].handle, NULL);
    }
    pthread_cond_destroy(&threads->done);
    pthread_cond_destroy(&threads->work);
    pthread_mutex_destroy(&threads->lock);
    free(threads->workers);
    free(threads);
}

int dt_threads_count(const struct dt_threads *threads)
{
    return threads->n_workers + 1;
}

void dt_threads_run(struct dt_threads *threads, int n_items, dt_threads_fn fn, void *context)
{
    if (threads->n_workers == 0 || n_items <= 1) {
        for (int i = 0; i < n_items; i++) {
            fn(context, i, 0);
        }
        return;
    }
    pthread_mutex_lock(&threads->lock);
    DT_ASSERT(threads->n_busy == 0 && !threads->closing);
    threads->fn = fn;
    threads->context = context;
    threads->n_items = n_items;
    threads->n_busy = threads->n_workers;
    atomic_store_explicit(&threads->next_item, 0, memory_order_relaxed);
    threads->job++;
    pthread_cond_broadcast(&threads->work);
    pthread_mutex_unlock(&threads->lock);
    run_items(threads, 0);
    pthread_mutex_lock(&threads->lock);
    while (threads->n_busy > 0) {
        pthread_cond_wait(&threads->done, &threads->lock);
    }
    pthread_mutex_unlock(&threads->lock);
}
