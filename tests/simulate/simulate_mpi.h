/* Communicators and collectives of the simulated MPI. */
#ifndef DT_SIMULATE_MPI_H
#define DT_SIMULATE_MPI_H

#include <mpi.h>

#include "tests/lib/wrap.h"
#include "tests/simulate/sim.h"

#define SIM_MOST_COMMS 64
#define SIM_FIRST_COMM 1000 /* the handle of communicator 0 */

enum sim_kind { ALLREDUCE, BROADCAST, ALLGATHER, MEET, SPLIT, SPLIT_HOSTS };

struct sim_comm {
    int size, members[SIM_MAX_RANKS]; /* ranks of the world */
    uint64_t n_called[SIM_MAX_RANKS]; /* collectives, by each member */
};

/* The members' contributions to a collective, and when the result reaches each. */
struct sim_collective {
    struct sim_collective *next;
    int comm;
    uint64_t sequence;
    enum sim_kind kind;
    size_t n_bytes; /* that each brings */
    int root, n_entered, n_left;
    bool entered[SIM_MAX_RANKS];
    uint64_t arrives_ns[SIM_MAX_RANKS][SIM_MAX_RANKS]; /* from, to */
    int colors[SIM_MAX_RANKS], keys[SIM_MAX_RANKS];    /* of a split */
    char *brought[SIM_MAX_RANKS];
};

extern struct sim_comm sim_comms[SIM_MOST_COMMS];
extern int sim_n_comms;
extern struct sim_collective *sim_collectives; /* that some member has not left */

/* As MPICH over UCX reports a connection that breaks. */
#define FAILS()                             \
    do {                                    \
        if (sim_call_fails(SIM_CALL_MPI)) { \
            return MPI_ERR_OTHER;           \
        }                                   \
    } while (0)

int sim_comm_index(MPI_Comm comm);
MPI_Comm sim_comm_handle(int index);
int sim_member_now(int comm); /* the number of the rank that runs, in this communicator */

/* The next collective of the rank that runs: begun, waited for (a call that blocks), left. The last
 * that leaves frees it. sim_meet is all three. */
struct sim_collective *sim_enter(int comm, enum sim_kind kind, const void *bytes, size_t n_bytes,
                                 int root);
void sim_wait_for(struct sim_collective *c);
void sim_leave(struct sim_collective *c);
void sim_meet(MPI_Comm comm);

int sim_n_requests(int rank); /* that are under way */

#endif
