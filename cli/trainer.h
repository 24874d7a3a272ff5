/* Everything one rank needs to train, opened together: data, network, optimizer, and where the run stands.
 *
 *   trainer.c  opens and closes it        step.c    takes one step, and times its parts
 *   state.c    saves and restores it      train.c   the epochs, and what people see of them */
#ifndef DT_CLI_TRAINER_H
#define DT_CLI_TRAINER_H

#include "cli/device.h"
#include "cli/evaluate.h"
#include "cli/run_dir.h"
#include "dist/replica_check.h"
#include "model/checkpoint.h"

/* Where the time of a step goes. X(constant, name) */
#define DT_PHASE_LIST(X)                       \
    X(DT_PHASE_DATA, "data")                   \
    X(DT_PHASE_FORWARD, "forward")             \
    X(DT_PHASE_BACKWARD, "backward")           \
    X(DT_PHASE_COMMUNICATION, "communication") \
    X(DT_PHASE_UPDATE, "update")
enum dt_phase { DT_PHASE_LIST(DT_NAMED_ENUM) DT_N_PHASES };

struct dt_trainer {
    struct dt_world *world; /* borrowed */
    struct dt_config config;
    struct dt_model model;
    int n_threads;
    char *config_json; /* resolved */

    struct dt_dataset data;
    struct dt_loader loader;
    uint64_t steps_per_epoch;
    int micro_capacity; /* samples of a micro-batch at most */

    struct dt_device_choice device;
    struct dt_backend *backend;
    struct dt_comm *device_comm; /* sums gradients on the GPU; NULL: the world's does, in host memory */
    struct dt_bound_samples *samples;
    struct dt_network *network;
    struct dt_optimizer optimizer;
    struct dt_dist_optimizer dist;
    struct dt_replica_check check;
    struct dt_evaluator evaluator;
    struct dt_schedule schedule;

    struct dt_checkpoint_state state; /* where the run stands */
    double seconds[DT_N_PHASES];      /* of this rank, since the start of the process */
    uint64_t n_timed_steps;
};

/* How the training samples are shared out among `size` ranks, seen from `rank`. DT_CONFIG: the batch does not go with the number of
 * ranks or samples. Local; `config->data` must fit the model (cli/data_spec.h). */
enum dt_status dt_trainer_shard(const struct dt_config *config, int rank, int size, struct dt_shard *out);

/* Opens all of it but starts nothing: initial weights are drawn, not yet broadcast. Every rank calls it; agreed. `config` is
 * copied. */
enum dt_status dt_trainer_open(struct dt_world *world, const struct dt_config *config, struct dt_trainer *out);
void dt_trainer_close(struct dt_trainer *trainer);

/* What a step gave, over all ranks. */
struct dt_step_result {
    struct dt_metrics train;
    double lr;
    bool stop; /* some rank was asked to stop */
};

/* The next step of state.epoch; advances `state`. Every rank calls it. DT_NON_FINITE: the loss is not a number; no weight was
 * touched. */
enum dt_status dt_trainer_step(struct dt_trainer *trainer, struct dt_step_result *out);

/* Rank 0 writes a checkpoint; every rank calls it; agreed. `path` is where (rank 0), and stays as it was on failure. */
enum dt_status dt_trainer_save(struct dt_trainer *trainer, const struct dt_run_dir *run, char path[DT_CHECKPOINT_PATH_SIZE]);

/* Goes on from the checkpoint `path`, or with NULL from the newest valid one of the run, if any (`path_used` is "" if none: a fresh
 * start). Damaged ones are named on stderr and passed over. Every rank calls it; agreed. Rank 0 reads; the caller broadcasts
 * weights. */
enum dt_status dt_trainer_restore(struct dt_trainer *trainer, const struct dt_run_dir *run, const char *path,
                                  char path_used[DT_CHECKPOINT_PATH_SIZE]);

#endif
