/* The names, what they mean, and which of them go with a compression; for who knows no
 * communicator, too. */
#include "dist/allreduce/allreduce.h"

#define NAME(constant, name, ...) name,
const char *const dt_allreduce_names[DT_N_ALLREDUCE_TYPES] = {DT_ALLREDUCE_LIST(NAME)};

#define MEANING(constant, name, meaning) meaning,
static const char *const way_meanings[] = {DT_ALLREDUCE_WAY_LIST(MEANING)};
enum { N_WAYS = sizeof way_meanings / sizeof way_meanings[0] }; /* they come first */

const struct dt_algorithm *dt_allreduce_algorithm(enum dt_allreduce_type type)
{
    return dt_algorithm_find(dt_allreduce_names[type]);
}

const char *dt_allreduce_meaning(enum dt_allreduce_type type)
{
    return (int)type < N_WAYS ? way_meanings[type] : dt_allreduce_algorithm(type)->meaning;
}

bool dt_allreduce_is_for_gpus(enum dt_allreduce_type type)
{
    return type == DT_ALLREDUCE_NCCL || type == DT_ALLREDUCE_STAGED;
}

bool dt_allreduce_compresses(enum dt_allreduce_type type, int across,
                             enum dt_compression_type compression)
{
    const struct dt_compression_spec spec = {.type = compression};
    const struct dt_algorithm *algorithm =
        type == DT_ALLREDUCE_HIERARCHICAL ? &dt_algorithms[across] : dt_allreduce_algorithm(type);
    return compression == DT_COMPRESSION_NONE || type == DT_ALLREDUCE_AUTO ||
           (algorithm != NULL && (algorithm->gathers || dt_codec_of(&spec).ops->summable));
}

enum dt_allreduce_type dt_allreduce_for_compression(enum dt_allreduce_type type,
                                                    enum dt_compression_type compression)
{
    if (compression == DT_COMPRESSION_NONE || type != DT_ALLREDUCE_AUTO) {
        return type;
    }
    return dt_allreduce_compresses(DT_ALLREDUCE_RING, 0, compression) ? DT_ALLREDUCE_RING
                                                                      : DT_ALLREDUCE_ALL_TO_ALL;
}
