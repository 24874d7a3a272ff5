/* A seed's decisions before a run begins. */
#ifndef DT_SIMULATE_PLAN_H
#define DT_SIMULATE_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "train/config.h"

#define SIM_MAX_RANKS 6
#define SIM_MAX_HOSTS 3
#define SIM_MAX_FAULTS 3

struct sim_random {
    uint64_t state;
};

/* splitmix64 (Steele, Lea, Flood 2014). */
static inline uint64_t sim_draw(struct sim_random *random)
{
    uint64_t z = random->state += UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}

static inline uint64_t sim_below(struct sim_random *random, uint64_t n)
{
    return sim_draw(random) % n;
}

static inline bool sim_chance(struct sim_random *random, unsigned percent)
{
    return sim_below(random, 100) < percent;
}

/* X(constant, name) */
#define SIM_FAULT_LIST(X)                                         \
    X(SIM_DIES, "dies")                                           \
    X(SIM_STOPS, "stops for ever")                                \
    X(SIM_PAUSES, "stops for a while")                            \
    X(SIM_SLOW, "is slow")                                        \
    X(SIM_LOSES, "loses a message")                               \
    X(SIM_CUTS, "has its host's link cut")                        \
    X(SIM_CLOCK_JUMPS, "has its host's clock jump")               \
    X(SIM_SIGNAL, "is told to stop")                              \
    X(SIM_SIGNAL_ALL, "is told to stop, as are all")              \
    X(SIM_NO_MEMORY, "gets no memory, once")                      \
    X(SIM_DISK_FULL, "finds the disk full")                       \
    X(SIM_DISK_FAILS, "finds the disk failing, once")             \
    X(SIM_POWER_CUT, "loses power, as do all")                    \
    X(SIM_NAN, "has a gradient that is not a number")             \
    X(SIM_FLIP, "has a bit of a weight flipped")                  \
    X(SIM_FLIP_GRADIENT, "has a bit of a gradient flipped")       \
    X(SIM_FLIP_MESSAGE, "receives a gradient with a bit flipped") \
    X(SIM_MPI_FAILS, "has a call of MPI fail")                    \
    X(SIM_DEVICE_FAILS, "has its device fail")                    \
    X(SIM_HOOK_FAILS, "has a hook fail")
#define SIM_FAULT_ENUM(constant, name) constant,
enum sim_fault_kind { SIM_FAULT_LIST(SIM_FAULT_ENUM) SIM_N_FAULT_KINDS };

struct sim_fault {
    enum sim_fault_kind kind;
    int rank, peer;
    double at;      /* which part of the rank's points come before it */
    double seconds; /* of a pause, of a cut, of a jump, of each point of a slow rank; 0: for ever */
    bool both_ways; /* a cut */
    uint64_t call;  /* of its kind, of the rank: strikes there, and not at `at`; 0: not so */
    uint64_t step;  /* of what is put into a step (train/hooks/inject.h) */
    bool off;       /* left out, to see whether the run still fails */
};

struct sim_plan {
    uint64_t seed;
    int n_ranks, n_hosts;
    int hosts[SIM_MAX_RANKS];
    bool eager;          /* a send is done before its receive */
    bool exact;          /* the weights depend on the configuration alone */
    bool flips;          /* all ranks may step by a wrong gradient, also to weights that diverge */
    int n_resumed;       /* ranks that resume */
    bool wide;           /* --places: device memory, hooks that fail, and rare keys */
    bool refused;        /* --places: the run ends with DT_CONFIG */
    bool own_memory;     /* the device has some: the program cannot read it */
    bool launcher_kills; /* a rank that dies takes all along, as under mpirun */
    struct dt_config config;
    struct sim_fault faults[SIM_MAX_FAULTS + 1]; /* and that of the resumed run */
    int n_faults;
    int n_again; /* 1: a fault strikes the resumed run, which is resumed once more; else 0 */
    /* In the run without faults: each rank's points in all, and until the world was open. */
    uint64_t n_points[SIM_MAX_RANKS], open_points[SIM_MAX_RANKS];
    char digest[64]; /* its last weights */
};

void sim_plan_make(uint64_t seed, struct sim_plan *plan);
/* Instead of faults, keys that most runs have off: for --places. */
void sim_plan_widen(struct sim_plan *plan);
void sim_plan_print(const struct sim_plan *plan);
const char *sim_fault_text(const struct sim_fault *fault, char *text, size_t n_text);

#endif
