/* Communicators, the beginning and end of a job, and memory that a host shares, of the simulated
 * MPI. */
#include "tests/simulate/simulate_mpi.h"

#include <string.h>

/* Those of one color, by key and rank. The first member that comes by makes the communicator; the
 * others find it by its members. */
static int find_split(const struct sim_collective *c, int me)
{
    const struct sim_comm *parent = &sim_comms[c->comm];
    struct sim_comm made = {.size = 0};
    for (int key = 0; key < SIM_MAX_RANKS; key++) {
        for (int m = 0; m < parent->size; m++) {
            if (c->colors[m] == c->colors[me] && c->keys[m] == key) {
                made.members[made.size++] = parent->members[m];
            }
        }
    }
    made.n_called[SIM_MAX_RANKS - 1] = 0;
    for (int i = c->root; i < sim_n_comms; i++) { /* root: how many there were before */
        if (sim_comms[i].size == made.size &&
            memcmp(sim_comms[i].members, made.members, sizeof made.members) == 0) {
            return i;
        }
    }
    if (sim_n_comms == SIM_MOST_COMMS) {
        sim_wrong("more than %d communicators", SIM_MOST_COMMS);
        return 0;
    }
    sim_comms[sim_n_comms] = made;
    return sim_n_comms++;
}

static MPI_Comm split(MPI_Comm comm, int color, int key)
{
    const int index = sim_comm_index(comm), me = sim_member_now(index);
    struct sim_collective *c = sim_enter(index, SPLIT, NULL, 0, 0);
    c->colors[me] = color;
    c->keys[me] = key;
    sim_wait_for(c);
    if (c->n_left == 0) {
        c->root = sim_n_comms;
    }
    const int made = color == MPI_UNDEFINED ? -1 : find_split(c, me);
    sim_leave(c);
    return made < 0 ? MPI_COMM_NULL : sim_comm_handle(made);
}

WRAP(int, MPI_Comm_split, MPI_Comm comm, int color, int key, MPI_Comm *out)
{
    FAILS();
    *out = split(comm, color, key);
    return MPI_SUCCESS;
}

WRAP(int, MPI_Comm_split_type, MPI_Comm comm, int type, int key, MPI_Info info, MPI_Comm *out)
{
    FAILS();
    (void)type, (void)info;
    *out = split(comm, sim.now->host, key);
    return MPI_SUCCESS;
}

WRAP(int, MPI_Comm_dup, MPI_Comm comm, MPI_Comm *out)
{
    FAILS();
    *out = split(comm, 0, sim_member_now(sim_comm_index(comm)));
    return MPI_SUCCESS;
}

WRAP(int, MPI_Comm_rank, MPI_Comm comm, int *rank)
{
    *rank = sim_member_now(sim_comm_index(comm));
    return MPI_SUCCESS;
}

WRAP(int, MPI_Comm_size, MPI_Comm comm, int *size)
{
    *size = sim_comms[sim_comm_index(comm)].size;
    return MPI_SUCCESS;
}

WRAP(int, MPI_Comm_set_errhandler, MPI_Comm comm, MPI_Errhandler handler)
{
    (void)comm, (void)handler;
    return MPI_SUCCESS;
}

WRAP(int, MPI_Comm_free, MPI_Comm *comm)
{
    *comm = MPI_COMM_NULL;
    return MPI_SUCCESS;
}

WRAP(int, MPI_Init_thread, int *argc, char ***argv, int wanted, int *provided)
{
    (void)argc, (void)argv;
    *provided = wanted;
    sim_meet(MPI_COMM_WORLD);
    return MPI_SUCCESS;
}

/* The process continues after it, but for this rank nothing comes any more than its end. */
WRAP(int, MPI_Finalize, void)
{
    sim.now->finalizes = true;
    if (sim_n_requests(sim.now->number) > 0) {
        sim_wrong("rank %d ends MPI, which may still write into memory of %d of its requests",
                  sim.now->number, sim_n_requests(sim.now->number));
    }
    sim_meet(MPI_COMM_WORLD);
    sim_end(SIM_ENDED, sim.now->code);
}

WRAP(int, MPI_Abort, MPI_Comm comm, int code)
{
    (void)comm;
    sim_take_others(code);
    return MPI_SUCCESS;
}
