/* Adding what is encoded: in messages of our own, also between devices, because MPI and NCCL add
 * floats alone. Chooses the algorithm and leaves the sum to the implementations behind. */
#include <stdio.h>

#include "dist/allreduce/types.h"
#include "dist/compression/codec.h"

static bool serves(const struct dt_allreduce_spec *spec)
{
    return spec->encoding.codec != NULL && spec->comm->size > 1;
}

static enum dt_status open_compressed(const struct dt_allreduce_spec *spec,
                                      struct dt_allreduce **out)
{
    DT_ASSERT(spec->encoding.codec->spec.type != DT_COMPRESSION_NONE);
    const char *name = dt_compression_names[spec->encoding.codec->spec.type];
    struct dt_allreduce_spec messages = *spec;
    messages.type = dt_allreduce_for_compression(spec->type, spec->encoding.codec);
    if (!dt_allreduce_compresses(&spec->rows, spec->type, spec->across, spec->encoding.codec)) {
        return dt_error(DT_INTERNAL, "the allreduce %s cannot compress by %s",
                        dt_allreduce_names[spec->type], name);
    }
    DT_TRY(dt_allreduce_open(&messages, out));
    if (spec->type == DT_ALLREDUCE_AUTO && *out != NULL) {
        snprintf((*out)->why, sizeof(*out)->why, "gradients are sent as %s", name);
    }
    return DT_OK;
}

const struct dt_allreduce_entry dt_compressed_allreduce = {.serves = serves,
                                                           .open = open_compressed};
