#include "cli/commands/accept/accept.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/text.h"
#include "base/version.h"
#include "cli/commands/accept/rows.h"
#include "cli/page/page.h"

/* Learns in a second what it has to; a batch for any number of ranks. */
static const char training[] =
    "{\"data\": {\"format\": \"synthetic\", \"train_samples\": 4096, \"test_samples\": 512, \"noise\": 0.1},"
    " \"model\": {\"input\": [1, 12, 12], \"layers\": [{\"type\": \"conv2d\", \"filters\": 8, \"kernel\": 3, \"activation\": "
    "\"relu\"},"
    " {\"type\": \"max_pool2d\", \"size\": 2}, {\"type\": \"flatten\"}, {\"type\": \"dense\", \"units\": 4}]},"
    " \"train\": {\"epochs\": 5, \"seed\": 1, \"batch\": {\"global\": 64}, \"optimizer\": {\"type\": \"adam\", \"lr\": 0.01}},"
    " \"distributed\": {\"check_every\": 1}, \"log\": {\"every_s\": 0}}";

static const struct {
    const char *name;
    enum dt_status (*run)(struct dt_acceptance *a, struct dt_accept_row *row);
} checks[] = {
#define ROW(name, meaning) {#name, dt_accept_##name},
    DT_ACCEPT_LIST(ROW)};
#define N_CHECKS ((int)(sizeof checks / sizeof checks[0]))

/* What is told of all of them. */
struct outcome {
    struct dt_accept_row rows[N_CHECKS];
    double seconds[N_CHECKS];
    int n_done, n_failed;
};

static void print_row(const struct outcome *outcome, int i)
{
    const struct dt_accept_row *row = &outcome->rows[i];
    dt_text_print(stdout, "%s  %-10s  %5.1f s  %s", row->passed ? "PASS" : "FAIL", checks[i].name, outcome->seconds[i], row->text);
    fflush(stdout);
}

/* An error on which all ranks agree is what is wrong with the row, and the others can go on. */
static enum dt_status take_error(const struct dt_acceptance *a, enum dt_status status, struct dt_accept_row *row)
{
    if (status == DT_OK || status == DT_STALLED || status == DT_STOPPED || (a->world->size > 1 && !dt_error_is_agreed())) {
        return status;
    }
    row->passed = false;
    snprintf(row->text, sizeof row->text, "%s", dt_error_text());
    dt_error_clear();
    return DT_OK;
}

/* Where the row fails and says of no rank that it is to blame, all are. */
static void find_blame(struct dt_acceptance *a, const struct dt_accept_row *row)
{
    bool any = row->passed;
    for (int r = 0; r < a->world->size; r++) {
        any = any || a->cells[r].failed;
    }
    for (int r = 0; r < a->world->size && !any; r++) {
        a->cells[r].failed = true;
    }
}

/* Rank 0's verdict is everybody's: what is measured may differ in its last digit. */
static enum dt_status run_check(struct dt_acceptance *a, int i, struct dt_accept_row *row)
{
    struct dt_comm *comm = a->world->comm;
    for (int r = 0; r < comm->size; r++) {
        a->cells[r] = (struct dt_accept_cell){.value = (double)NAN};
    }
    dt_comm_phase(comm, checks[i].name);
    DT_TRY(take_error(a, checks[i].run(a, row), row));
    find_blame(a, row);
    return dt_comm_broadcast(comm, row, sizeof *row, 0, "verdict");
}

static enum dt_status run_checks(struct dt_acceptance *a, struct outcome *outcome)
{
    for (int i = 0; i < N_CHECKS; i++) {
        const double begin_s = dt_clock_s();
        DT_TRY(run_check(a, i, &outcome->rows[i]));
        outcome->seconds[i] = dt_clock_s() - begin_s;
        outcome->n_done++;
        outcome->n_failed += !outcome->rows[i].passed;
        if (a->world->rank == 0) {
            print_row(outcome, i);
        }
    }
    return DT_OK;
}

/* ---- JUnit */

static void put_case(FILE *out, const struct outcome *outcome, int i)
{
    const struct dt_accept_row *row = &outcome->rows[i];
    fprintf(out, "  <testcase classname=\"dtrain.accept\" name=\"%s\" time=\"%.3f\">", checks[i].name, outcome->seconds[i]);
    fputs(row->passed ? "<system-out>" : "<failure message=\"", out);
    dt_page_text(out, row->text);
    fputs(row->passed ? "</system-out></testcase>\n" : "\"/></testcase>\n", out);
}

static enum dt_status write_junit(const char *path, const struct outcome *outcome)
{
    char *text = NULL;
    size_t n = 0;
    FILE *out = open_memstream(&text, &n);
    if (out == NULL) {
        return dt_error(DT_NO_MEMORY, "no memory for %.200s", path);
    }
    fprintf(out, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuite name=\"dtrain accept %s\" tests=\"%d\" failures=\"%d\">\n",
            dt_version, outcome->n_done, outcome->n_failed);
    for (int i = 0; i < outcome->n_done; i++) {
        put_case(out, outcome, i);
    }
    fputs("</testsuite>\n", out);
    const enum dt_status s = fclose(out) == 0 ? dt_file_write_path(path, &(struct dt_file_part){text, n}, 1)
                                              : dt_error(DT_NO_MEMORY, "no memory for %.200s", path);
    free(text);
    return s;
}

static enum dt_status tell(const struct dt_acceptance *a, const struct outcome *outcome)
{
    if (a->world->rank == 0) {
        printf("%d of %d passed\n", outcome->n_done - outcome->n_failed, outcome->n_done);
    }
    const bool writes = a->world->rank == 0 && a->spec->junit != NULL;
    DT_TRY(dt_world_agree(a->world, writes ? write_junit(a->spec->junit, outcome) : DT_OK));
    if (outcome->n_failed > 0) {
        return dt_error_agreed(dt_error(DT_FAILED, "accept: %d of %d checks failed (the rows that begin with FAIL say what)",
                                        outcome->n_failed, outcome->n_done));
    }
    return DT_OK;
}

/* What the rows begin with. */
static enum dt_status prepare(struct dt_acceptance *a)
{
    struct dt_world *world = a->world;
    const size_t n = (size_t)world->size;
    DT_TRY(dt_world_agree(world, dt_config_parse("accept", training, sizeof training - 1, NULL, 0, &a->config)));
    DT_TRY(dt_device_choose(world, &a->config, &a->device));
    DT_TRY(dt_world_alloc(world, n, sizeof *a->hosts, "the ranks' hosts", (void **)&a->hosts));
    DT_TRY(dt_world_alloc(world, n, sizeof *a->cells, "what is found of ranks", (void **)&a->cells));
    DT_TRY(dt_facts_gather(world, &(struct dt_doctor_spec){.run = a->spec->run}, &a->ranks));
    for (int r = 0; r < world->size; r++) {
        memcpy(a->hosts[r], a->ranks[r].host, sizeof a->hosts[r]);
    }
    return DT_OK;
}

enum dt_status dt_accept(struct dt_world *world, const struct dt_accept_spec *spec)
{
    struct dt_acceptance a = {.world = world, .spec = spec, .measure_s = spec->quick ? 0.1 : 1};
    static struct outcome outcome; /* large for a stack */
    if (world->rank == 0) {
        printf("dtrain accept: %d rank%s on %d host%s\n", world->size, world->size == 1 ? "" : "s", world->comm->n_hosts,
               world->comm->n_hosts == 1 ? "" : "s");
        fflush(stdout);
    }
    enum dt_status s = prepare(&a);
    s = s == DT_OK ? run_checks(&a, &outcome) : s;
    s = s == DT_OK ? tell(&a, &outcome) : s;
    free(a.links.bandwidth);
    free(a.links.latency);
    free(a.ranks);
    free(a.cells);
    free(a.hosts);
    return s;
}
