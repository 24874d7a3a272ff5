/* Whether a training can continue from a checkpoint as if nothing had happened: with the same seed,
 * samples, order of them, model and rules. */
#include "train/save/state.h"

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
        {"training data's fingerprint", "use the same data", saved->data_crc, t->state.data_crc},
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
    DT_TRY(check_state(t, path, &file->state));
    return check_same(t, path, file->config, "data.normalize");
}
