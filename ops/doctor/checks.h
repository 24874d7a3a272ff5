/* Checks of the ranks' facts. */
#ifndef DT_OPS_DOCTOR_CHECKS_H
#define DT_OPS_DOCTOR_CHECKS_H

#include "ops/doctor/facts.h"

/* X(constant, name): works, nothing to check, works badly, does not work */
#define DT_VERDICT_LIST(X)           \
    X(DT_VERDICT_OK, "ok")           \
    X(DT_VERDICT_NONE, "-")          \
    X(DT_VERDICT_WARNING, "warning") \
    X(DT_VERDICT_PROBLEM, "problem")
enum dt_verdict { DT_VERDICT_LIST(DT_NAMED_ENUM) };
#define DT_N_VERDICTS (DT_VERDICT_PROBLEM + 1)

struct dt_finding {
    enum dt_verdict verdict;
    char text[320];
    char cure[200]; /* "" if there is nothing to fix */
};

/* X(name), in the order in which they are shown */
#define DT_CHECK_LIST(X) \
    X(versions)          \
    X(environment)       \
    X(cores)             \
    X(load)              \
    X(numa)              \
    X(memory)            \
    X(shared_memory)     \
    X(huge_pages)        \
    X(limits)            \
    X(clocks)            \
    X(network)           \
    X(gpus)              \
    X(gpu_health)        \
    X(gpu_links)         \
    X(data)              \
    X(runs)              \
    X(slurm)

struct dt_check {
    const char *name;
    struct dt_finding (*run)(const struct dt_rank_facts *ranks, int n);
};
extern const struct dt_check dt_checks[];
extern const int dt_n_checks;

/* Runs the check of this name, which must exist. */
struct dt_finding dt_check_run(const char *name, const struct dt_rank_facts *ranks, int n);

#endif
