/* A small configuration to change, for the tests of cli/config/config.h; with backticks for quotes,
 * which parse() puts in. */
#ifndef DT_TESTS_CONFIG_SAMPLE_H
#define DT_TESTS_CONFIG_SAMPLE_H

#include "cli/config/config.h"
#include "tests/lib/temporary.h"

#define DATA "`data`: {`format`: `idx`}"
#define DENSE_LAYER "{`type`: `dense`, `units`: 10}"
#define MODEL "`model`: {`input`: [1, 28, 28], `layers`: [{`type`: `flatten`}, " DENSE_LAYER "]}"
#define GOOD "{" DATA ", " MODEL "}"
#define WITH(members) "{" DATA ", " MODEL ", " members "}"

static enum dt_status parse(const char *text, const char *const *sets, int n_sets,
                            struct dt_config *out)
{
    const char *const json = quoted(text);
    dt_error_clear();
    return dt_config_parse("c.json", json, strlen(json), sets, n_sets, out);
}

/* The printed text reads back as the same configuration, bit for bit. */
static void check_round_trip(const struct dt_config *config)
{
    struct dt_config again;
    char name[80];
    char *text = dt_config_to_json(config);
    CHECK(text != NULL);
    snprintf(name, sizeof name, "%s.json", config->name);
    dt_error_clear();
    const enum dt_status status = dt_config_parse(name, text, strlen(text), NULL, 0, &again);
    CHECK_MESSAGE(status == DT_OK, "%s\n%s", dt_error_text(), text);
    CHECK_MESSAGE(memcmp(config, &again, sizeof again) == 0,
                  "not the same after a round trip:\n%s\n%s", text, dt_config_to_json(&again));
    free(text);
}

#endif
