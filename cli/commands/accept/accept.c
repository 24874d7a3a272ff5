#include "cli/commands/accept/accept.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "cli/commands/accept/show.h"

/* Learns in a second what it has to; a batch for any number of ranks. */
static const char training[] =
    "{\"data\": {\"format\": \"synthetic\", \"train_samples\": 4096, \"test_samples\": 512, \"noise\": 0.1},"
    " \"model\": {\"input\": [1, 12, 12], \"layers\": [{\"type\": \"conv2d\", \"filters\": 8, \"kernel\": 3, \"activation\": "
    "\"relu\"},"
    " {\"type\": \"max_pool2d\", \"size\": 2}, {\"type\": \"flatten\"}, {\"type\": \"dense\", \"units\": 4}]},"
    " \"train\": {\"epochs\": 5, \"seed\": 1, \"batch\": {\"global\": 64}, \"optimizer\": {\"type\": \"adam\", \"lr\": 0.01}},"
    " \"distributed\": {\"check_every\": 1}, \"log\": {\"every_s\": 0}}";

#define CHECK(name, meaning) dt_accept_##name,
static enum dt_status (*const checks[DT_N_ACCEPT])(struct dt_acceptance *a, struct dt_accept_row *row) = {DT_ACCEPT_LIST(CHECK)};

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

/* Rank 0's verdict is everybody's: what is measured may differ in its last digit, and it alone has the baseline. */
static enum dt_status run_check(struct dt_acceptance *a, const struct dt_accept_baseline *baseline, int i,
                                struct dt_accept_row *row)
{
    struct dt_comm *comm = a->world->comm;
    for (int r = 0; r < comm->size; r++) {
        a->cells[r] = (struct dt_accept_cell){.value = (double)NAN};
    }
    dt_comm_phase(comm, dt_accept_names[i]);
    DT_TRY(take_error(a, checks[i](a, row), row));
    if (a->world->rank == 0 && a->spec->baseline != NULL) {
        dt_accept_baseline_apply(baseline, i, row);
    }
    find_blame(a, row);
    return dt_comm_broadcast(comm, row, sizeof *row, 0, "verdict");
}

static enum dt_status run_checks(struct dt_acceptance *a, const struct dt_accept_baseline *baseline,
                                 struct dt_accept_outcome *outcome)
{
    for (int i = 0; i < DT_N_ACCEPT; i++) {
        const double begin_s = dt_clock_s();
        a->cells = outcome->cells + i * a->world->size;
        if (a->world->rank == 0) {
            dt_accept_show_running(a, i);
        }
        DT_TRY(run_check(a, baseline, i, &outcome->rows[i]));
        outcome->seconds[i] = dt_clock_s() - begin_s;
        outcome->n_done++;
        outcome->n_failed += !outcome->rows[i].passed;
        if (a->world->rank == 0) {
            dt_accept_show_row(a, outcome, i);
        }
    }
    return DT_OK;
}

static enum dt_status write_files(const struct dt_acceptance *a, const struct dt_accept_outcome *outcome)
{
    const struct dt_accept_spec *spec = a->spec;
    DT_TRY(spec->junit != NULL ? dt_accept_write_junit(spec->junit, outcome) : DT_OK);
    DT_TRY(spec->json != NULL ? dt_accept_write_json(spec->json, a, outcome) : DT_OK);
    return spec->html != NULL ? dt_accept_write_page(spec->html, a, outcome) : DT_OK;
}

static enum dt_status tell(const struct dt_acceptance *a, const struct dt_accept_outcome *outcome)
{
    if (a->world->rank == 0) {
        dt_accept_show_end(outcome);
    }
    DT_TRY(dt_world_agree(a->world, a->world->rank == 0 ? write_files(a, outcome) : DT_OK));
    if (outcome->n_failed > 0) {
        return dt_error_agreed(dt_error(DT_FAILED, "accept: %d of %d checks failed (the rows that begin with FAIL say what)",
                                        outcome->n_failed, outcome->n_done));
    }
    return DT_OK;
}

/* What the rows begin with. */
static enum dt_status prepare(struct dt_acceptance *a, struct dt_accept_baseline *baseline, struct dt_accept_outcome *outcome)
{
    struct dt_world *world = a->world;
    const size_t n = (size_t)world->size;
    DT_TRY(dt_world_agree(world, dt_config_parse("accept", training, sizeof training - 1, NULL, 0, &a->config)));
    DT_TRY(dt_device_choose(world, &a->config, &a->device));
    DT_TRY(dt_world_alloc(world, n, sizeof *a->hosts, "the ranks' hosts", (void **)&a->hosts));
    DT_TRY(dt_world_alloc(world, DT_N_ACCEPT * n, sizeof *outcome->cells, "what is found of ranks", (void **)&outcome->cells));
    DT_TRY(dt_facts_gather(world, &(struct dt_doctor_spec){.run = a->spec->run}, &a->ranks));
    for (int r = 0; r < world->size; r++) {
        memcpy(a->hosts[r], a->ranks[r].host, sizeof a->hosts[r]);
    }
    const bool reads = world->rank == 0 && a->spec->baseline != NULL;
    return dt_world_agree(world, reads ? dt_accept_baseline_read(a, a->spec->baseline, baseline) : DT_OK);
}

enum dt_status dt_accept(struct dt_world *world, const struct dt_accept_spec *spec)
{
    struct dt_acceptance a = {.world = world, .spec = spec, .measure_s = spec->quick ? 0.1 : 1};
    static struct dt_accept_outcome outcome; /* large for a stack */
    static struct dt_accept_baseline baseline;
    if (world->rank == 0) {
        dt_accept_show_begin(&a);
    }
    enum dt_status s = prepare(&a, &baseline, &outcome);
    s = s == DT_OK ? run_checks(&a, &baseline, &outcome) : s;
    if (s != DT_OK && world->rank == 0) {
        dt_accept_show_break();
    }
    s = s == DT_OK ? tell(&a, &outcome) : s;
    free(a.links.bandwidth);
    free(a.links.latency);
    free(a.ranks);
    free(outcome.cells);
    free(a.hosts);
    return s;
}
