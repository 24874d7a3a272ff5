/* A wire on which messages with a higher tag overtake, as parts of tensors do in ByteScheduler
 * (Peng et al., "A generic communication scheduler for distributed DNN training acceleration", SOSP
 * 2019), over any other.
 *
 * While fewer bytes than the credit are on their way, another message follows them; the others are
 * held back, and the highest tag goes first. Ranks need not agree on who overtakes
 * whom: they ask for their sums in one order, messages of a sum that is asked for need no credit,
 * and so no two ranks wait for each other. Nothing waits here: messages move on when somebody tests
 * one of this rank's. Nothing is allocated after opening. */
#ifndef DT_DIST_RANKS_WIRE_CREDIT_H
#define DT_DIST_RANKS_WIRE_CREDIT_H

#include "dist/ranks/wire.h"

/* A credit that keeps a link busy and overtaking quick: 256 KiB, what 10 Gbit/s carry in 0.2 ms. */
#define DT_CREDIT_BYTES ((size_t)1 << 18)

/* `below` is closed with it, and by a failed open. Messages have tags below n_tags; with one tag a
 * round of an algorithm is under way at once, which the executor begins as a whole. DT_NO_MEMORY.
 */
enum dt_status dt_wire_open_credit(struct dt_wire *below, size_t credit_bytes, int n_tags,
                                   struct dt_wire **out);

/* Messages with this tag and higher ones need no credit, until another call; INT_MAX: all need it.
 */
void dt_wire_hurry(struct dt_wire *wire, int tag);

/* Bytes sent by rounds that have not ended. */
size_t dt_wire_in_flight(const struct dt_wire *wire);

#endif
