/* Faults that are put into a training on purpose, to see what it makes of them: `dtrain train
 * --inject FAULT`, for lessons and tests. Not a part of the configuration: a resumed run
 * without them is as any other. */
#ifndef DT_TRAIN_HOOKS_INJECT_H
#define DT_TRAIN_HOOKS_INJECT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

/* Written `name:key=value,...`. Steps count from 1, over the whole run; "slow" is every step unless
 * it says which, "jitter" every step of every rank. X(constant, name, keys that it needs, keys that
 * it may have, example, meaning) */
#define DT_FAULT_LIST(X)                                                                          \
    X(DT_FAULT_SLOW, "slow", HAS(RANK) | HAS(MS), HAS(STEPS), "slow:rank=2,ms=50,steps=10-20",    \
      "The rank waits so long before each of these steps, or before every one.")                  \
    X(DT_FAULT_JITTER, "jitter", HAS(MS), 0, "jitter:ms=20",                                      \
      "Every rank waits before every step, up to so long, drawn by the run's seed.")              \
    X(DT_FAULT_KILL, "kill", HAS(RANK) | HAS(STEP), 0, "kill:rank=1,step=100",                    \
      "The rank is killed there.")                                                                \
    X(DT_FAULT_STOP, "stop", HAS(RANK) | HAS(STEP), 0, "stop:rank=1,step=100",                    \
      "The rank is stopped forever.")                                                             \
    X(DT_FAULT_STALL, "stall", HAS(STEP), HAS(RANK), "stall:rank=1,step=100",                     \
      "The rank, or every one, never comes back from there: it reads what nobody writes.")        \
    X(DT_FAULT_FLIP, "flip", HAS(RANK) | HAS(STEP) | HAS(TENSOR), 0,                              \
      "flip:rank=1,step=50,tensor=fc1.weight",                                                    \
      "After the step, one bit of the first of these weights turns over on this rank.")           \
    X(DT_FAULT_NAN, "nan", HAS(RANK) | HAS(STEP), 0, "nan:rank=1,step=40",                        \
      "The gradient that the rank's loss gives is not a number.")                                 \
    X(DT_FAULT_DROP, "drop", HAS(RANK) | HAS(STEP), 0, "drop:rank=1,step=30",                     \
      "From there on what the rank sends is lost: gradients and weights in messages that dtrain " \
      "sends itself, of an "                                                                      \
      "algorithm or of servers.")
enum dt_fault_kind { DT_FAULT_LIST(DT_NAMED_ENUM) };

#define DT_FAULT_EVERY_RANK (-1)
#define DT_MAX_FAULTS 16

struct dt_fault {
    enum dt_fault_kind kind;
    int rank; /* or DT_FAULT_EVERY_RANK */
    uint64_t first_step, last_step;
    unsigned ms;
    char tensor[32];
    const char *text; /* as it was given; borrowed */
};

struct dt_faults {
    int n;
    struct dt_fault faults[DT_MAX_FAULTS];
};

/* Local. DT_USAGE names the text and what is wrong with it. */
enum dt_status dt_faults_parse(const char *const *texts, int n, struct dt_faults *out);

struct dt_trainer;

/* A hook: the trainer's steps have these faults from now on; borrowed; NULL: none. Every rank
 * calls it; agreed. DT_CONFIG: not the same on every rank; no such rank or tensor, a gradient of a
 * server or of a split network, a message where nobody sends one; or a device takes the steps on
 * its own. */
enum dt_status dt_inject_open(struct dt_trainer *trainer, const struct dt_faults *faults);

/* Milliseconds by which a "slow" or "jitter" delays this rank before this step; 0 where it does
 * not, and of all other faults. */
unsigned dt_fault_delay_ms(const struct dt_fault *fault, uint64_t seed, int rank, uint64_t step);

#endif
