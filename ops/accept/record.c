/* The parts of a record that all its files share: hosts, warnings, and the count of verdicts. */
#include <stdio.h>
#include <string.h>

#include "ops/accept/outcome.h"
#include "ops/doctor/checks.h"

enum dt_accept_verdict dt_accept_host_verdict(const struct dt_acceptance *a, int i, int rank)
{
    const enum dt_accept_verdict row = a->rows[i].verdict;
    bool failed = false;
    for (int r = 0; r < a->world->size; r++) {
        failed |= a->all_cells[i * a->world->size + r].failed &&
                  dt_facts_same_host(&a->ranks[r], &a->ranks[rank]);
    }
    return row == DT_ACCEPT_FAIL ? dt_accept_verdict(!failed) : row;
}

/* "node1: 4 ranks, 4 with a GPU, NVIDIA H200; 64 CPUs, AMD EPYC 9654; Linux 6.1.0" */
static void host_text(const struct dt_acceptance *a, int rank, char *text, size_t size)
{
    const struct dt_rank_facts *f = &a->ranks[rank];
    const int n = dt_facts_on_host(a->ranks, a->world->size, rank);
    int n_gpus = 0;
    char gpus[128] = "";
    for (int r = 0; r < a->world->size; r++) {
        n_gpus += a->ranks[r].has_gpu && dt_facts_same_host(&a->ranks[r], &a->ranks[rank]);
    }
    if (n_gpus > 0) {
        snprintf(gpus, sizeof gpus, ", %d with a GPU, %s", n_gpus, f->gpu);
    }
    snprintf(text, size, "%s: %d rank%s%s; %d CPU%s%s%s; %s", f->host, n, n == 1 ? "" : "s", gpus,
             f->n_host_cpus, f->n_host_cpus == 1 ? "" : "s", f->cpu[0] != '\0' ? ", " : "", f->cpu,
             f->kernel);
}

void dt_accept_record_put(const struct dt_acceptance *a, FILE *out,
                          void (*put)(FILE *out, const char *key, const char *text))
{
    char text[DT_ACCEPT_WARNING_SIZE];
#define PUT(key, text) put(out, #key, text);
    DT_ACCEPT_RECORD_LIST(PUT)
    for (int r = 0; r < a->world->size; r++) {
        if (dt_facts_is_first(a->ranks, r)) {
            host_text(a, r, text, sizeof text);
            put(out, "host", text);
        }
    }
}

bool dt_accept_next_warning(const struct dt_acceptance *a, int *i,
                            char text[DT_ACCEPT_WARNING_SIZE])
{
    while (*i < dt_n_checks) {
        const struct dt_check *check = &dt_checks[(*i)++];
        const struct dt_finding finding = check->run(a->ranks, a->world->size);
        if (finding.verdict == DT_VERDICT_WARNING) {
            snprintf(text, DT_ACCEPT_WARNING_SIZE, "%s: %s (%s)", check->name, finding.text,
                     finding.cure);
            return true;
        }
    }
    return false;
}

void dt_accept_sum_text(const struct dt_acceptance *a, char *text, size_t size)
{
    static const char *const words[DT_N_ACCEPT_VERDICTS] = {[DT_ACCEPT_FAIL] = "failed",
                                                            [DT_ACCEPT_MEASURED] = "measured",
                                                            [DT_ACCEPT_SKIPPED] = "skipped"};
    size_t n =
        (size_t)snprintf(text, size, "%d of %d passed", a->counts[DT_ACCEPT_PASS], a->n_done);
    for (int v = 0; v < DT_N_ACCEPT_VERDICTS; v++) {
        if (words[v] != NULL && a->counts[v] > 0 && n < size) {
            n += (size_t)snprintf(text + n, size - n, ", %d %s", a->counts[v], words[v]);
        }
    }
}

#define CHECK(name, meaning) {#name, meaning, dt_accept_##name},
const struct dt_accept_check dt_accept_checks[DT_N_ACCEPT] = {DT_ACCEPT_LIST(CHECK)};

#define VERDICT(constant, ...) {__VA_ARGS__},
const struct dt_accept_verdict_name dt_accept_verdicts[DT_N_ACCEPT_VERDICTS] = {
    DT_ACCEPT_VERDICT_LIST(VERDICT)};
