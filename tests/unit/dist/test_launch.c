/* Launches that can only be mistakes are refused with the cure. */
#include "dist/ranks/launch/launch.h"

#include "tests/lib/check.h"

#define N_VARIABLES 10
static const char *const variables[N_VARIABLES] = {"OMPI_COMM_WORLD_SIZE",
                                                   "OMPI_COMM_WORLD_RANK",
                                                   "SLURM_STEP_NUM_TASKS",
                                                   "SLURM_PROCID",
                                                   "SLURM_NTASKS",
                                                   "PMI_SIZE",
                                                   "PMI_RANK",
                                                   "SLURM_JOB_ID",
                                                   "WORLD_SIZE",
                                                   "RANK"};

struct launch {
    const char *title;
    int size; /* what MPI says */
    const char *values[N_VARIABLES];
    const char *refusal; /* NULL: accepted */
    int rank;
};

static const struct launch launches[] = {
    {"alone on a laptop", 1, {NULL}, NULL, 0},
    {"mpirun -np 4", 4, {[5] = "4", [6] = "3"}, NULL, 0},
    {"mpirun -np 1", 1, {[5] = "1", [6] = "0"}, NULL, 0},
    {"srun --mpi=pmi2 -n2",
     2,
     {[2] = "2", [3] = "1", [4] = "2", [5] = "2", [6] = "1", [7] = "5"},
     NULL,
     0},
    {"srun -n2 without pmi2",
     1,
     {[2] = "2", [3] = "1", [4] = "2", [7] = "5"},
     "srun --mpi=pmi2",
     1},
    {"srun --mpi=pmi2 -n1 in a larger job",
     1,
     {[2] = "1", [3] = "0", [4] = "8", [5] = "1", [6] = "0", [7] = "5"},
     NULL,
     0},
    {"srun -n1 without pmi2 in a larger job",
     1,
     {[2] = "1", [3] = "0", [4] = "8", [7] = "5"},
     NULL,
     0},
    {"batch shell without srun", 1, {[3] = "0", [4] = "2", [7] = "5"}, "without srun", 0},
    {"batch shell of one task", 1, {[3] = "0", [4] = "1", [7] = "5"}, NULL, 0},
    {"mpirun -np 1 in a larger job",
     1,
     {[3] = "0", [4] = "8", [5] = "1", [6] = "0", [7] = "5"},
     NULL,
     0},
    {"mpirun -np 4 in a larger job",
     4,
     {[3] = "0", [4] = "8", [5] = "4", [6] = "2", [7] = "5"},
     NULL,
     0},
    {"Open MPI's mpirun -np 3", 1, {[0] = "3", [1] = "2"}, "the mpirun of the MPI that", 2},
    {"Open MPI's mpirun -np 1", 1, {[0] = "1", [1] = "0"}, NULL, 0},
    {"torchrun --nproc-per-node 2",
     1,
     {[8] = "2", [9] = "1"},
     "start it with mpirun -np N dtrain",
     1},
    {"torchrun --nproc-per-node 1", 1, {[8] = "1", [9] = "0"}, NULL, 0},
    {"mpirun -np 2 where torchrun's variables are left",
     2,
     {[5] = "2", [6] = "1", [8] = "2", [9] = "1"},
     NULL,
     0},
    {"mpirun -np 1 where torchrun's variables are left",
     1,
     {[5] = "1", [6] = "0", [8] = "2", [9] = "1"},
     NULL,
     0},
    {"a number that nothing was started with", 1, {[8] = "2"}, NULL, 0},
    {"another MPI's launcher", 1, {[5] = "4", [6] = "3"}, "rank 0 of 1", 3},
};

int main(void)
{
    for (size_t i = 0; i < sizeof launches / sizeof launches[0]; i++) {
        const struct launch *launch = &launches[i];
        for (int v = 0; v < N_VARIABLES; v++) {
            unsetenv(variables[v]);
            if (launch->values[v] != NULL) {
                setenv(variables[v], launch->values[v], 1);
            }
        }
        dt_error_clear();
        const enum dt_status status = dt_launch_check(launch->size);
        CHECK_MESSAGE(status == (launch->refusal == NULL ? DT_OK : DT_UNAVAILABLE),
                      "%s: status %d, text '%s'", launch->title, (int)status, dt_error_text());
        CHECK_HAS(dt_error_text(), launch->refusal == NULL ? "" : launch->refusal);
        if (launch->refusal != NULL) {
            CHECK_INT(dt_launch_rank(), launch->rank);
        }
    }
    CHECK(!dt_launch_abort(1)); /* nobody to ask: no MPI_LOCALNRANKS in a unit test */
    return 0;
}
