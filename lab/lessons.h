/* The lessons of `dtrain lab`. Each is a file of this folder, whose function ends by checking its
 * golden numbers (golden.h), and a row here, from which command line, help and main follow;
 * cli/options.h has the commands of each option.
 *
 * X(constant, word, meaning, usage, examples, starts, function)
 *   starts   alone: in this process, without MPI; together: with the ranks that mpirun starts */
#ifndef DT_LAB_LESSONS_H
#define DT_LAB_LESSONS_H

#include "base/status.h"

struct dt_args;
struct dt_world;

#define DT_LESSON_LIST(X)                                                                          \
    X(DT_COMMAND_LAB_GRADTAPE, "lab gradtape",                                                     \
      "Horovod's worked example: gradients, mean, step, broadcast",                                \
      "mpirun -np 2 dtrain lab gradtape [--html FILE]", "  mpirun -np 2 dtrain lab gradtape\n",    \
      together, dt_lab_gradtape)                                                                   \
    X(DT_COMMAND_LAB_LINEAR, "lab linear",                                                         \
      "what averaging and broadcasting are for: a line on two ranks",                              \
      "mpirun -np 2 dtrain lab linear [--batch 1|16|all] [--html FILE]",                           \
      "  mpirun -np 2 dtrain lab linear --batch 16\n", together, dt_lab_linear)                    \
    X(DT_COMMAND_LAB_LR, "lab lr", "why the learning rate grows with the batch; warm-up",          \
      "dtrain lab lr [--html FILE]", "  dtrain lab lr\n", alone, dt_lab_lr)                        \
    X(DT_COMMAND_LAB_SHARDS, "lab shards", "how ranks share the data, and shards that harm",       \
      "dtrain lab shards [--ranks N] [--html FILE]", "  dtrain lab shards --ranks 2\n", alone,     \
      dt_lab_shards)                                                                               \
    X(DT_COMMAND_LAB_BATCH, "lab batch",                                                           \
      "the batch size against steps and samples to an accuracy", "dtrain lab batch [--html FILE]", \
      "  dtrain lab batch\n", alone, dt_lab_batch)                                                 \
    X(DT_COMMAND_LAB_MODEL_PARALLEL, "lab model-parallel",                                         \
      "four ways to share a model: bytes, and who works",                                          \
      "dtrain lab model-parallel --config FILE [--ranks N] [--html FILE]",                         \
      "  dtrain lab model-parallel --config configs/mnist.json\n", alone, dt_lab_model_parallel)   \
    X(DT_COMMAND_LAB_PIPELINE, "lab pipeline",                                                     \
      "who waits in a pipeline, and what each stage holds",                                        \
      "dtrain lab pipeline [--ranks N] [--html FILE]", "  dtrain lab pipeline\n", alone,           \
      dt_lab_pipeline)                                                                             \
    X(DT_COMMAND_LAB_SERVER, "lab server",                                                         \
      "parameter servers beside an allreduce: bytes, bits, staleness",                             \
      "mpirun -np 4 dtrain lab server [--html FILE]", "  mpirun -np 4 dtrain lab server\n",        \
      together, dt_lab_server)                                                                     \
    X(DT_COMMAND_LAB_COMPRESSION, "lab compression",                                               \
      "fewer bytes for gradients, and the accuracy they cost",                                     \
      "mpirun -np 4 dtrain lab compression [--html FILE]",                                         \
      "  mpirun -np 4 dtrain lab compression\n", together, dt_lab_compression)                     \
    X(DT_COMMAND_LAB_STRAGGLERS, "lab stragglers",                                                 \
      "who waits for a slow rank, or for ranks late by chance",                                    \
      "mpirun -np 4 dtrain lab stragglers [--html FILE]",                                          \
      "  mpirun -np 4 dtrain lab stragglers\n", together, dt_lab_stragglers)                       \
    X(DT_COMMAND_LAB_ALLREDUCE, "lab allreduce", "show an allreduce round by round; no mpirun",    \
      "dtrain lab allreduce [--algorithm NAME] [--ranks N] [--elements N]\n      [--html FILE]",   \
      "  dtrain lab allreduce\n"                                                                   \
      "  dtrain lab allreduce --algorithm halving_doubling --ranks 8 \\\n      --elements "        \
      "1199882 --html halving.html\n",                                                             \
      alone, dt_lab_allreduce)                                                                     \
    X(DT_COMMAND_LAB_REDUCE, "lab reduce", "show Reduce and Allreduce of 1 to 5 on five ranks",    \
      "dtrain lab reduce [--html FILE]", "  dtrain lab reduce\n", alone, dt_lab_reduce)

/* Prints the lesson, and writes the page `args->html` unless that is NULL. DT_USAGE: an option's
 * value. DT_FAILED: a golden number differs; the text has it. DT_CONFIG: the wrong number of ranks.
 * DT_IO and the like: the page. */
#define DT_LESSON_alone const struct dt_args *args
#define DT_LESSON_together struct dt_world *world, const struct dt_args *args
#define DT_LESSON_DECLARE(constant, word, meaning, usage, examples, starts, function) \
    enum dt_status function(DT_LESSON_##starts);
DT_LESSON_LIST(DT_LESSON_DECLARE)

#endif
