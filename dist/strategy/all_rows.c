/* The rows of a program that links all of dist/: dtrain's. */
#include <string.h>

#include "dist/strategy/compression.h"
#include "dist/strategy/facts/facts.h"
#include "dist/strategy/mirrored.h"

const struct dt_algorithm dt_algorithms[DT_N_ALGORITHMS] = {DT_ALGORITHM_LIST(DT_ALGORITHM_ROW)};

const struct dt_algorithm *dt_algorithm_find(const char *name)
{
    for (int i = 0; i < DT_N_ALGORITHMS; i++) {
        if (strcmp(dt_algorithms[i].name, name) == 0) {
            return &dt_algorithms[i];
        }
    }
    return NULL;
}

#define DT_COMPRESSION_OPS(constant, name, c_name, ...) &dt_##c_name##_codec,
static const struct dt_codec_ops *const codecs[DT_N_COMPRESSION_TYPES] = {
    DT_COMPRESSION_LIST(DT_COMPRESSION_OPS)};

static const struct dt_allreduce_row *const allreduces[] = {
    &dt_priority_allreduce,      &dt_compressed_allreduce,
    &dt_device_allreduce,        &dt_staged_allreduce,
    &dt_shared_memory_allreduce, &dt_schedule_allreduce,
    &dt_mpi_allreduce,           NULL};

static const struct dt_strategy_row *const strategies[] = {&dt_pipeline_strategy,
                                                           &dt_deterministic_strategy,
                                                           &dt_alone_strategy,
                                                           &dt_priority_strategy,
                                                           &dt_mirrored_strategy,
                                                           &dt_server_strategy,
                                                           NULL};

static const struct dt_facts_row *const facts[] = {&dt_deterministic_facts, &dt_mirrored_facts,
                                                   &dt_priority_facts,      &dt_server_facts,
                                                   &dt_pipeline_facts,      NULL};

const struct dt_dist_rows dt_all_rows = {.strategies = strategies,
                                         .allreduce = {.implementations = allreduces,
                                                       .algorithms = dt_algorithms,
                                                       .n_algorithms = DT_N_ALGORITHMS},
                                         .codecs = codecs,
                                         .compression = &dt_compression,
                                         .facts = facts,
                                         .host_step_open = dt_host_step_open};
