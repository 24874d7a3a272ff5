/* The rows of a program that links all of dist/: dtrain's. */
#include <string.h>

#include "dist/strategy/check_compression.h"
#include "dist/strategy/mirrored.h"
#include "dist/strategy/summary/summary.h"

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

static const struct dt_allreduce_entry *const allreduces[] = {&dt_compressed_allreduce,
                                                              &dt_device_allreduce,
                                                              &dt_staged_allreduce,
                                                              &dt_shared_memory_allreduce,
                                                              &dt_mpi_allreduce,
                                                              &dt_scheduled_allreduce,
                                                              NULL};

static const struct dt_strategy_entry *const strategies[] = {&dt_pipeline_strategy,
                                                             &dt_deterministic_strategy,
                                                             &dt_alone_strategy,
                                                             &dt_priority_strategy,
                                                             &dt_mirrored_strategy,
                                                             &dt_server_strategy,
                                                             NULL};

static const struct dt_summary_entry *const facts[] = {
    &dt_deterministic_summary, &dt_mirrored_summary, &dt_priority_summary,
    &dt_server_summary,        &dt_pipeline_summary, NULL};

const struct dt_dist_entries dt_all_entries = {.strategies = strategies,
                                               .allreduce = {.implementations = allreduces,
                                                             .algorithms = dt_algorithms,
                                                             .n_algorithms = DT_N_ALGORITHMS},
                                               .codecs = codecs,
                                               .compression = &dt_compression,
                                               .facts = facts,
                                               .host_step_open = dt_host_step_open};
