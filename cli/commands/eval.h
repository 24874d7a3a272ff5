/* `dtrain eval`: a checkpoint, or weights from elsewhere, measured on the test set. */
#ifndef DT_CLI_COMMANDS_EVAL_H
#define DT_CLI_COMMANDS_EVAL_H

#include "checkpoint/checkpoint.h"
#include "cli/args.h"
#include "model/network.h"
#include "train/device.h"
#include "train/save/border.h"

/* Where a network comes from. */
struct dt_trained {
    const char
        *file; /* or the folder of a run: its best checkpoint, or else its newest (dt_saved_find) */
    const struct dt_config *config; /* --weights: its model has the weights in `file`; NULL: a
                                       checkpoint, which carries its own */
    bool ema;                       /* --ema: the average of the weights, in their place */
};

/* Reads the file, with the configuration and the model that belong to its weights. The caller
 * closes `file`, zeroed at first, also after a failure. Local. */
enum dt_status dt_trained_open(const struct dt_trained *from, struct dt_config *config,
                               struct dt_model *model, struct dt_checkpoint_file *file);

/* The weights of the file that it has opened, in the file's order. Local. DT_CONFIG: it has no
 * average. */
enum dt_status dt_trained_weights(const struct dt_trained *from,
                                  const struct dt_checkpoint_file *file,
                                  const struct dt_model *model, float *arena);

/* A trained network, ready for use. */
struct dt_inference {
    struct dt_config config;
    struct dt_model model;
    struct dt_device_choice device;
    struct dt_backend *backend;
    struct dt_network *network;
    enum dt_ground ground; /* of the training images, if the file has it */
    char *class_names;     /* of a checkpoint, if it has them; owned */
};

/* Every rank reads the file. `n_threads` is for a configuration that leaves `threads` open. A
 * checkpoint of a GPU also opens without a GPU: on the CPU, in f32. Every rank of `world`
 * calls it; agreed. A failed open owes nothing. */
enum dt_status dt_inference_open(struct dt_world *world, const struct dt_trained *from,
                                 int n_threads, int capacity, struct dt_inference *out);
/* Loads this rank's share of the test samples, or of the data that `spec` says. Every rank
 * calls it; agreed. DT_BAD_DATA: the data and the checkpoint `file` have different
 * classes. */
enum dt_status dt_inference_evaluator(struct dt_world *world, const char *file,
                                      const struct dt_inference *inference,
                                      const struct dt_data_spec *spec, struct dt_evaluator *out);
void dt_inference_close(struct dt_inference *inference);

/* The meaning of RUN, for the help of a command. */
#define DT_RUN_WORD                                                                              \
    "RUN is the folder of a run, whose best checkpoint it takes if the run keeps one, else the " \
    "newest; RUN:best, RUN:last, or a checkpoint file."

/* Checks the words and options of the commands that use a network. DT_USAGE: a checkpoint carries
 * its configuration, weights alone need one; fewer than `n_least` words behind RUN, which `more`
 * names, such as " IMAGE"; or any at all where that is 0. */
enum dt_status dt_trained_check(const struct dt_args *args, int n_least, const char *more);

/* The words behind RUN; all of them with --weights. */
struct dt_values dt_trained_words(const struct dt_args *args);

/* The rows of their options that all of these commands take. */
#define DT_TRAINED_OPTIONS                                                                   \
    [DT_OPTION_CONFIG] = {DT_TAKEN, "with --weights: the configuration of their model"},     \
    [DT_OPTION_SET] = {DT_TAKEN,                                                             \
                       "with --weights: change a key of --config; may be given many times"}, \
    [DT_PATHS] = {DT_TAKEN}, [DT_OPTION_EMA] = {DT_TAKEN},                                   \
    [DT_OPTION_WEIGHTS] = {                                                                  \
        DT_TAKEN, "a .safetensors file of weights alone, e.g. saved by PyTorch; needs --config"}

/* Finds the weights that the options name; `config` receives the configuration of --weights. Every
 * rank calls it; agreed. */
enum dt_status dt_trained_find(struct dt_world *world, const struct dt_args *args,
                               struct dt_config *config, struct dt_trained *out);

#endif
