/* Checks the job's launch, and runs the doctor. */
#include "ops/accept/outcome.h"
#include "ops/doctor/checks.h"

/* Turns a finding of the doctor's into a row. */
static void take_finding(const char *name, const struct dt_finding *finding,
                         struct dt_accept_row *row)
{
    dt_accept_say(row, dt_accept_verdict(finding->verdict != DT_VERDICT_PROBLEM),
                  "%s: %.200s (%.150s)", name, finding->text, finding->cure);
}

enum dt_status dt_accept_launch(struct dt_acceptance *a, struct dt_accept_row *row)
{
    const int n = a->world->size, n_each = dt_facts_on_host(a->ranks, n, 0);
    const struct dt_finding versions = dt_check_run("versions", a->ranks, n);
    take_finding("versions", &versions, row);
    if (row->verdict != DT_ACCEPT_PASS) {
        return DT_OK;
    }
    dt_accept_say(row, DT_ACCEPT_PASS, "%d rank%s on each host, %s", n_each, n_each == 1 ? "" : "s",
                  versions.text);
    for (int r = 0; r < n && row->verdict == DT_ACCEPT_PASS; r++) {
        const int n_here = dt_facts_on_host(a->ranks, n, r);
        if (n_here != n_each) {
            dt_accept_fail(a, row, r, true,
                           "%s has %d rank%s, %s has %d (start as many on each: mpirun -ppn, srun "
                           "--ntasks-per-node)",
                           a->ranks[r].host, n_here, n_here == 1 ? "" : "s", a->ranks[0].host,
                           n_each);
        }
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
        dt_accept_say(row, DT_ACCEPT_PASS, "%d ok, %d not checked, %d warning%s",
                      counts[DT_VERDICT_OK], counts[DT_VERDICT_NONE], counts[DT_VERDICT_WARNING],
                      counts[DT_VERDICT_WARNING] == 1 ? "" : "s");
    }
    return DT_OK;
}
