/* Any bytes as a baseline of `accept`: an error with a text, or figures that are numbers above 0.
 */
#include <math.h>

#include "ops/accept/outcome.h"
#include "tests/fuzz/fuzz.h"

static void check_figures(const struct dt_accept_baseline *baseline)
{
    int n = 0;
    for (int i = 0; i < DT_N_ACCEPT * DT_ACCEPT_FIGURES; i++) {
        const double value = baseline->values[i / DT_ACCEPT_FIGURES][i % DT_ACCEPT_FIGURES];
        require(isnan(value) || (value > 0 && isfinite(value)));
        n += !isnan(value);
    }
    require(n > 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes)
{
    static struct dt_rank_facts rank = {.host = "a"};
    static struct dt_world world = {.size = 1};
    static const struct dt_backend_ops backend = {.name = "cpu"};
    static struct dt_acceptance a = {
        .world = &world, .ranks = &rank, .device = {.backend = &backend}};
    struct dt_accept_baseline baseline;
    dt_error_clear();
    const enum dt_status s = dt_accept_baseline_read(&a, path_of(bytes, n_bytes), &baseline);
    require(s == DT_OK || (s == DT_BAD_DATA && dt_error_text()[0] != '\0'));
    if (s == DT_OK) {
        check_figures(&baseline);
    }
    return 0;
}
