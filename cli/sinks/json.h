/* JSON with texts from outside in it: names of hosts and devices, paths, command lines. */
#ifndef DT_CLI_SINKS_JSON_H
#define DT_CLI_SINKS_JSON_H

#include <cjson/cJSON.h>
#include <stdbool.h>

/* The text of a tree, in lines or in one, as JSON has to be: with U+FFFD in the place of each byte
 * that is no UTF-8. The caller frees it with cJSON_free. NULL: out of memory. */
char *dt_json_print(const cJSON *tree, bool in_lines);

#endif
