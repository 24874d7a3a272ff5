/* A training of a few seconds on generated images, with the choice of `auto` (GPUs and NCCL if
 * every rank has one), comparing the replicas after each step; and its checkpoint, which every rank
 * then reads. */
#include <stdio.h>

#include "cli/commands/eval.h"
#include "ops/accept/rows.h"
#include "train/save/saver.h"
#include "train/trainer.h"
#include "train/watch/watch.h"

#define LEAST_ACCURACY 0.95

/* The training's results, from its events. Rank 0's. */
struct results {
    struct dt_acceptance *acceptance;
    double n_correct, n_samples, steps;
    char gradients[32];
};

/* A dt_emitter.emit. */
static enum dt_status on_event(void *context, struct dt_event *event)
{
    struct results *results = context;
    if (event->kind == DT_EVENT_END) {
        results->n_correct = event->end->test.n_correct;
        results->n_samples = event->end->test.n_samples;
        results->steps = (double)event->end->steps;
        snprintf(results->gradients, sizeof results->gradients, "%s", event->end->allreduce);
        snprintf(results->acceptance->checkpoint, sizeof results->acceptance->checkpoint, "%s",
                 event->end->checkpoint);
    }
    return DT_OK;
}

enum dt_status dt_accept_training(struct dt_acceptance *a, struct dt_accept_row *row)
{
    struct results results = {.acceptance = a};
    struct dt_folder_saver saver = {.saver = {.ops = &dt_folder_saver_ops},
                                    .run_dir = a->folder.path};
    const struct dt_train_options options = {.format = &dt_config_json,
                                             .parts = &dt_all_parts,
                                             .saver = &saver.saver,
                                             .watch = {dt_watch_all, a->faults}};
    DT_TRY(dt_train(a->world, &a->config, &options, &(struct dt_emitter){on_event, &results}));
    DT_TRY(dt_comm_broadcast(a->world->comm, &results.n_correct, 3 * sizeof results.n_correct, 0,
                             "result of the training"));
    DT_TRY(dt_comm_broadcast(a->world->comm, a->checkpoint, sizeof a->checkpoint, 0,
                             "name of the checkpoint"));
    const double accuracy = results.n_correct / results.n_samples;
    a->trained = true;
    dt_accept_say(row, dt_accept_verdict(accuracy >= LEAST_ACCURACY),
                  "%.2f %% right after %.0f steps%s, replicas equal after each; gradients by %s",
                  100 * accuracy, results.steps,
                  accuracy >= LEAST_ACCURACY ? "" : " (95 % are wanted)", results.gradients);
    return DT_OK;
}

enum dt_status dt_accept_checkpoint(struct dt_acceptance *a, struct dt_accept_row *row)
{
    struct dt_inference inference;
    const struct dt_trained from = {.file = a->checkpoint};
    if (!a->trained) {
        dt_accept_say(row, DT_ACCEPT_FAIL, "no checkpoint: the training failed");
        return DT_OK;
    }
    DT_TRY(dt_inference_open(a->world, &from, 1, 1, &inference));
    dt_inference_close(&inference);
    dt_accept_say(row, DT_ACCEPT_PASS, "every rank has read %.300s", a->checkpoint);
    return DT_OK;
}
