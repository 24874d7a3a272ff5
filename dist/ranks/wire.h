/* Messages between two ranks: started, tested, never waited for here. What waits, with a limit and
 * a name, is dt_comm_wait.
 *
 *   comm_mpi.c    over MPI
 *   wire_local.c  between many ranks in one process, for tests and lessons without a launcher
 *   wire_delay.h  over another wire, as slow as one likes */
#ifndef DT_DIST_RANKS_WIRE_H
#define DT_DIST_RANKS_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct dt_wire;

/* A message under way. The caller owns it, and keeps the bytes in place until it is done. */
struct dt_wire_request {
    bool active;
    void *handle; /* the implementation's */
};

/* All slots are mandatory. None blocks. */
struct dt_wire_ops {
    const char *name;
    /* Messages from one rank to another with the same tag arrive in the order in which they were
     * sent. */
    enum dt_status (*send)(struct dt_wire *wire, int peer, int tag, const void *bytes,
                           size_t n_bytes, struct dt_wire_request *request);
    enum dt_status (*receive)(struct dt_wire *wire, int peer, int tag, void *bytes, size_t n_bytes,
                              struct dt_wire_request *request);
    enum dt_status (*test)(struct dt_wire *wire, struct dt_wire_request *request, bool *done);
    void (*close)(struct dt_wire *wire);
};

/* What was sent or received. Empty messages count. */
struct dt_traffic {
    uint64_t messages, bytes;
};

static inline void dt_traffic_add(struct dt_traffic *sum, struct dt_traffic more)
{
    sum->messages += more.messages;
    sum->bytes += more.bytes;
}

/* By a rank, so far. */
struct dt_wire_sent {
    struct dt_traffic all, between_hosts;
};

struct dt_wire {
    const struct dt_wire_ops *ops;
    int rank, size;
    const int *host_roots;   /* struct dt_comm's; borrowed; NULL: each rank has its own host */
    struct dt_traffic *sent; /* by this rank, to each of `size` peers */
};

/* Counted; the tag is not negative. DT_CONFIG: more bytes than one message holds. */
enum dt_status dt_wire_send(struct dt_wire *wire, int peer, int tag, const void *bytes,
                            size_t n_bytes, struct dt_wire_request *request);
enum dt_status dt_wire_receive(struct dt_wire *wire, int peer, int tag, void *bytes, size_t n_bytes,
                               struct dt_wire_request *request);
/* A request that is not active is done. */
enum dt_status dt_wire_test(struct dt_wire *wire, struct dt_wire_request *request, bool *done);
void dt_wire_close(struct dt_wire *wire); /* NULL is fine */

struct dt_wire_sent dt_wire_sent(const struct dt_wire *wire);

/* Opens the wires of `size` ranks, wires[0] to wires[size - 1], which are closed together, in any
 * order. A message is handed over when both sides have asked for it, and not before: what works
 * here needs no buffer anywhere. One thread. */
enum dt_status dt_wire_open_local(int size, struct dt_wire *wires[]);

struct dt_comm;
/* Between the ranks of a communicator over MPI, beside its own messages; closed before it. Every
 * rank calls it; none waits. */
enum dt_status dt_wire_open_mpi(struct dt_comm *comm, struct dt_wire **out);

#endif
