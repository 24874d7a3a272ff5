/* Parts of several checks: texts of rows, blame, memory and exchanges. */
#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "ops/accept/rows.h"

void dt_accept_say(struct dt_accept_row *row, enum dt_accept_verdict verdict, const char *format,
                   ...)
{
    va_list args;
    row->verdict = verdict;
    va_start(args, format);
    vsnprintf(row->text, sizeof row->text, format, args);
    va_end(args);
}

void dt_accept_fail(struct dt_acceptance *a, struct dt_accept_row *row, int rank, bool whole_host,
                    const char *format, ...)
{
    va_list args;
    for (int r = 0; r < a->world->size; r++) {
        a->cells[r].failed |=
            r == rank || (whole_host && dt_facts_same_host(&a->ranks[r], &a->ranks[rank]));
    }
    if (row->verdict != DT_ACCEPT_FAIL || row->text[0] == '\0') {
        row->verdict = DT_ACCEPT_FAIL;
        va_start(args, format);
        vsnprintf(row->text, sizeof row->text, format, args);
        va_end(args);
    }
}

enum dt_status dt_accept_alloc(struct dt_acceptance *a, size_t n, size_t n_bytes, const char *what,
                               void **out)
{
    assert(a->n_memory < DT_ACCEPT_MEMORY);
    const enum dt_status s = dt_world_alloc(a->world, n, n_bytes, what, out);
    if (s == DT_OK) {
        a->memory[a->n_memory++] = *out;
    }
    return s;
}

enum dt_status dt_accept_gather(struct dt_acceptance *a, const void *mine, size_t n_bytes,
                                const char *what, void **out)
{
    snprintf(a->exchange, sizeof a->exchange, "exchange of %s", what);
    DT_TRY(dt_accept_alloc(a, (size_t)a->world->size, n_bytes, what, out));
    return dt_comm_allgather(a->world->comm, mine, *out, n_bytes, a->exchange);
}

void dt_accept_free(struct dt_acceptance *a)
{
    while (a->n_memory > 0) {
        free(a->memory[--a->n_memory]);
    }
}

enum dt_status dt_accept_backend_open(const struct dt_acceptance *a, struct dt_backend **out)
{
    const struct dt_backend_options options = {.n_threads = 1, .local_rank = a->world->local_rank};
    return a->device.backend->open(&options, out);
}
