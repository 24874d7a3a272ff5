#include "train/rank_checks.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "base/status.h"

struct affinity {
    char host[DT_HOST_SIZE];
    cpu_set_t cores;
};

enum dt_status dt_ranks_threads(struct dt_world *world, int64_t wanted, int *n_threads)
{
    struct affinity mine;
    memset(&mine, 0, sizeof mine);
    memcpy(mine.host, world->host, sizeof mine.host);
    if (sched_getaffinity(0, sizeof mine.cores, &mine.cores) != 0) {
        CPU_SET(0, &mine.cores);
    }
    struct affinity *all;
    DT_TRY(
        dt_world_alloc(world, (size_t)world->size, sizeof *all, "affinity masks", (void **)&all));
    const enum dt_status s =
        dt_comm_allgather(world->comm, &mine, all, sizeof mine, "exchange of affinity masks");
    int n_sharing = 1;
    DT_ASSERT(s != DT_OK || memcmp(&all[world->rank], &mine, sizeof mine) == 0);
    for (int r = 0; s == DT_OK && r < world->size; r++) {
        n_sharing += r != world->rank && memcmp(&all[r], &mine, sizeof mine) == 0;
    }
    free(all);
    DT_TRY(s);
    *n_threads = CPU_COUNT(&mine.cores) / n_sharing;
    if (wanted > 0) {
        *n_threads = (int)wanted;
    }
    *n_threads = *n_threads < 1 ? 1 : *n_threads;
    DT_ASSERT(*n_threads >= 1);
    return DT_OK;
}

/* `other`: the first rank of another text, or 0. */
static enum dt_status compare(struct dt_world *world, const char *what, const char *text,
                              int *other)
{
    struct identity {
        char host[DT_HOST_SIZE], version[32];
        uint32_t crc;
    } mine;
    memset(&mine, 0, sizeof mine); /* padding too: it travels */
    memcpy(mine.host, world->host, sizeof mine.host);
    snprintf(mine.version, sizeof mine.version, "%s", dt_version);
    mine.crc = (uint32_t)crc32(0, (const Bytef *)text, (uInt)strlen(text));
    struct identity *all;
    DT_TRY(dt_world_alloc(world, (size_t)world->size, sizeof *all, "a comparison of the ranks",
                          (void **)&all));
    enum dt_status s =
        dt_comm_allgather(world->comm, &mine, all, sizeof mine, "comparison of the ranks");
    for (int r = 1; s == DT_OK && r < world->size; r++) {
        if (strcmp(all[r].version, all[0].version) != 0) {
            s = dt_error_agreed(dt_error(
                DT_CONFIG,
                "rank %d (%s) runs dtrain %s, rank 0 runs %s (install one version everywhere)", r,
                all[r].host, all[r].version, all[0].version));
        } else if (all[r].crc != all[0].crc) {
            *other = r;
            s = dt_error_agreed(dt_error(DT_CONFIG,
                                         "rank %d (%s) has a different %s: crc %08x, rank 0's is "
                                         "%08x (give all ranks the same)",
                                         r, all[r].host, what, all[r].crc, all[0].crc));
        }
    }
    free(all);
    return s;
}

enum dt_status dt_ranks_same(struct dt_world *world, const char *what, const char *text)
{
    int other = 0;
    return compare(world, what, text, &other);
}

/* On rank `other` `text` is another one than on rank 0. Every rank calls it. */
static enum dt_status name_difference(struct dt_world *world, const struct dt_config_format *format,
                                      const char *text, int other)
{
    DT_ASSERT(other >= 1 && other < world->size);
    struct {
        char host[DT_HOST_SIZE], text[256];
    } found = {.text = ""};
    uint64_t n = strlen(text) + 1;
    char *first;
    DT_TRY(dt_comm_broadcast(world->comm, &n, sizeof n, 0, "comparison of the ranks"));
    DT_TRY(dt_world_alloc(world, (size_t)n, 1, "a comparison of the ranks", (void **)&first));
    memcpy(first, text, world->rank == 0 ? (size_t)n : 0);
    enum dt_status s =
        dt_comm_broadcast(world->comm, first, (size_t)n, 0, "comparison of the ranks");
    if (s == DT_OK) {
        memcpy(found.host, world->host, sizeof found.host);
        s = dt_world_agree(world, format->compare(first, text, "", found.text, sizeof found.text));
    }
    free(first);
    DT_TRY(s);
    DT_TRY(dt_comm_broadcast(world->comm, &found, sizeof found, other, "comparison of the ranks"));
    return dt_error_agreed(dt_error(
        DT_CONFIG,
        "rank %d (%s) has another configuration than rank 0, whose %s (give all ranks the same)",
        other, found.host, found.text));
}

enum dt_status dt_ranks_same_config(struct dt_world *world, const struct dt_config_format *format,
                                    const char *text)
{
    int other = 0;
    const enum dt_status s = compare(world, "configuration", text, &other);
    if (other == 0) {
        return s;
    }
    dt_error_clear();
    return name_difference(world, format, text, other);
}

enum dt_status dt_ranks_gather(struct dt_world *world, const struct dt_rank_info *mine,
                               struct dt_rank_info *all)
{
    return dt_comm_allgather(world->comm, mine, all, sizeof *mine, "exchange of the roster");
}
