/* Horovod's worked example of the gradient tape, by all ranks together. */
#include <stdio.h>
#include <stdlib.h>

#include "lab/gradtape.h"
#include "ops/accept/rows.h"

enum dt_status dt_accept_example(struct dt_acceptance *a, struct dt_accept_row *row)
{
    const int n = a->world->size;
    struct dt_tape *tapes = NULL, mine = {.first = 0};
    enum dt_status s;
    DT_TRY(
        dt_world_alloc(a->world, (size_t)n, sizeof *tapes, "the ranks' numbers", (void **)&tapes));
    DT_TRY_GOTO(s, dt_tape_run(a->world, &mine), done);
    DT_TRY_GOTO(s,
                dt_comm_allgather(a->world->comm, &mine, tapes, sizeof mine,
                                  "exchange of the example's numbers"),
                done);
    struct dt_golden all = {0};
    for (int r = 0; r < n; r++) {
        struct dt_golden golden = {0};
        dt_tape_check(&tapes[r], r, n, &golden);
        dt_tape_check(&tapes[r], r, n, &all);
        a->cells[r].failed = golden.differs;
    }
    row->verdict = dt_accept_verdict(!all.differs);
    if (!all.differs) {
        snprintf(row->text, sizeof row->text, "all %d numbers came out, to the last bit", all.n);
    } else {
        snprintf(row->text, sizeof row->text, "%s", all.verdict);
    }
done:
    free(tapes);
    return s;
}
