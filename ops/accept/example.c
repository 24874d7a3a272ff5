/* Horovod's worked example of the gradient tape, by all ranks together. */
#include "lab/gradtape.h"
#include "ops/accept/rows.h"

enum dt_status dt_accept_example(struct dt_acceptance *a, struct dt_accept_row *row)
{
    const int n = a->world->size;
    struct dt_tape *tapes, mine = {.first = 0};
    struct dt_golden all = {0};
    DT_TRY(dt_tape_run(a->world, &mine));
    DT_TRY(dt_accept_gather(a, &mine, sizeof mine, "the example's numbers", (void **)&tapes));
    for (int r = 0; r < n; r++) {
        struct dt_golden golden = {0};
        dt_tape_check(&tapes[r], r, n, &golden);
        dt_tape_check(&tapes[r], r, n, &all);
        a->cells[r].failed = golden.differs;
    }
    if (all.differs) {
        dt_accept_say(row, DT_ACCEPT_FAIL, "%s", all.verdict);
    } else {
        dt_accept_say(row, DT_ACCEPT_PASS, "all %d numbers came out, to the last bit", all.n);
    }
    return DT_OK;
}
