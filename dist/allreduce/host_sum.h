/* Sums of arrays over all ranks: inside each host in memory that its ranks share, without messages
 * and without a copy; then, if there are several hosts, between them by messages of a few ranks of
 * each, so that what a host sends does not grow with its ranks.
 *
 * Every rank writes its own part in place; the ranks of a host together add its parts, piece by
 * piece, into one total that all of them read. Whoever is awake takes the next piece, so ranks that
 * wait for a core hold nobody up: with more ranks than cores that is what matters (Debian's MPICH
 * needs several turns of every rank). When the host's total is complete, its first ranks each sum a
 * slice of it with their like on the other hosts (dt_comm.across), in place: two levels, as in
 * Horovod's hierarchical allreduce (Sergeev and Del Balso 2018, arXiv 1802.05799).
 *
 * The same ranks on the same hosts get the same bits in every run: a piece is always added in rank
 * order, and MPI's order depends on the numbers of hosts and elements. Every rank has the same bits
 * as all others. No rank can be a step ahead: it takes part in a slot's next round only after it
 * has seen this one's total, and may change its part as soon as the round is done. */
#ifndef DT_DIST_ALLREDUCE_HOST_SUM_H
#define DT_DIST_ALLREDUCE_HOST_SUM_H

#include "dist/allreduce/allreduce.h"
#include "dist/allreduce/executor.h"
#include "dist/ranks/host_memory.h"

#define DT_HOST_SUM_PIECE \
    ((size_t)1 << 13) /* elements; 32 KiB: parts and total of a piece fit the nearest caches */

/* This rank's view of a slot. */
struct dt_host_sum_range {
    size_t begin, end;
    uint64_t round;                                  /* of the slot, from 1 */
    uint64_t order;                                  /* this is the n-th sum, from 0 */
    enum { DT_INSIDE, DT_ACROSS, DT_CROSSED } stage; /* of this rank's slice */
    bool ended;    /* this rank has seen that all of it is summed */
    uint64_t draw; /* of `across`, if there is one */
    struct dt_request across;
};

struct dt_host_sum {
    float *part;  /* this rank's: n_elems floats, 64-byte aligned, zeroed, 256 readable bytes past
                     the end. NULL: not to be had */
    float *total; /* the same memory in every rank of the host; alike */
    /* NULL, or, with one host only, where the sums go instead of to `total`, piece by piece: to one
     * rank of the host each, whichever adds the piece, and before the range is done anywhere. The
     * caller sets it, on all ranks alike, while no sum is under way. */
    enum dt_status (*use)(void *context, size_t begin, size_t end, const float *sums);
    void *use_context;
    struct dt_executor *across; /* borrowed, on `total`: carries this rank's slices between the
                                   hosts; NULL: MPI does */
    /* private */
    struct dt_comm *comm; /* borrowed */
    struct dt_host_memory memory;
    size_t n_elems;
    struct dt_host_sum_range ranges[DT_ALLREDUCE_MAX_SLOTS];
    uint64_t n_started, n_done;           /* sums; n_done: all before this one have ended */
    int slots_of[DT_ALLREDUCE_MAX_SLOTS]; /* sum n is in slot slots_of[n % DT_ALLREDUCE_MAX_SLOTS]
                                           */
};

/* Every rank calls it. out->part is NULL on all of them where each rank is alone on its host, or
 * one of them cannot reach the memory of its host: sums then go through messages. That is no error;
 * a stall is. */
enum dt_status dt_host_sum_open(struct dt_comm *comm, size_t n_elems, struct dt_host_sum *out);
void dt_host_sum_close(struct dt_host_sum *sum); /* each rank by itself, when its last round is
                                                    done; a zeroed one is fine */

/* The sums of at most DT_HOST_SUM_PIECE elements of one host once more, for those that went to
 * `use`: while no sum is under way, no rank has changed its part since, and none does before all
 * have done with it. They stay until this rank adds again. */
const float *dt_host_sum_again(const struct dt_host_sum *sum, size_t begin, size_t end);

/* Begins to add elements [begin, end) of all parts; the part must stay as it is, and the total is
 * not to be read, until the request is done (dt_comm_test, dt_comm_wait). The same range of the
 * same slot on every rank; a slot's last request must be done. */
void dt_host_sum_start(struct dt_host_sum *sum, int slot, size_t begin, size_t end,
                       const char *name, struct dt_request *request);

#endif
