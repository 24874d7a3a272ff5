/* Where two written configurations differ: for resuming a run with another one. */
#ifndef DT_CLI_CONFIG_DIFF_H
#define DT_CLI_CONFIG_DIFF_H

#include <stddef.h>

#include "base/status.h"

/* `compare` of struct dt_config_format (train/config.h); both texts are valid JSON. */
enum dt_status dt_config_compare(const char *before, const char *now, const char *path, char *text,
                                 size_t size);

#endif
