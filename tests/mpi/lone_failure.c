/* For test_exit_codes.sh: linked into dtrain with ld's --wrap, this makes the last rank fail in the
 * third step, while the others wait for it in a collective. */
#include "tests/lib/wrap.h"
#include "train/trainer.h"

WRAP(enum dt_status, dt_trainer_steps, struct dt_trainer *trainer, int n,
     struct dt_step_results *out)
{
    if (trainer->state.step == 2 && trainer->world->rank == trainer->world->size - 1) {
        return dt_error(DT_NO_MEMORY, "the test wants it so");
    }
    return __real_dt_trainer_steps(trainer, n, out);
}
