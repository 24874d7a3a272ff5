/* Sums of arrays over the ranks of one host, in memory that they share, without messages and without a copy.
 *
 * Every rank writes its own part in place; the ranks together add the parts, piece by piece, into one total that all of them read.
 * Whoever is awake takes the next piece, so ranks that wait for a core hold nobody up: with more ranks than cores that is what
 * matters (Debian's MPICH needs several turns of every rank). A piece is always added in rank order: the same bits in every run and
 * with any pieces. No rank can be a step ahead: it takes part in a slot's next round only after it has seen this one's total, and
 * may change its part as soon as the round is done. */
#ifndef DT_DIST_HOST_SUM_H
#define DT_DIST_HOST_SUM_H

#include "dist/comm.h"

#define DT_HOST_SUM_SLOTS 256 /* ranges of the array that may be under way at once */

struct dt_host_sum {
    float *part;  /* this rank's: n_elems floats, 64-byte aligned, zeroed, 256 readable bytes past the end. NULL: not to be had */
    float *total; /* the same memory in every rank; alike */
    /* private */
    struct dt_comm *comm; /* borrowed */
    void *memory;
    size_t n_bytes;
    size_t n_elems;
    uint64_t rounds[DT_HOST_SUM_SLOTS];
    struct {
        size_t begin, end;
    } ranges[DT_HOST_SUM_SLOTS];
};

/* Every rank calls it. out->part is NULL on all of them where a rank is alone, they are on several hosts, or one of them cannot
 * reach the memory: sums then go through messages. That is no error; a stall is. */
enum dt_status dt_host_sum_open(struct dt_comm *comm, size_t n_elems, struct dt_host_sum *out);
void dt_host_sum_close(struct dt_host_sum *sum); /* each rank by itself, when its last round is done; a zeroed one is fine */

/* Begins to add elements [begin, end) of all parts; the part must stay as it is, and the total is not to be read, until the request
 * is done (dt_comm_test, dt_comm_wait). The same range of the same slot on every rank. */
void dt_host_sum_start(struct dt_host_sum *sum, int slot, size_t begin, size_t end, const char *name, struct dt_request *request);

#endif
