#include "cli/sinks/sinks.h"

#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "base/text.h"
#include "cli/text.h"

#define DATA_SIZE 96

static const char *const sharding_names[] = {DT_SHARDING_LIST(DT_ENUM_NAME)};

/* "shard: 15,000 of 60,000 samples" */
static int data_text(const struct dt_folder_event *folder, const struct dt_run_event *run, int rank,
                     char text[DATA_SIZE])
{
    char n_rows[32], n_total[32], held[DT_BYTES_TEXT_SIZE];
    const struct dt_rank_info *info = &run->ranks[rank];
    if (!info->works) {
        return snprintf(text, DATA_SIZE, "none: serves %s of weights",
                        dt_bytes_text((double)info->held, held));
    }
    return snprintf(text, DATA_SIZE, "%s: %s of %s samples",
                    sharding_names[folder->config->sharding],
                    dt_count_text((double)info->n_samples, n_rows, sizeof n_rows),
                    dt_count_text((double)run->n_train, n_total, sizeof n_total));
}

/* Widths of the columns. */
struct columns {
    int host, device, data;
    bool full; /* with those between */
};

static int larger(int a, int b)
{
    return a > b ? a : b;
}

/* Chooses the columns between host and data: all, or only the device where there is no room for
 * all; a host that is still too wide is cut. */
static struct columns plan_columns(const struct dt_folder_event *folder,
                                   const struct dt_run_event *run, int width)
{
    struct columns c = {.host = 4, .device = 6, .data = 4};
    char text[DATA_SIZE];
    for (int r = 0; r < folder->world_size; r++) {
        c.host = larger(c.host, (int)strlen(run->ranks[r].host));
        c.device = larger(c.device, (int)strlen(run->ranks[r].device));
        c.data = larger(c.data, data_text(folder, run, r, text));
    }
    const int rest = 10 + c.device + 2 + c.data;
    c.full = width == 0 || 8 + c.host + 9 + c.device + 11 + c.data <= width;
    c.host = c.full || c.host + rest <= width ? c.host : larger(width - rest, 8);
    return c;
}

static void print_rank(FILE *out, const struct columns *c, const struct dt_rank_info *rank,
                       const char *data)
{
    char local[16] = "", threads[16] = "";
    if (c->full) {
        snprintf(local, sizeof local, "  %5d", rank->local_rank);
        snprintf(threads, sizeof threads, "  %7d", rank->n_threads);
    }
    dt_text_print(out, "  %4d  %-*.*s%s  %-*s%s  %s", rank->rank, c->host, c->host, rank->host,
                  local, c->device, rank->device, threads, data);
}

void dt_roster_print(FILE *out, const struct dt_folder_event *folder,
                     const struct dt_run_event *run, int width)
{
    const struct columns c = plan_columns(folder, run, width);
    char data[DATA_SIZE];
    fprintf(out, "  rank  %-*s%s  %-*s%s  data\n", c.host, "host", c.full ? "  local" : "",
            c.device, "device", c.full ? "  threads" : "");
    for (int r = 0; r < folder->world_size; r++) {
        data_text(folder, run, r, data);
        print_rank(out, &c, &run->ranks[r], data);
    }
}
