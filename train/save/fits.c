/* Whether a training can continue from a checkpoint as if nothing had happened: with the same seed,
 * samples, order of them, model and rules. */
#include "train/save/state.h"

#include <stdio.h>
#include <string.h>

#include "train/save/saved.h"

struct difference {
    const char *what, *consequence;
    uint64_t in_checkpoint, now;
};

/* Whether no sample of the epoch is left: killed after its last step, and before its end. */
bool dt_saved_used_up(const struct dt_trainer *t, const struct dt_checkpoint_state *saved)
{
    const uint64_t n_times = t->config.sharding == DT_SHARDING_REPLICATE ? saved->world_size : 1;
    return saved->n_samples >= (double)(n_times * saved->n_train);
}

/* Same seed, same data, and, inside an epoch, the same order: of all samples together with
 * "global", else of each rank's. */
static enum dt_status check_state(const struct dt_trainer *t, const char *path,
                                  const struct dt_checkpoint_state *saved)
{
    const bool mid_epoch = saved->step_in_epoch > 0 && !dt_saved_used_up(t, saved);
    const bool mid_orders = mid_epoch && t->config.sharding != DT_SHARDING_GLOBAL;
    const struct difference differences[] = {
        {"train.seed", "use the checkpoint's", saved->seed, t->state.seed},
        {"number of training samples", "use the same data", saved->n_train, t->state.n_train},
        {"number of ranks",
         "inside an epoch it may differ only with data.sharding \"global\": use as many, or a "
         "checkpoint of an epoch's end",
         mid_orders ? saved->world_size : 0, mid_orders ? t->state.world_size : 0},
        {"global batch", "inside an epoch it may differ only with data.sharding \"global\"",
         mid_orders ? saved->global_batch : 0, mid_orders ? t->state.global_batch : 0},
        {"number of rounds of the shuffle",
         "an epoch begun in another order cannot be resumed: use the dtrain that saved it, or a "
         "checkpoint of an epoch's end",
         mid_epoch && t->config.shuffle ? saved->shuffle_rounds : 0,
         mid_epoch && t->config.shuffle ? t->state.shuffle_rounds : 0},
    };
    for (size_t i = 0; i < sizeof differences / sizeof differences[0]; i++) {
        const struct difference *d = &differences[i];
        if (d->in_checkpoint != d->now) {
            return dt_error(DT_CONFIG, "%s: %s was %llu, now it is %llu (%s)", path, d->what,
                            (unsigned long long)d->in_checkpoint, (unsigned long long)d->now,
                            d->consequence);
        }
    }
    return DT_OK;
}

/* Of all samples; of their labels alone, where an older dtrain saved it. */
static enum dt_status check_samples(const struct dt_trainer *t, const char *path,
                                    const struct dt_checkpoint_state *saved)
{
    const bool older = saved->data_hash == DT_CHECKPOINT_UNKNOWN;
    const uint64_t before = older ? saved->data_crc : saved->data_hash,
                   now = older ? t->state.data_crc : t->state.data_hash;
    return before == now
               ? DT_OK
               : dt_error(DT_BAD_DATA,
                          "%s: the training %s have changed since then: their fingerprint was "
                          "%016llx, now it is %016llx (use the same data, or begin a new run)",
                          path, older ? "labels" : "samples", (unsigned long long)before,
                          (unsigned long long)now);
}

static enum dt_status check_same(const struct dt_trainer *t, const char *path, const char *saved,
                                 const char *key)
{
    char text[256];
    DT_TRY(t->written.format->compare(saved, t->written.text, key, text, sizeof text));
    return text[0] == '\0'
               ? DT_OK
               : dt_error(DT_CONFIG, "%s: %s (use the checkpoint's, or begin a new run)", path,
                          text);
}

/* The learning rate, the number of epochs and what is recorded may change. Normalization comes
 * last: its numbers follow from the samples, of which another number is the fault to name. */
enum dt_status dt_saved_fits(const struct dt_trainer *t, const char *path,
                             const struct dt_checkpoint_file *file)
{
    static const char *const fixed[] = {"model", "data.validation", "data.sharding", "data.shuffle",
                                        "train.optimizer.type"};
    for (size_t i = 0; i < sizeof fixed / sizeof fixed[0]; i++) {
        DT_TRY(check_same(t, path, file->config, fixed[i]));
    }
    DT_TRY(dt_saved_same_classes(path, file->class_names, t->set.data.class_names));
    DT_TRY(check_state(t, path, &file->state));
    DT_TRY(check_samples(t, path, &file->state));
    return check_same(t, path, file->config, "data.normalize");
}

static void tell(char *changes, const char *what, int digits, double before, double now)
{
    char a[32], b[32];
    const size_t n = strlen(changes);
    snprintf(a, sizeof a, "%.*g", digits, before);
    snprintf(b, sizeof b, "%.*g", digits, now);
    if (strcmp(a, b) != 0) {
        snprintf(changes + n, DT_CHANGES_SIZE - n, "%s%s was %s, now it is %s", n > 0 ? "; " : "",
                 what, a, b);
    }
}

/* A rate that goes on as it would have is no change, though it is another one at each step. */
void dt_saved_tell_changes(const struct dt_trainer *t, const struct dt_config *saved,
                           const struct dt_checkpoint_state *before, char *changes)
{
    struct dt_lr_schedule was = dt_trainer_schedule(saved, before->world_size,
                                                    dt_saved_steps_per_epoch(saved, before)),
                          now = t->schedule;
    was.n_reductions = before->lr_reductions;
    now.n_reductions = t->state.lr_reductions;
    const uint64_t at = before->epoch * was.steps_per_epoch + before->step_in_epoch;
    const double next =
        dt_lr_schedule_at(&now, t->state.epoch * now.steps_per_epoch + t->state.step_in_epoch);
    tell(changes, "number of ranks", 9, (double)before->world_size, (double)t->state.world_size);
    tell(changes, "global batch", 9, (double)before->global_batch, (double)t->state.global_batch);
    if (dt_lr_schedule_at(&was, at) != next) {
        tell(changes, "learning rate", 4, dt_lr_schedule_at(&was, at > 0 ? at - 1 : 0), next);
    }
}
