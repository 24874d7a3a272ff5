/* The images that cannot be read, of all ranks. */
#include <stdlib.h>
#include <string.h>

#include "data/bad_images.h"
#include "train/parts.h"

enum dt_status dt_bad_images_open(struct dt_data_spec *spec)
{
    if (spec->format != DT_DATA_IMAGES) {
        return DT_OK;
    }
    spec->bad = calloc(1, sizeof *spec->bad);
    spec->settle = dt_bad_images_agree;
    return spec->bad != NULL ? DT_OK : dt_error(DT_NO_MEMORY, "no memory for a list of bad images");
}

void dt_bad_images_close(struct dt_data_spec *spec)
{
    if (spec->bad != NULL) {
        dt_bad_close(spec->bad);
        free(spec->bad);
    }
    spec->bad = NULL;
    spec->settle = NULL;
}

static enum dt_status gather(struct dt_world *world, struct dt_bad_images *bad, size_t most,
                             char *mine, char *all)
{
    memcpy(mine, bad->lines != NULL ? bad->lines : "", bad->n_bytes);
    DT_TRY(dt_comm_allgather(world->comm, mine, all, most, "names of images that cannot be read"));
    enum dt_status s = DT_OK;
    bad->n_bytes = 0;
    for (int r = 0; r < world->size && s == DT_OK; r++) {
        const char *lines = all + (size_t)r * most;
        s = dt_bad_add(bad, lines, strnlen(lines, most));
    }
    return dt_world_agree(world, s);
}

enum dt_status dt_bad_images_agree(struct dt_world *world, const struct dt_data_spec *spec,
                                   bool *again)
{
    struct dt_bad_images *bad = spec->bad;
    uint64_t most = bad->n_bytes;
    char *memory = NULL;
    DT_TRY(dt_comm_allreduce(world->comm, &most, 1, DT_TYPE_U64, DT_REDUCE_MAX,
                             "size of a list of images"));
    *again = most > 0;
    if (most == 0) {
        return DT_OK;
    }
    DT_TRY(dt_world_alloc(world, (size_t)world->size + 1, (size_t)most, "names of images",
                          (void **)&memory));
    enum dt_status s = gather(world, bad, (size_t)most, memory, memory + most);
    free(memory);
    s = s == DT_OK ? dt_world_agree(world, dt_bad_decide(bad, (size_t)spec->skip_bad)) : s;
    return s;
}
