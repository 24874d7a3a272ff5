/* Memory that the ranks of a host share. */
#ifndef DT_DIST_RANKS_HOST_MEMORY_H
#define DT_DIST_RANKS_HOST_MEMORY_H

#include "dist/ranks/comm.h"

struct dt_host_memory {
    void *bytes; /* zeroed, page-aligned; the same in all ranks of the host. NULL: not to be had */
    size_t n_bytes;
};

/* Every rank calls it, with the same n_bytes on the same host. The first rank of each host creates
 * the memory and the others open it: all ranks of all hosts, or none, which is no error. */
enum dt_status dt_host_memory_open(struct dt_comm *comm, size_t n_bytes,
                                   struct dt_host_memory *out);
void dt_host_memory_close(struct dt_host_memory *memory); /* this rank's; zeroed is fine */

/* An array of floats in it, with the 256 readable bytes past its end that kernels want. Arrays lie
 * one after the other from the beginning: small ones in whole pages, larger ones in whole huge
 * pages. Ranks then never share one, which lies near the rank that touches it first. */
size_t dt_host_array_bytes(size_t n_elems);
/* The first touch, by one rank before any other uses the array: zeros, in huge pages where the
 * system has them, since weights and gradients of one unit lie many pages apart. */
void dt_host_array_settle(float *array, size_t n_elems);

#endif
