#include "dist/launch/launch.h"

#include <stdlib.h>
#include <string.h>

/* A launcher's traces in the environment. */
struct launcher {
    const char *n_tasks; /* how many programs it started */
    const char *rank;    /* which of them this is */
    const char *unless;  /* with this variable set, `n_tasks` says nothing about how the program was
                            started; or NULL */
    const char *who, *cure;
};

static const struct launcher launchers[] = {
    {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", NULL, "Open MPI's mpirun",
     "start it with the mpirun of the MPI that dtrain --version names"},
    {"SLURM_STEP_NUM_TASKS", "SLURM_PROCID", NULL, "srun",
     "start it with: srun --mpi=pmi2 dtrain ..."},
    {"SLURM_NTASKS", NULL, "SLURM_STEP_NUM_TASKS", "a Slurm job",
     "start it with: srun --mpi=pmi2 dtrain ..., or for one rank: srun --mpi=pmi2 -n1 dtrain ..."},
    {"WORLD_SIZE", "RANK", "PMI_SIZE", "torchrun",
     "dtrain takes its ranks from MPI: start it with mpirun -np N dtrain ..."},
    {"PMI_SIZE", "PMI_RANK", NULL, "the launcher",
     "start it with the mpirun of the MPI that dtrain --version names"},
};

#define N_LAUNCHERS (sizeof launchers / sizeof launchers[0])

/* Open MPI's names first: its mpirun inside a step of srun passes on that step's PMI_RANK. */
#define OPEN_MPI "OMPI_COMM_WORLD_"
static const char *const numbers[][2] = {
    [DT_LAUNCH_RANK] = {OPEN_MPI "RANK", "PMI_RANK"},
    [DT_LAUNCH_SIZE] = {OPEN_MPI "SIZE", "PMI_SIZE"},
    [DT_LAUNCH_LOCAL_SIZE] = {OPEN_MPI "LOCAL_SIZE", "MPI_LOCALNRANKS"},
};

int dt_launch_number(enum dt_launch_number what)
{
    const char *text = getenv(numbers[what][0]);
    text = text != NULL ? text : getenv(numbers[what][1]);
    return text == NULL ? -1 : atoi(text);
}

int dt_launch_rank_in(const char *entry)
{
    for (int i = 0; i < 2; i++) {
        const size_t n = strlen(numbers[DT_LAUNCH_RANK][i]);
        if (strncmp(entry, numbers[DT_LAUNCH_RANK][i], n) == 0 && entry[n] == '=') {
            return atoi(entry + n + 1);
        }
    }
    return -1;
}

static int env_number(const char *name)
{
    const char *text = name == NULL ? NULL : getenv(name);
    return text == NULL ? 0 : atoi(text);
}

/* The launcher that meant several ranks, when MPI sees one. */
static const struct launcher *find_mistaken(void)
{
    const bool pmi_says_one =
        env_number("PMI_SIZE") == 1; /* mpirun -np 1, or srun --mpi=pmi2 -n1, inside a larger job */
    for (size_t i = 0; i < N_LAUNCHERS && !pmi_says_one; i++) {
        const struct launcher *launcher = &launchers[i];
        if (env_number(launcher->n_tasks) > 1 &&
            (launcher->rank == NULL || getenv(launcher->rank) != NULL) &&
            (launcher->unless == NULL || getenv(launcher->unless) == NULL)) {
            return launcher;
        }
    }
    return NULL;
}

static bool any_launch;

void dt_launch_take_any(void)
{
    any_launch = true;
}

enum dt_status dt_launch_check(int size)
{
    const struct launcher *launcher = size > 1 || any_launch ? NULL : find_mistaken();
    if (launcher == NULL) {
        return DT_OK;
    }
    if (launcher->rank == NULL) {
        return dt_error(DT_UNAVAILABLE,
                        "%s of %d tasks, but dtrain was started without srun and is alone (%s)",
                        launcher->who, env_number(launcher->n_tasks), launcher->cure);
    }
    return dt_error(DT_UNAVAILABLE,
                    "%s started %d programs that each think they are rank 0 of 1 (%s)",
                    launcher->who, env_number(launcher->n_tasks), launcher->cure);
}

int dt_launch_rank(void)
{
    const struct launcher *launcher = find_mistaken();
    return env_number(launcher == NULL ? "PMI_RANK" : launcher->rank);
}
