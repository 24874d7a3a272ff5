/* A small configuration to change, for the tests of cli/config/config.h. */
#ifndef DT_TESTS_CONFIG_SAMPLE_H
#define DT_TESTS_CONFIG_SAMPLE_H

#include "cli/config/config.h"
#include "tests/lib/check.h"

#define DATA "\"data\": {\"format\": \"idx\"}"
#define DENSE "{\"type\": \"dense\", \"units\": 10}"
#define MODEL \
    "\"model\": {\"input\": [1, 28, 28], \"layers\": [{\"type\": \"flatten\"}, " DENSE "]}"
#define GOOD "{" DATA ", " MODEL "}"
#define WITH(members) "{" DATA ", " MODEL ", " members "}"

static enum dt_status parse(const char *text, const char *const *sets, int n_sets,
                            struct dt_config *out)
{
    dt_error_clear();
    return dt_config_parse("c.json", text, strlen(text), sets, n_sets, out);
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
    if (status != DT_OK) {
        CHECK_FAIL("%s\n%s", dt_error_text(), text);
    }
    if (memcmp(config, &again, sizeof again) != 0) {
        CHECK_FAIL("not the same after a round trip:\n%s\n%s", text, dt_config_to_json(&again));
    }
    free(text);
}

#endif
