#include "ops/accept/outcome.h"

#define NAME(name, meaning) #name,
#define MEANING(name, meaning) meaning,
const char *const dt_accept_names[DT_N_ACCEPT] = {DT_ACCEPT_LIST(NAME)};
const char *const dt_accept_meanings[DT_N_ACCEPT] = {DT_ACCEPT_LIST(MEANING)};

#define VERDICT(constant, ...) {__VA_ARGS__},
const struct dt_accept_verdict_name dt_accept_verdicts[DT_N_ACCEPT_VERDICTS] = {
    DT_ACCEPT_VERDICT_LIST(VERDICT)};
