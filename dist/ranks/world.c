#include "dist/ranks/world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A rank's report to the others. */
struct dt_report {
    int32_t status;
    uint32_t text_hash; /* FNV-1a */
};

static uint32_t hash_text(const char *text)
{
    uint32_t hash = 2166136261u;
    for (; *text != '\0'; text++) {
        hash = (hash ^ (unsigned char)*text) * 16777619u;
    }
    return hash;
}

/* The lowest failing rank, or -1; `alike`: all ranks report the same. */
static int find_failure(const struct dt_report *reports, int n, bool *alike)
{
    int first = -1;
    *alike = true;
    for (int i = 0; i < n; i++) {
        if (reports[i].status != DT_OK && first < 0) {
            first = i;
        }
        *alike = *alike && memcmp(&reports[i], &reports[0], sizeof reports[i]) == 0;
    }
    return first;
}

/* The text of rank `first` becomes everybody's. */
static enum dt_status share_failure(struct dt_world *world, int first, bool alike,
                                    enum dt_status status)
{
    DT_ASSERT(first >= 0 && first < world->size && status != DT_OK);
    char text[DT_ERROR_TEXT_SIZE] = "";
    if (world->rank == first && alike) {
        snprintf(text, sizeof text, "%s", dt_error_text());
    } else if (world->rank == first) {
        snprintf(text, sizeof text, "rank %d (%s): %.*s", world->rank, world->host,
                 DT_ERROR_TEXT_SIZE - DT_HOST_SIZE - 20, dt_error_text());
    }
    DT_TRY(
        dt_comm_broadcast(world->comm, text, sizeof text, first, "broadcast of an error's text"));
    dt_error_clear();
    return dt_error_agreed(dt_error(status, "%s", text));
}

enum dt_status dt_world_agree(struct dt_world *world, enum dt_status mine)
{
    DT_ASSERT(mine == DT_OK || world->size == 1 || dt_error_text()[0] != '\0');
    if (world->size == 1) {
        return mine;
    }
    if (world->reports == NULL) { /* while the world is opened, and kept: later, want of memory is
                                     itself to be agreed on */
        world->reports = calloc((size_t)world->size, sizeof *world->reports);
    }
    if (world->reports == NULL) {
        return dt_error(DT_NO_MEMORY, "no memory to agree with the other ranks");
    }
    const struct dt_report report = {.status = (int32_t)mine,
                                     .text_hash = mine == DT_OK ? 0 : hash_text(dt_error_text())};
    bool alike;
    DT_TRY(dt_comm_allgather(world->comm, &report, world->reports, sizeof report,
                             "agreement on errors"));
    const int first = find_failure(world->reports, world->size, &alike);
    DT_ASSERT(world->reports[world->rank].status == report.status);
    return first < 0
               ? DT_OK
               : share_failure(world, first, alike, (enum dt_status)world->reports[first].status);
}

enum dt_status dt_world_alloc(struct dt_world *world, size_t n, size_t n_bytes, const char *what,
                              void **out)
{
    void *memory = calloc(n, n_bytes);
    const enum dt_status s = dt_world_agree(
        world, memory != NULL ? DT_OK : dt_error(DT_NO_MEMORY, "out of memory for %s", what));
    *out = s == DT_OK ? memory : NULL;
    free(s == DT_OK ? NULL : memory);
    return s;
}

void dt_world_close(struct dt_world *world)
{
    dt_comm_close(world->comm);
    free(world->reports);
    *world = (struct dt_world){.comm = NULL};
}
