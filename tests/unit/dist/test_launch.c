/* Launches that can only be mistakes are refused with the cure. */
#include "dist/launch/launch.h"

#include "tests/lib/check.h"

struct launch {
    const char *title;
    int size;              /* what MPI says */
    const char *variables; /* of the environment: NAME=VALUE ... */
    const char *refusal;   /* NULL: accepted */
    int rank;
};

static const struct launch launches[] = {
    {"alone on a laptop", 1, "", NULL, 0},
    {"mpirun -np 4", 4, "PMI_SIZE=4 PMI_RANK=3", NULL, 0},
    {"mpirun -np 1", 1, "PMI_SIZE=1 PMI_RANK=0", NULL, 0},
    {"srun --mpi=pmi2 -n2", 2,
     "SLURM_STEP_NUM_TASKS=2 SLURM_PROCID=1 SLURM_NTASKS=2 PMI_SIZE=2 PMI_RANK=1 SLURM_JOB_ID=5",
     NULL, 0},
    {"srun -n2 without pmi2", 1,
     "SLURM_STEP_NUM_TASKS=2 SLURM_PROCID=1 SLURM_NTASKS=2 SLURM_JOB_ID=5", "srun --mpi=pmi2", 1},
    {"srun --mpi=pmi2 -n1 in a larger job", 1,
     "SLURM_STEP_NUM_TASKS=1 SLURM_PROCID=0 SLURM_NTASKS=8 PMI_SIZE=1 PMI_RANK=0 SLURM_JOB_ID=5",
     NULL, 0},
    {"srun -n1 without pmi2 in a larger job", 1,
     "SLURM_STEP_NUM_TASKS=1 SLURM_PROCID=0 SLURM_NTASKS=8 SLURM_JOB_ID=5", NULL, 0},
    {"batch shell without srun", 1, "SLURM_PROCID=0 SLURM_NTASKS=2 SLURM_JOB_ID=5", "without srun",
     0},
    {"batch shell of one task", 1, "SLURM_PROCID=0 SLURM_NTASKS=1 SLURM_JOB_ID=5", NULL, 0},
    {"mpirun -np 1 in a larger job", 1,
     "SLURM_PROCID=0 SLURM_NTASKS=8 PMI_SIZE=1 PMI_RANK=0 SLURM_JOB_ID=5", NULL, 0},
    {"mpirun -np 4 in a larger job", 4,
     "SLURM_PROCID=0 SLURM_NTASKS=8 PMI_SIZE=4 PMI_RANK=2 SLURM_JOB_ID=5", NULL, 0},
    {"Open MPI's mpirun -np 3", 1, "OMPI_COMM_WORLD_SIZE=3 OMPI_COMM_WORLD_RANK=2",
     "the mpirun of the MPI that", 2},
    {"Open MPI's mpirun -np 1", 1, "OMPI_COMM_WORLD_SIZE=1 OMPI_COMM_WORLD_RANK=0", NULL, 0},
    {"torchrun --nproc-per-node 2", 1, "WORLD_SIZE=2 RANK=1", "start it with mpirun -np N dtrain",
     1},
    {"torchrun --nproc-per-node 1", 1, "WORLD_SIZE=1 RANK=0", NULL, 0},
    {"mpirun -np 2 where torchrun's variables are left", 2,
     "PMI_SIZE=2 PMI_RANK=1 WORLD_SIZE=2 RANK=1", NULL, 0},
    {"mpirun -np 1 where torchrun's variables are left", 1,
     "PMI_SIZE=1 PMI_RANK=0 WORLD_SIZE=2 RANK=1", NULL, 0},
    {"a number that nothing was started with", 1, "WORLD_SIZE=2", NULL, 0},
    {"another MPI's launcher", 1, "PMI_SIZE=4 PMI_RANK=3", "rank 0 of 1", 3},
};

int main(void)
{
    for (size_t i = 0; i < sizeof launches / sizeof launches[0]; i++) {
        const struct launch *launch = &launches[i];
        static char variables[200]; /* the environment points into it */
        CHECK_INT(clearenv(), 0);
        strcpy(variables, launch->variables);
        for (char *one = strtok(variables, " "); one != NULL; one = strtok(NULL, " ")) {
            CHECK_INT(putenv(one), 0);
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
    CHECK(!dt_mpich_abort(1)); /* nobody to ask: no MPI_LOCALNRANKS in a unit test */
    return 0;
}
