/* The names of the configuration's `distributed.allreduce`: their meanings, and the compressions
 * that go with them. */
#ifndef DT_DIST_ALLREDUCE_TYPES_H
#define DT_DIST_ALLREDUCE_TYPES_H

#include "dist/allreduce/allreduce.h"

const char *dt_allreduce_meaning(enum dt_allreduce_type type); /* in a few words */
bool dt_allreduce_is_for_gpus(enum dt_allreduce_type type);    /* and for them alone */

/* Compression applies to what the executor sends: sums of encoded numbers by any algorithm,
 * encodings that cannot be added by one that gathers. across: of struct dt_allreduce_spec; what
 * ranks of a host add in shared memory then is not encoded. auto becomes the best of these; all
 * others, and no compression, stay what they are. */
bool dt_allreduce_compresses(const struct dt_allreduce_entries *rows, enum dt_allreduce_type type,
                             int across, const struct dt_codec *codec);
enum dt_allreduce_type dt_allreduce_for_compression(enum dt_allreduce_type type,
                                                    const struct dt_codec *codec);

#endif
