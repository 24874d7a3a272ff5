/* Any codec of the program, opened, for tests. */
#ifndef DT_TESTS_CODEC_OF_H
#define DT_TESTS_CODEC_OF_H

#include "dist/allreduce/formula.h"
#include "dist/compression/codec.h"
#include "dist/strategy/strategy.h"
#include "tests/lib/check.h"

/* layout: NULL: no matrices. */
static inline struct dt_codec codec_of(const struct dt_compression_spec *spec,
                                       const struct dt_codec_layout *layout)
{
    struct dt_codec codec;
    CHECK_OK(dt_codec_open(dt_all_entries.codecs, spec, layout, &codec));
    return codec;
}

/* NULL: no codec. */
static inline const struct dt_payload *payload_of(const struct dt_codec *codec, int rank)
{
    static struct dt_payload payload;
    payload = (struct dt_payload){&dt_encoded_payload, codec, rank};
    return codec == NULL || codec->spec.type == DT_COMPRESSION_NONE ? NULL : &payload;
}

#endif
