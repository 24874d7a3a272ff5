/* The table lies in memory that MPI shares between the ranks of a host. */
#include "dist/liveness/table.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "dist/ranks/comm_mpi.h"

#define PHASE_SIZE 32
#define HAS_LEFT UINT64_MAX /* as `seen_ns`: it waits in no collective any more */
#define STILL_ALIVE_S 1.0   /* a rank that waits is seen far more often */
#define OTHERS_FIRST_S                                                        \
    1.5 /* who sees no missing rank leaves it so long to those on other hosts \
         */

/* One rank's line in the table. Only that rank writes it. A reader may catch `phase` between two
 * names; its last byte is never written, so that it always ends. */
struct slot {
    _Atomic uint64_t n_started, n_done; /* of struct dt_comm */
    _Atomic uint64_t seen_ns;           /* when it last moved, on the host's monotonic clock */
    int32_t rank;
    char phase[PHASE_SIZE];
    _Atomic uint32_t claimed; /* of the first slot: errors of which a rank of this host tells */
};

struct table {
    struct dt_liveness base;
    MPI_Win window;
    int local_size, n_hosts; /* of struct dt_comm */
    struct slot *slots;      /* local_size, of this host's ranks */
    struct slot *mine;
};

_Static_assert(sizeof(struct slot) == 64, "one cache line a rank");

static struct table *table_of(const struct dt_comm *comm)
{
    return (struct table *)comm->liveness;
}

static void table_alive(struct dt_comm *comm, const char *begins, size_t n_bytes)
{
    struct slot *mine = table_of(comm)->mine;
    (void)begins, (void)n_bytes;
    atomic_store_explicit(&mine->n_started, comm->n_started, memory_order_relaxed);
    atomic_store_explicit(&mine->n_done, comm->n_done, memory_order_relaxed);
    atomic_store_explicit(&mine->seen_ns, dt_clock_ns(), memory_order_relaxed);
}

static void table_phase(struct dt_comm *comm, const char *name)
{
    snprintf(table_of(comm)->mine->phase, PHASE_SIZE - 1, "%s", name);
    table_alive(comm, NULL, 0);
}

static double unseen_s(const struct slot *slot)
{
    const uint64_t seen_ns =
        atomic_load(&slot->seen_ns); /* before the clock: it may move in between */
    const uint64_t now_ns = dt_clock_ns();
    return seen_ns < now_ns ? (double)(now_ns - seen_ns) * 1e-9 : 0;
}

/* ---- who holds everybody up. A rank that only waits shows signs of life, also one that still
 * waits in an earlier collective: so it is the one that has shown none for longest; if all have,
 * those that are in an earlier wait than others, for instance because a GPU hangs, whatever others
 * that wait for it have not entered; if there is none, the first that has not entered. Where there
 * are more hosts, the last two may still wait for a rank elsewhere, and are not to blame. */

static const struct slot *find_silent(const struct table *self)
{
    const struct slot *silent = NULL;
    for (int i = 0; i < self->local_size; i++) {
        const struct slot *slot = &self->slots[i];
        if (slot != self->mine &&
            (silent == NULL || atomic_load(&slot->seen_ns) < atomic_load(&silent->seen_ns))) {
            silent = slot;
        }
    }
    return silent != NULL && unseen_s(silent) > STILL_ALIVE_S ? silent : NULL;
}

static const struct slot *find_behind(const struct table *self)
{
    const struct slot *least = self->slots, *most = self->slots;
    for (int i = 1; i < self->local_size && self->n_hosts == 1; i++) {
        const struct slot *slot = &self->slots[i];
        least = atomic_load(&slot->n_done) < atomic_load(&least->n_done) ? slot : least;
        most = atomic_load(&slot->n_done) > atomic_load(&most->n_done) ? slot : most;
    }
    return atomic_load(&least->n_done) < atomic_load(&most->n_done) ? least : NULL;
}

/* Which of several ranks that are as far behind holds up the others, none of them can know. */
static void explain_behind(const struct table *self, const struct slot *behind, char *text,
                           size_t n_text)
{
    const uint64_t n_done = atomic_load(&behind->n_done);
    int n = 0, used = snprintf(text, n_text, "ranks ");
    for (int i = 0; i < self->local_size && used < (int)n_text; i++) {
        const struct slot *slot = &self->slots[i];
        if (atomic_load(&slot->n_done) == n_done) {
            used +=
                snprintf(text + used, n_text - (size_t)used, n++ > 0 ? ", %d" : "%d", slot->rank);
        }
    }
    if (n > 1 && used < (int)n_text) {
        snprintf(text + used, n_text - (size_t)used,
                 " wait in '%s' for a collective that other ranks have finished: one of them, its "
                 "device, or what connects them hangs",
                 behind->phase);
    } else {
        snprintf(text, n_text,
                 "rank %d waits in '%s' for a collective that other ranks have finished: it, its "
                 "device, or what connects it hangs",
                 behind->rank, behind->phase);
    }
}

static const struct slot *find_absent(const struct table *self, uint64_t sequence)
{
    for (int i = 0; i < self->local_size && self->n_hosts == 1; i++) {
        if (atomic_load(&self->slots[i].n_started) < sequence) {
            return &self->slots[i];
        }
    }
    return NULL;
}

static int count_missing(const struct table *self, uint64_t sequence)
{
    int n_missing = 0;
    for (int i = 0; i < self->local_size; i++) {
        n_missing += atomic_load(&self->slots[i].n_started) < sequence;
    }
    return n_missing;
}

static void explain_absent(const struct table *self, const struct slot *absent, uint64_t sequence,
                           char *text, size_t n_text)
{
    const double ago_s = unseen_s(absent);
    const int n_others = count_missing(self, sequence) - 1;
    if (atomic_load(&absent->seen_ns) == HAS_LEFT) {
        snprintf(text, n_text, "rank %d has not arrived; it has left, after '%s'", absent->rank,
                 absent->phase);
    } else if (n_others > 0) {
        snprintf(text, n_text,
                 "rank %d and %d more of this host have not arrived; rank %d was last seen %.0f s "
                 "ago in '%s'",
                 absent->rank, n_others, absent->rank, ago_s, absent->phase);
    } else {
        snprintf(text, n_text, "rank %d has not arrived; it was last seen %.0f s ago in '%s'",
                 absent->rank, ago_s, absent->phase);
    }
}

static bool is_saving(const struct slot *slot)
{
    return strcmp(slot->phase, DT_PHASE_SAVING) == 0;
}

/* `culprit`: NULL: not seen from here. */
static double more_s(const struct dt_comm *comm, const struct slot *culprit)
{
    const bool saves = is_saving(table_of(comm)->mine) &&
                       (culprit == NULL || (culprit->rank == 0 && is_saving(culprit)));
    return (saves ? (DT_SAVING_LIMITS - 1) * comm->timeout_s : 0) +
           (culprit == NULL ? OTHERS_FIRST_S : 0);
}

static double table_explain(struct dt_comm *comm, const struct dt_request *request, char *text,
                            size_t n_text)
{
    const struct table *self = table_of(comm);
    const uint64_t sequence = request->sequence;
    const struct slot *silent = find_silent(self), *behind = find_behind(self),
                      *absent = find_absent(self, sequence);
    comm->silent = silent != NULL ? silent->rank : -1;
    if (silent != NULL && atomic_load(&silent->n_started) < sequence) {
        explain_absent(self, silent, sequence, text, n_text);
    } else if (silent != NULL) {
        snprintf(text, n_text, "rank %d arrived but has not moved for %.0f s, in '%s'",
                 silent->rank, unseen_s(silent), silent->phase);
    } else if (behind != NULL) {
        explain_behind(self, behind, text, n_text);
    } else if (absent != NULL) {
        explain_absent(self, absent, sequence, text, n_text);
    } else if (comm->n_hosts > 1) {
        snprintf(
            text, n_text,
            "all ranks of this host wait; one on another host, or the network, does not answer");
        return more_s(comm, NULL);
    } else {
        snprintf(text, n_text, "all ranks wait in it; what connects them does not answer");
        return 0;
    }
    return more_s(comm, silent != NULL ? silent : behind != NULL ? behind : absent);
}

static bool table_claim(struct dt_comm *comm, bool agreed)
{
    const uint32_t mine = agreed ? 2 : 1;
    return (atomic_fetch_or(&table_of(comm)->slots[0].claimed, mine) & mine) == 0;
}

static void table_close(struct dt_liveness *liveness)
{
    struct table *self = (struct table *)liveness;
    if (self->mine != NULL) {
        atomic_store(&self->mine->seen_ns, HAS_LEFT);
    }
    if (self->window != MPI_WIN_NULL) {
        MPI_Win_free(&self->window);
    }
    free(self);
}

/* The first rank of the host owns the table; the others look it up. */
static int open_slots(struct dt_comm *comm, struct table *self)
{
    const MPI_Comm host = dt_mpi_comm_of(comm)->host;
    const MPI_Aint n_bytes =
        comm->local_rank == 0 ? (MPI_Aint)sizeof(struct slot) * comm->local_size : 0;
    int code =
        MPI_Win_allocate_shared(n_bytes, 1, MPI_INFO_NULL, host, &self->slots, &self->window);
    if (code != MPI_SUCCESS) {
        return code;
    }
    MPI_Aint size;
    int unit;
    code = MPI_Win_shared_query(self->window, 0, &size, &unit, &self->slots);
    if (code != MPI_SUCCESS) {
        return code;
    }
    self->mine = &self->slots[comm->local_rank];
    memset(self->mine, 0, sizeof *self->mine);
    self->mine->rank = comm->rank;
    return MPI_SUCCESS;
}

enum dt_status dt_liveness_open(struct dt_comm *comm)
{
    struct table *self = calloc(1, sizeof *self);
    if (self == NULL) {
        return dt_error(DT_NO_MEMORY, "no memory for the communicator");
    }
    *self = (struct table){.base = {.open = dt_liveness_open,
                                    .phase = table_phase,
                                    .alive = table_alive,
                                    .explain = table_explain,
                                    .claim = table_claim,
                                    .close = table_close},
                           .window = MPI_WIN_NULL,
                           .local_size = comm->local_size,
                           .n_hosts = comm->n_hosts};
    const int code = open_slots(comm, self);
    if (code != MPI_SUCCESS) {
        table_close(&self->base);
        return dt_comm_mpi_error(code, "opening the communicator");
    }
    comm->liveness = &self->base;
    dt_comm_phase(comm, "start");
    /* Everybody's line is in place before anybody may read it. */
    return dt_comm_barrier(comm, "first barrier");
}
