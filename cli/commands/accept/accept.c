#include "cli/commands/accept/accept.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/text.h"
#include "base/version.h"
#include "cli/commands/accept/rows.h"
#include "cli/commands/doctor/checks.h"
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

/* The doctor's problems, and how many warnings there are. */
enum dt_status dt_accept_doctor(struct dt_acceptance *a, struct dt_accept_row *row)
{
    struct dt_rank_facts *ranks = NULL;
    int n_warnings = 0;
    DT_TRY(dt_facts_gather(a->world, &(struct dt_doctor_spec){.run = a->spec->run}, &ranks));
    row->passed = true;
    for (int i = 0; i < dt_n_checks && row->passed; i++) {
        const struct dt_finding finding = dt_checks[i].run(ranks, a->world->size);
        n_warnings += finding.verdict == DT_VERDICT_WARNING;
        row->passed = finding.verdict != DT_VERDICT_PROBLEM;
        snprintf(row->text, sizeof row->text, "%s: %.200s (%.150s)", dt_checks[i].name, finding.text, finding.cure);
    }
    if (row->passed) {
        snprintf(row->text, sizeof row->text, "%d checks, %d warning%s", dt_n_checks, n_warnings, n_warnings == 1 ? "" : "s");
    }
    for (int r = 0; r < a->world->size; r++) {
        memcpy(a->hosts[r], ranks[r].host, sizeof a->hosts[r]);
    }
    free(ranks);
    return DT_OK;
}

static void print_row(const struct outcome *outcome, int i)
{
    const struct dt_accept_row *row = &outcome->rows[i];
    dt_text_print(stdout, "%s  %-10s  %5.1f s  %s", row->passed ? "PASS" : "FAIL", checks[i].name, outcome->seconds[i], row->text);
    fflush(stdout);
}

/* Rank 0's verdict is everybody's: what is measured may differ in its last digit. */
static enum dt_status run_checks(struct dt_acceptance *a, struct outcome *outcome)
{
    for (int i = 0; i < N_CHECKS; i++) {
        struct dt_accept_row *row = &outcome->rows[i];
        const double begin_s = dt_clock_s();
        dt_comm_phase(a->world->comm, checks[i].name);
        DT_TRY(checks[i].run(a, row));
        DT_TRY(dt_comm_broadcast(a->world->comm, row, sizeof *row, 0, "verdict"));
        outcome->seconds[i] = dt_clock_s() - begin_s;
        outcome->n_done++;
        outcome->n_failed += !row->passed;
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

enum dt_status dt_accept(struct dt_world *world, const struct dt_accept_spec *spec)
{
    struct dt_acceptance a = {.world = world, .spec = spec};
    static struct outcome outcome; /* large for a stack */
    DT_TRY(dt_world_agree(world, dt_config_parse("accept", training, sizeof training - 1, NULL, 0, &a.config)));
    DT_TRY(dt_world_alloc(world, (size_t)world->size, sizeof *a.hosts, "the ranks' hosts", (void **)&a.hosts));
    if (world->rank == 0) {
        printf("dtrain accept: %d rank%s on %d host%s\n", world->size, world->size == 1 ? "" : "s", world->comm->n_hosts,
               world->comm->n_hosts == 1 ? "" : "s");
        fflush(stdout);
    }
    enum dt_status s = run_checks(&a, &outcome);
    s = s == DT_OK ? tell(&a, &outcome) : s;
    free(a.hosts);
    return s;
}
