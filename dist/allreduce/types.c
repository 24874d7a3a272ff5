#include "dist/allreduce/types.h"

#include "dist/compression/codec.h"

#define MEANING(constant, name, meaning) meaning,
#define ALGORITHM_MEANING(constant, name, c_name, gathers, meaning) meaning,
static const char *const meanings[DT_N_ALLREDUCE_TYPES] = {
    DT_ALLREDUCE_OTHER_LIST(MEANING) DT_ALGORITHM_LIST(ALGORITHM_MEANING)};

const char *dt_allreduce_meaning(enum dt_allreduce_type type)
{
    return meanings[type];
}

bool dt_allreduce_is_for_gpus(enum dt_allreduce_type type)
{
    return type == DT_ALLREDUCE_NCCL || type == DT_ALLREDUCE_STAGED;
}

bool dt_allreduce_compresses(const struct dt_allreduce_entries *rows, enum dt_allreduce_type type,
                             int across, const struct dt_codec *codec)
{
    const struct dt_algorithm *algorithm = dt_allreduce_algorithm(
        rows, type == DT_ALLREDUCE_HIERARCHICAL ? DT_ALLREDUCE_OF_ALGORITHM(across) : type);
    return codec->spec.type == DT_COMPRESSION_NONE || type == DT_ALLREDUCE_AUTO ||
           (algorithm != NULL && (algorithm->gathers || codec->ops->summable));
}

enum dt_allreduce_type dt_allreduce_for_compression(enum dt_allreduce_type type,
                                                    const struct dt_codec *codec)
{
    if (codec->spec.type == DT_COMPRESSION_NONE || type != DT_ALLREDUCE_AUTO) {
        return type;
    }
    return codec->ops->summable ? DT_ALLREDUCE_RING : DT_ALLREDUCE_ALL_TO_ALL;
}
