/* Signs of life of the ranks of a host: a row per rank, in memory that these ranks share.
 *
 * A rank writes its own row: when it last moved, its phase, its step, the collectives that it has
 * entered and left, and its last events. There are three readers. A rank that waits too long learns
 * which rank is late (dt_liveness.explain). The watchdog sees that its own rank hangs (watchdog.h).
 * The flight record is a dump of the table (flight.h).
 *
 * To note an event costs a look at the clock and twelve stores, and no memory, message or lock.
 */
#ifndef DT_DIST_LIVENESS_TABLE_H
#define DT_DIST_LIVENESS_TABLE_H

#include <stdatomic.h>

#include "dist/ranks/host_memory.h"

/* Rank 0 while it writes to a disk, and any rank in DT_PHASE_OPENING, whose libraries may come from
 * a slow one, have DT_LONG_LIMITS times the usual limit. */
#define DT_PHASE_SAVING "saving a checkpoint"
#define DT_LONG_LIMITS 5
bool dt_phase_is_long(const char *phase, int rank);

#define DT_FLIGHT_EVENTS 256   /* that are kept, of each rank */
#define DT_FLIGHT_NAME_SIZE 48 /* longer names are cut */

enum dt_flight_kind { DT_FLIGHT_PHASE, DT_FLIGHT_STEP, DT_FLIGHT_COLLECTIVE }; /* what begins */

struct dt_flight_event {
    uint64_t ns;       /* by dt_clock_ns(), one clock for the host */
    uint64_t kind;     /* enum dt_flight_kind */
    uint64_t step;     /* under way, or the last one; 0: none yet */
    uint64_t sequence; /* of a collective: the n-th of the rank, from 1 */
    uint64_t n_bytes;  /* of a collective; 0: unknown */
    char name[DT_FLIGHT_NAME_SIZE];
};

#define DT_PHASE_SIZE 32
#define DT_EVENT_WORDS (sizeof(struct dt_flight_event) / sizeof(uint64_t))
#define DT_EVENT_SLOTS (DT_FLIGHT_EVENTS + 1) /* one is being written */
#define DT_FLIGHT_TEXT_SIZE 65536             /* more than a record takes */

/* Only its rank writes a row, except `claimed` and `written`, which any rank of the host writes in
 * the first row. A reader may catch `phase` between two names; its last byte is never written, so
 * that it always ends. A reader may catch the oldest event while a new one takes its place:
 * n_events tells. */
struct dt_liveness_row {
    _Atomic uint64_t seen_ns;           /* when the rank last moved, by dt_clock_ns() */
    _Atomic uint64_t n_started, n_done; /* of struct dt_comm */
    int32_t rank;
    _Atomic uint32_t claimed; /* bits: the errors that a rank of this host reports */
    _Atomic uint32_t written; /* the flight record */
    char phase[DT_PHASE_SIZE];
    _Atomic uint64_t step, n_events;
    _Atomic uint64_t events[DT_EVENT_SLOTS][DT_EVENT_WORDS];
};

/* The table as one rank holds it. Private, as the row is. */
struct dt_liveness_table {
    struct dt_host_memory memory;
    struct dt_liveness_row alone; /* where no memory can be shared: the only row */
    int n_rows;
    struct dt_liveness_row *rows, *mine;
    bool sees_all;                  /* every rank of the communicator has a row here */
    _Atomic(const char *) phase;    /* this rank's, a name of the program */
    char text[DT_FLIGHT_TEXT_SIZE]; /* of the flight record */
};

_Static_assert(sizeof(struct dt_flight_event) % sizeof(uint64_t) == 0, "an event is whole words");

/* Gives a communicator its table, which closes with the communicator. Every rank calls it.
 * DT_NO_MEMORY, DT_STALLED. */
enum dt_status dt_liveness_open(struct dt_comm *comm);
struct dt_liveness_table *dt_liveness_table_of(const struct dt_comm *comm); /* NULL: it has none */

/* Step `step` of this rank begins. By the rank's main thread. */
void dt_liveness_step(struct dt_liveness_table *table, uint64_t step);

/* ---- by any thread, about this rank */

uint64_t dt_liveness_seen_ns(const struct dt_liveness_table *table); /* when it last moved */
uint64_t dt_liveness_n_moves(const struct dt_liveness_table *table); /* events, and waits that ended
                                                                      */
const char *dt_liveness_phase(const struct dt_liveness_table *table); /* a name of the program */
/* The rank's last event; zeros: none. */
void dt_liveness_last(const struct dt_liveness_table *table, struct dt_flight_event *out);
/* Event `index` of a row; false: a newer event has taken its place. */
bool dt_liveness_read_event(const struct dt_liveness_row *row, uint64_t index,
                            struct dt_flight_event *out);
/* Another rank of this host that shows no sign of life: "rank 2 has not arrived; ..."; or "". */
void dt_liveness_name_silent(const struct dt_liveness_table *table, char *text, size_t n_text);

#endif
