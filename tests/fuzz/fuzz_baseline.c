/* Any bytes as a baseline of `accept`: an error with a text, or figures that are numbers above 0.
 */
#include <math.h>

#include "ops/accept/accept.h"
#include "tests/fuzz/fuzz.h"

static void check_figures(const struct dt_acceptance *a)
{
    int n = 0;
    for (int k = 0; k < DT_ACCEPT_FIGURES; k++) {
        require(isnan(a->baseline[k]) || (a->baseline[k] > 0 && isfinite(a->baseline[k])));
        n += !isnan(a->baseline[k]);
    }
    require(n > 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes)
{
    static struct dt_rank_probe rank = {.host = "a"};
    static struct dt_world world = {.size = 1};
    static const struct dt_backend_ops backend = {.name = "cpu"};
    static struct dt_acceptance a = {
        .world = &world, .ranks = &rank, .device = {.backend = &backend}};
    for (int k = 0; k < DT_ACCEPT_FIGURES; k++) {
        a.baseline[k] = (double)NAN;
    }
    dt_error_clear();
    const enum dt_status s = dt_accept_baseline_read(&a, path_of(bytes, n_bytes));
    require(s == DT_OK || (s == DT_BAD_DATA && dt_error_text()[0] != '\0'));
    if (s == DT_OK) {
        check_figures(&a);
    }
    return 0;
}
