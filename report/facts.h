/* A run's main facts, name by name: for the terminal, the page, and runs side by side. */
#ifndef DT_REPORT_FACTS_H
#define DT_REPORT_FACTS_H

#include "cli/sinks/record.h"

/* X(constant, name) */
#define DT_FACT_LIST(X)                  \
    X(DT_FACT_VERDICT, "verdict")        \
    X(DT_FACT_ACCURACY, "test accuracy") \
    X(DT_FACT_LOSS, "test loss")         \
    X(DT_FACT_PROGRESS, "progress")      \
    X(DT_FACT_SPEED, "speed")            \
    X(DT_FACT_TIME, "time")              \
    X(DT_FACT_RANKS, "ranks")            \
    X(DT_FACT_DEVICE, "device")          \
    X(DT_FACT_BATCH, "batch")            \
    X(DT_FACT_LR, "learning rate")       \
    X(DT_FACT_ADDING, "gradients")       \
    X(DT_FACT_MEMORY, "memory")          \
    X(DT_FACT_FAULTS, "injected")        \
    X(DT_FACT_STARTED, "started")        \
    X(DT_FACT_COMMAND, "command")        \
    X(DT_FACT_RESUMED, "resumed from")   \
    X(DT_FACT_CHECKPOINT, "checkpoint")  \
    X(DT_FACT_BEST, "best")              \
    X(DT_FACT_PROGRAM, "program")        \
    X(DT_FACT_NOTE, "note")
enum dt_fact { DT_FACT_LIST(DT_NAMED_ENUM) DT_N_FACTS };
extern const char *const dt_fact_names[DT_N_FACTS];

#define DT_FACT_SIZE 1024
struct dt_facts {
    char texts[DT_N_FACTS][DT_FACT_SIZE]; /* as in the files, not escaped; "": unknown, or none */
};
void dt_facts_find(const struct dt_record *record, struct dt_facts *out);

#endif
