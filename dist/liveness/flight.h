/* The flight record: the last events of each rank of a host, in rings in memory that they share. So
 * any of them can write down what a rank did last that hangs, or is stopped.
 *
 * Nothing is allocated, sent or locked when an event is noted: a look at the clock and ten stores.
 */
#ifndef DT_DIST_LIVENESS_FLIGHT_H
#define DT_DIST_LIVENESS_FLIGHT_H

#include "dist/ranks/host_memory.h"

#define DT_FLIGHT_EVENTS 256      /* of each rank */
#define DT_FLIGHT_NAME_SIZE 48    /* what is longer is cut */
#define DT_FLIGHT_TEXT_SIZE 65536 /* more than a record takes */

enum dt_flight_kind { DT_FLIGHT_PHASE, DT_FLIGHT_STEP, DT_FLIGHT_COLLECTIVE }; /* what begins */

struct dt_flight_event {
    uint64_t ns;       /* by dt_clock_ns(), which is the host's */
    uint64_t kind;     /* enum dt_flight_kind */
    uint64_t step;     /* under way, or the last one; 0: none yet */
    uint64_t sequence; /* of a collective: the n-th of the rank, from 1 */
    uint64_t n_bytes;  /* of a collective; 0: unknown */
    char name[DT_FLIGHT_NAME_SIZE];
};

struct dt_flight_ring; /* private, as is what follows */
struct dt_flight {
    struct dt_host_memory memory;
    struct dt_flight_ring *mine; /* NULL: no memory to share was to be had, and nothing is noted */
    int n_rings;
    char *text;
};

/* Every rank of `comm` calls it; the caller agrees. DT_NO_MEMORY, DT_STALLED. */
enum dt_status dt_flight_open(struct dt_comm *comm, struct dt_flight *out);
void dt_flight_close(struct dt_flight *flight); /* a zeroed one is fine */

/* ---- by the rank's main thread: ns and step are filled in */
void dt_flight_note(struct dt_flight *flight, enum dt_flight_kind kind, const char *name,
                    uint64_t sequence, size_t n_bytes);
void dt_flight_step(struct dt_flight *flight, uint64_t step);    /* it begins */
void dt_flight_count(struct dt_flight *flight, uint64_t n_done); /* collectives that have ended */

/* ---- by any thread */

uint64_t dt_flight_n_events(const struct dt_flight *flight); /* of this rank, so far */
/* This rank's last one; zero: none. */
void dt_flight_last(const struct dt_flight *flight, struct dt_flight_event *out);
/* The rank's main thread was seen to move. */
void dt_flight_seen(struct dt_flight *flight);

/* Writes flight-<rank>.json of every rank of this host into the folder, unless another rank has,
 * which it waits for, half a second at most. What cannot be written is left out. Allocates nothing.
 */
void dt_flight_write(struct dt_flight *flight, const char *folder, const char *host);
/* What is written already is not the end: the next call writes again. */
void dt_flight_rewrite(struct dt_flight *flight);
/* Removes the files of this host's ranks. */
void dt_flight_remove(struct dt_flight *flight, const char *folder);

#endif
