/* `dtrain train`, and `dtrain --print-config`. */
#include <stdlib.h>

#include "cli/commands/load.h"
#include "cli/sinks/sinks.h"
#include "train/hooks/guard.h"
#include "train/hooks/hooks.h"
#include "train/hooks/inject.h"
#include "train/save/saver.h"
#include "train/train.h"
#include "train/trainer.h"

static enum dt_status check(const struct dt_args *args)
{
    DT_TRY(dt_load_check_resume(args));
    if (dt_args_text(args, DT_OPTION_RESUME) != NULL && dt_args_has(args, DT_OPTION_WEIGHTS)) {
        return dt_error(DT_USAGE, "--resume=FILE and --weights both say where to begin (keep one)");
    }
    return DT_OK;
}

/* The hooks of a training, for struct dt_train_options. */
struct hooks {
    struct dt_faults faults;
    struct dt_guard *guard;
    const char *folder;
};

static enum dt_status open_hooks(const void *context, struct dt_trainer *t,
                                 const struct dt_emitter *emitter)
{
    const struct hooks *w = context;
    DT_TRY(dt_guard_hook(w->guard, t, w->folder));
    return dt_hooks_open(&w->faults, t, emitter);
}

static enum dt_status run(struct dt_world *world, const struct dt_args *args,
                          const struct dt_config *config, struct hooks *w)
{
    struct dt_folder_saver saver = {.saver = {.ops = &dt_folder_saver_ops},
                                    .run_dir = dt_args_text(args, DT_OPTION_RUN),
                                    .resume = dt_args_has(args, DT_OPTION_RESUME),
                                    .checkpoint = dt_args_text(args, DT_OPTION_RESUME),
                                    .weights = dt_args_text(args, DT_OPTION_WEIGHTS)};
    const struct dt_train_options options = {.format = &dt_config_json,
                                             .parts = &dt_all_parts,
                                             .saver = &saver.saver,
                                             .hooks = {open_hooks, w}};
    struct dt_sinks sinks = {.command = args->line, .reader = args->program->reader};
    w->folder = saver.dir.path;
    const enum dt_status s =
        dt_train(world, config, &options, &(struct dt_emitter){dt_sinks_emit, &sinks});
    dt_sinks_close(&sinks);
    return s;
}

static struct dt_guard *guard; /* from the beginning of `train` until the job's end */

static enum dt_status train(struct dt_world *world, const struct dt_args *args)
{
    struct dt_config config;
    struct hooks w = {.folder = NULL};
    const struct dt_values *injects = &args->values[DT_OPTION_INJECT];
    DT_TRY(dt_world_agree(world, dt_faults_parse(injects->texts, injects->n, &w.faults)));
    DT_TRY(dt_guard_open(world, &guard));
    w.guard = guard;
    enum dt_status s = dt_load_config_all(world, args, &config);
    s = s == DT_OK ? dt_world_agree(world, dt_sinks_check(&config)) : s;
    return s == DT_OK ? run(world, args, &config, &w) : s;
}

/* A rank may hang even on the way out: status.json has the code of the job. */
static void end_guard(enum dt_status s)
{
    if (guard != NULL) {
        dt_guard_close(guard, s);
    }
}

static enum dt_status print_config(const struct dt_args *args)
{
    struct dt_config config;
    DT_TRY(dt_load_config(args, &config));
    char *text = dt_config_to_json(&config);
    if (text == NULL) {
        return dt_error(DT_NO_MEMORY, "out of memory for the resolved configuration");
    }
    puts(text);
    free(text);
    return DT_OK;
}

#define TRAIN_OPTIONS                                                      \
    {                                                                      \
        [DT_OPTION_CONFIG] = {DT_REQUIRED}, [DT_OPTION_DATA] = {DT_TAKEN}, \
        [DT_OPTION_RUN] = {DT_TAKEN}, [DT_OPTION_RESUME] = {DT_TAKEN},     \
        [DT_OPTION_EPOCHS] = {DT_TAKEN}, [DT_OPTION_BATCH] = {DT_TAKEN},   \
        [DT_OPTION_LR] = {DT_TAKEN}, [DT_OPTION_SET] = {DT_TAKEN},         \
        [DT_OPTION_INJECT] = {DT_TAKEN}, [DT_OPTION_WEIGHTS] = {DT_TAKEN}, \
        [DT_OPTION_PRINT_CONFIG] = {                                       \
            DT_TAKEN                                                       \
        }                                                                  \
    }

const struct dt_command dt_command_train = {
    .word = "train",
    .meaning = "train a model (default command)",
    .usage = "mpirun -np 4 dtrain [train] --config FILE [--data DIR] [--run DIR]\n"
             "      [--resume[=RUN]] [--weights FILE] [--epochs N] [--batch N] [--lr X]\n"
             "      [--set KEY.PATH=VALUE]... [--inject FAULT]...",
    .examples = "  mpirun -np 4 dtrain --config configs/mnist.json --data data/mnist \\\n"
                "      --run runs/night\n"
                "  mpirun -np 2 dtrain --config configs/mnist.json --epochs 1 \\\n"
                "      --set train.batch.global=384\n"
                "  mpirun -np 2 dtrain --config configs/mnist.json \\\n"
                "      --set model.layers.1.filters=16\n"
                "  srun --mpi=pmi2 dtrain --config configs/mnist.json --run runs/night --resume\n",
    .more = "Each rank works on its share of every batch, and the ranks' gradients are averaged "
            "before each step, so that all keep the same weights. Started alone it is one rank.",
    .options = TRAIN_OPTIONS,
    .ending = DT_SAVES,
    .check = check,
    .together = train,
    .ended = end_guard,
};

const struct dt_command dt_command_print_config = {
    .word = "--print-config",
    .options = TRAIN_OPTIONS,
    .check = dt_load_check_resume,
    .alone = print_config,
};
