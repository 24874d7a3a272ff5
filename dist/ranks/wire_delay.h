/* A wire as slow as one likes, over any other: what if the network were like that?
 *
 * A message takes latency + bytes / bandwidth, and takes turns on its rank's two links, one out and
 * one in: the next one follows when its bytes have passed, without waiting for the latency again.
 * It is sent on the wire below when its time has come, and is received there; what that wire takes
 * itself comes on top. Time passes on a clock that the caller brings. Nothing waits here either:
 * messages move on when somebody tests one of this rank's. Once as many have been under way as ever
 * will be, nothing is allocated. */
#ifndef DT_DIST_RANKS_WIRE_DELAY_H
#define DT_DIST_RANKS_WIRE_DELAY_H

#include "dist/ranks/wire.h"

struct dt_wire_delay {
    double latency_s, bandwidth; /* bytes/s, above 0 */
    double (*clock_s)(void);     /* dt_clock_s, or a test's; never runs backwards */
};

/* `below` is closed with it, and by a failed open. DT_NO_MEMORY. */
enum dt_status dt_wire_open_delay(struct dt_wire *below, const struct dt_wire_delay *delay,
                                  struct dt_wire **out);

#endif
