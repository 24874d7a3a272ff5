/* Checks the job's launch, and runs the doctor. */
#include <stdio.h>

#include "ops/accept/outcome.h"
#include "ops/doctor/checks.h"

/* Finds a host with another number of ranks than the first; -1: all are equal. */
static int find_uneven(const struct dt_acceptance *a)
{
    for (int r = 0; r < a->world->size; r++) {
        if (dt_accept_ranks_on_host(a, r) != dt_accept_ranks_on_host(a, 0)) {
            return r;
        }
    }
    return -1;
}

/* Turns a finding of the doctor's into a row. */
static void take_finding(const char *name, const struct dt_finding *finding,
                         struct dt_accept_row *row)
{
    row->verdict = dt_accept_verdict(finding->verdict != DT_VERDICT_PROBLEM);
    snprintf(row->text, sizeof row->text, "%s: %.200s (%.150s)", name, finding->text,
             finding->cure);
}

enum dt_status dt_accept_launch(struct dt_acceptance *a, struct dt_accept_row *row)
{
    const struct dt_finding versions = dt_check_run("versions", a->ranks, a->world->size);
    const int uneven = find_uneven(a), n_each = dt_accept_ranks_on_host(a, 0);
    take_finding("versions", &versions, row);
    if (row->verdict == DT_ACCEPT_PASS && uneven >= 0) {
        row->verdict = DT_ACCEPT_FAIL;
        dt_accept_blame(a, a->hosts[uneven], -1);
        snprintf(row->text, sizeof row->text,
                 "%s has %d rank%s, %s has %d (start as many on each: mpirun -ppn, srun "
                 "--ntasks-per-node)",
                 a->hosts[uneven], dt_accept_ranks_on_host(a, uneven),
                 dt_accept_ranks_on_host(a, uneven) == 1 ? "" : "s", a->hosts[0], n_each);
    } else if (row->verdict == DT_ACCEPT_PASS) {
        snprintf(row->text, sizeof row->text, "%d rank%s on each host, %s", n_each,
                 n_each == 1 ? "" : "s", versions.text);
    }
    return DT_OK;
}

/* The first problem; without one, the number of findings of each kind. Warnings follow the row
 * (dt_accept_next_warning). */
enum dt_status dt_accept_doctor(struct dt_acceptance *a, struct dt_accept_row *row)
{
    int counts[DT_N_VERDICTS] = {0};
    row->verdict = DT_ACCEPT_PASS;
    for (int i = 0; i < dt_n_checks && row->verdict == DT_ACCEPT_PASS; i++) {
        const struct dt_finding finding = dt_checks[i].run(a->ranks, a->world->size);
        counts[finding.verdict]++;
        take_finding(dt_checks[i].name, &finding, row);
    }
    if (row->verdict == DT_ACCEPT_PASS) {
        snprintf(row->text, sizeof row->text, "%d ok, %d not checked, %d warning%s",
                 counts[DT_VERDICT_OK], counts[DT_VERDICT_NONE], counts[DT_VERDICT_WARNING],
                 counts[DT_VERDICT_WARNING] == 1 ? "" : "s");
    }
    return DT_OK;
}
