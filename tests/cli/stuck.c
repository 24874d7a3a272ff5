/* For test_watchdog.sh: linked into dtrain with ld's --wrap. The ranks that STUCK_RANKS names
 * ("01": 0 and 1) never come back from the STUCK_CALL-th call (1: the first) of the function that
 * STUCK_IN names, and show no sign of life there. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/output.h"
#include "data/dataset.h"
#include "dist/launch/launch.h"
#include "model/network.h"

static bool hangs_in(const char *function, int n_calls)
{
    const char *where = getenv("STUCK_IN"), *call = getenv("STUCK_CALL"),
               *ranks = getenv("STUCK_RANKS");
    char rank[16];
    snprintf(rank, sizeof rank, "%d", dt_launch_number(DT_LAUNCH_RANK));
    return where != NULL && strcmp(where, function) == 0 && ranks != NULL &&
           strstr(ranks, rank[0] != '-' ? rank : "0") != NULL &&
           n_calls >= (call != NULL ? atoi(call) : 1);
}

static void read_forever(void)
{
    int ends[2];
    char byte;
    if (pipe(ends) == 0) {
        while (read(ends[0], &byte, 1) != 0) {
        }
    }
}

static void compute_forever(void)
{
    for (volatile unsigned i = 0;; i = i + 1) {
    }
}

#define HANGS(type, function, how, parameters, arguments) \
    type __real_##function parameters;                    \
    type __wrap_##function parameters;                    \
    type __wrap_##function parameters                     \
    {                                                     \
        static int n_calls;                               \
        if (hangs_in(#function, ++n_calls)) {             \
            how();                                        \
        }                                                 \
        return __real_##function arguments;               \
    }

HANGS(enum dt_status, dt_dataset_open, read_forever,
      (const struct dt_data_spec *spec, enum dt_split split, struct dt_owned owned,
       struct dt_dataset *out),
      (spec, split, owned, out))
HANGS(enum dt_status, dt_network_loss, compute_forever,
      (struct dt_network * network, struct dt_bound_samples *samples, const struct dt_pass *pass),
      (network, samples, pass))
HANGS(int, MPI_Iallreduce, compute_forever,
      (const void *mine, void *sum, int n, MPI_Datatype type, MPI_Op op, MPI_Comm comm,
       MPI_Request *request),
      (mine, sum, n, type, op, comm, request))
HANGS(int, fsync, read_forever, (int fd), (fd))
HANGS(enum dt_status, dt_output_check, read_forever, (void), ())
