#include "dist/liveness/table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "dist/ranks/comm_private.h"

#define HAS_LEFT UINT64_MAX     /* as `seen_ns`: the rank waits in no collective any more */
#define STILL_ALIVE_S 1.0       /* a rank that waits is seen far more often */
#define OTHER_HOSTS_FIRST_S 1.5 /* where no rank of this host is late, other hosts report first */
#define RELAXED memory_order_relaxed

struct dt_liveness_table *dt_liveness_table_of(const struct dt_comm *comm)
{
    return comm->private->table;
}

/* ---- the rank writes its row */

static void note(struct dt_liveness_table *self, enum dt_flight_kind kind, const char *name,
                 uint64_t sequence, size_t n_bytes)
{
    struct dt_liveness_row *row = self->mine;
    uint64_t words[DT_EVENT_WORDS];
    const uint64_t n = atomic_load_explicit(&row->n_events, RELAXED);
    struct dt_flight_event event = {.ns = dt_clock_ns(),
                                    .kind = kind,
                                    .step = atomic_load_explicit(&row->step, RELAXED),
                                    .sequence = sequence,
                                    .n_bytes = n_bytes};
    memccpy(event.name, name, '\0', sizeof event.name - 1);
    memcpy(words, &event, sizeof words);
    for (size_t i = 0; i < DT_EVENT_WORDS; i++) {
        atomic_store_explicit(&row->events[n % DT_EVENT_SLOTS][i], words[i], memory_order_release);
    }
    atomic_store_explicit(&row->n_events, n + 1, memory_order_release);
}

static void table_alive(struct dt_comm *comm, const char *begins, size_t n_bytes)
{
    struct dt_liveness_table *self = dt_liveness_table_of(comm);
    struct dt_liveness_row *mine = self->mine;
    if (begins != NULL) {
        note(self, DT_FLIGHT_COLLECTIVE, begins, comm->private->n_started, n_bytes);
    }
    atomic_store_explicit(&mine->n_started, comm->private->n_started, RELAXED);
    atomic_store_explicit(&mine->n_done, comm->private->n_done, RELAXED);
    atomic_store_explicit(&mine->seen_ns, dt_clock_ns(), RELAXED);
}

/* The phase of the steps comes with each step, and is an event once. */
static void table_phase(struct dt_comm *comm, const char *name)
{
    struct dt_liveness_table *self = dt_liveness_table_of(comm);
    if (name != atomic_load_explicit(&self->phase, RELAXED)) {
        note(self, DT_FLIGHT_PHASE, name, 0, 0);
        snprintf(self->mine->phase, DT_PHASE_SIZE - 1, "%s", name);
        atomic_store(&self->phase, name);
    }
    table_alive(comm, NULL, 0);
}

void dt_liveness_step(struct dt_liveness_table *table, uint64_t step)
{
    atomic_store_explicit(&table->mine->step, step, RELAXED);
    note(table, DT_FLIGHT_STEP, "step", 0, 0);
}

/* ---- any thread reads it */

uint64_t dt_liveness_seen_ns(const struct dt_liveness_table *table)
{
    return atomic_load(&table->mine->seen_ns);
}

uint64_t dt_liveness_n_moves(const struct dt_liveness_table *table)
{
    return atomic_load(&table->mine->n_events) + atomic_load(&table->mine->n_done);
}

const char *dt_liveness_phase(const struct dt_liveness_table *table)
{
    return atomic_load(&table->phase);
}

bool dt_liveness_read_event(const struct dt_liveness_row *row, uint64_t index,
                            struct dt_flight_event *out)
{
    uint64_t words[DT_EVENT_WORDS];
    for (size_t i = 0; i < DT_EVENT_WORDS; i++) {
        words[i] =
            atomic_load_explicit(&row->events[index % DT_EVENT_SLOTS][i], memory_order_acquire);
    }
    memcpy(out, words, sizeof words);
    return index + DT_EVENT_SLOTS > atomic_load(&row->n_events) &&
           out->kind <= DT_FLIGHT_COLLECTIVE;
}

void dt_liveness_last(const struct dt_liveness_table *table, struct dt_flight_event *out)
{
    const uint64_t n = atomic_load(&table->mine->n_events);
    if (n == 0 || !dt_liveness_read_event(table->mine, n - 1, out)) {
        *out = (struct dt_flight_event){.ns = 0};
    }
}

static double unseen_s(const struct dt_liveness_row *row)
{
    const uint64_t seen_ns = atomic_load(&row->seen_ns); /* first: the rank may move meanwhile */
    const uint64_t now_ns = dt_clock_ns();
    return seen_ns < now_ns ? (double)(now_ns - seen_ns) * 1e-9 : 0;
}

/* ---- which rank blocks the others. A rank that waits shows signs of life, also in an earlier
 * collective. So the late rank is the rank that has shown none for longest. If all have shown some,
 * it is a rank that waits in an earlier collective than others, for instance because its GPU hangs.
 * If all wait in the same collective, it is the first rank that has not entered it. With several
 * hosts the last two rules may find a rank that itself waits for another host, so they do not
 * apply. */

static const struct dt_liveness_row *find_silent(const struct dt_liveness_table *self)
{
    const struct dt_liveness_row *silent = NULL;
    for (int i = 0; i < self->n_rows; i++) {
        const struct dt_liveness_row *row = &self->rows[i];
        if (row != self->mine &&
            (silent == NULL || atomic_load(&row->seen_ns) < atomic_load(&silent->seen_ns))) {
            silent = row;
        }
    }
    return silent != NULL && unseen_s(silent) > STILL_ALIVE_S ? silent : NULL;
}

static const struct dt_liveness_row *find_behind(const struct dt_liveness_table *self)
{
    const struct dt_liveness_row *least = self->rows, *most = self->rows;
    for (int i = 1; i < self->n_rows && self->sees_all; i++) {
        const struct dt_liveness_row *row = &self->rows[i];
        least = atomic_load(&row->n_done) < atomic_load(&least->n_done) ? row : least;
        most = atomic_load(&row->n_done) > atomic_load(&most->n_done) ? row : most;
    }
    return atomic_load(&least->n_done) < atomic_load(&most->n_done) ? least : NULL;
}

/* Where several ranks are equally late, no rank can know which of them blocks the others. */
static void explain_behind(const struct dt_liveness_table *self,
                           const struct dt_liveness_row *behind, char *text, size_t n_text)
{
    const uint64_t n_done = atomic_load(&behind->n_done);
    int n = 0, used = snprintf(text, n_text, "ranks ");
    for (int i = 0; i < self->n_rows && used < (int)n_text; i++) {
        const struct dt_liveness_row *row = &self->rows[i];
        if (atomic_load(&row->n_done) == n_done) {
            used +=
                snprintf(text + used, n_text - (size_t)used, n++ > 0 ? ", %d" : "%d", row->rank);
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

static const struct dt_liveness_row *find_absent(const struct dt_liveness_table *self,
                                                 uint64_t sequence)
{
    for (int i = 0; i < self->n_rows && self->sees_all; i++) {
        if (atomic_load(&self->rows[i].n_started) < sequence) {
            return &self->rows[i];
        }
    }
    return NULL;
}

static int count_missing(const struct dt_liveness_table *self, uint64_t sequence)
{
    int n_missing = 0;
    for (int i = 0; i < self->n_rows; i++) {
        n_missing += atomic_load(&self->rows[i].n_started) < sequence;
    }
    return n_missing;
}

static void explain_absent(const struct dt_liveness_table *self,
                           const struct dt_liveness_row *absent, uint64_t sequence, char *text,
                           size_t n_text)
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

static void explain_silent(const struct dt_liveness_table *self,
                           const struct dt_liveness_row *silent, uint64_t sequence, char *text,
                           size_t n_text)
{
    if (atomic_load(&silent->n_started) < sequence) {
        explain_absent(self, silent, sequence, text, n_text);
    } else {
        snprintf(text, n_text, "rank %d arrived but has not moved for %.0f s, in '%s'",
                 silent->rank, unseen_s(silent), silent->phase);
    }
}

void dt_liveness_name_silent(const struct dt_liveness_table *table, char *text, size_t n_text)
{
    const struct dt_liveness_row *silent = find_silent(table);
    text[0] = '\0';
    if (silent != NULL) {
        explain_silent(table, silent, atomic_load(&table->mine->n_done) + 1, text, n_text);
    }
}

bool dt_phase_is_long(const char *phase, int rank)
{
    return strcmp(phase, DT_PHASE_OPENING) == 0 ||
           (rank == 0 && strcmp(phase, DT_PHASE_SAVING) == 0);
}

/* The seconds that a wait has beyond its limit. `culprit`: NULL if no rank of this host is late. */
static double more_s(const struct dt_comm *comm, const struct dt_liveness_row *culprit)
{
    const bool lasts = dt_phase_is_long(dt_liveness_table_of(comm)->mine->phase, 0) &&
                       (culprit == NULL || dt_phase_is_long(culprit->phase, culprit->rank));
    return (lasts ? (DT_LONG_LIMITS - 1) * dt_comm_timeout_s(comm) : 0) +
           (culprit == NULL ? OTHER_HOSTS_FIRST_S : 0);
}

static double table_explain(struct dt_comm *comm, const struct dt_request *request, char *text,
                            size_t n_text)
{
    const struct dt_liveness_table *self = dt_liveness_table_of(comm);
    const uint64_t sequence = request->sequence;
    const struct dt_liveness_row *silent = find_silent(self), *behind = find_behind(self),
                                 *absent = find_absent(self, sequence);
    comm->private->silent = silent != NULL ? silent->rank : -1;
    if (silent != NULL) {
        explain_silent(self, silent, sequence, text, n_text);
    } else if (behind != NULL) {
        explain_behind(self, behind, text, n_text);
    } else if (absent != NULL) {
        explain_absent(self, absent, sequence, text, n_text);
    } else if (comm->n_hosts > 1) {
        snprintf(
            text, n_text,
            "all ranks of this host wait; one on another host, or the network, does not answer");
        return more_s(comm, NULL);
    } else if (self->sees_all) {
        snprintf(text, n_text, "all ranks wait in it; what connects them does not answer");
        return more_s(comm, self->mine); /* one may have come just now */
    } else {
        return 0; /* these ranks share no memory: `text` stays */
    }
    return more_s(comm, silent != NULL ? silent : behind != NULL ? behind : absent);
}

static bool table_claim(struct dt_comm *comm, bool agreed)
{
    const uint32_t mine = agreed ? 2 : 1;
    return (atomic_fetch_or(&dt_liveness_table_of(comm)->rows[0].claimed, mine) & mine) == 0;
}

static void table_close(struct dt_comm *comm)
{
    struct dt_liveness_table *self = comm->private->table;
    atomic_store(&self->mine->seen_ns, HAS_LEFT);
    dt_host_memory_close(&self->memory);
    free(self);
}

static const struct dt_liveness_ops table_ops = {.open = dt_liveness_open,
                                                 .phase = table_phase,
                                                 .alive = table_alive,
                                                 .explain = table_explain,
                                                 .claim = table_claim,
                                                 .close = table_close};

static void fill(struct dt_liveness_table *self, struct dt_comm *comm,
                 const struct dt_host_memory *memory)
{
    const bool shared = memory->bytes != NULL;
    self->memory = *memory;
    self->n_rows = shared ? comm->local_size : 1;
    self->rows = shared ? memory->bytes : &self->alone;
    self->mine = &self->rows[shared ? comm->local_rank : 0];
    self->mine->rank = comm->rank;
    self->sees_all = self->n_rows == comm->size;
    atomic_store(&self->mine->seen_ns, dt_clock_ns());
}

enum dt_status dt_liveness_open(struct dt_comm *comm)
{
    struct dt_host_memory memory;
    bool all;
    DT_TRY(dt_host_memory_open(comm, sizeof(struct dt_liveness_row) * (size_t)comm->local_size,
                               &memory));
    struct dt_liveness_table *self = calloc(1, sizeof *self);
    if (self != NULL) {
        fill(self, comm, &memory);
    }
    /* No rank reads a row before every row is filled. */
    const enum dt_status s = dt_comm_all(comm, self != NULL, "first barrier", &all);
    if (s != DT_OK || !all) {
        dt_host_memory_close(&memory);
        free(self);
        DT_TRY(s);
        return dt_error_agreed(dt_error(DT_NO_MEMORY, "no memory for the communicator"));
    }
    comm->private->liveness = &table_ops;
    comm->private->table = self;
    dt_comm_phase(comm, "start");
    return DT_OK;
}
