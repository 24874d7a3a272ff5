/* Writes docs/config.md and configs/dtrain.schema.json: `config_docs markdown` and `config_docs schema`, to stdout. */
#include <stdio.h>
#include <string.h>

#include "cli/config/config.h"

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "markdown") == 0) {
        dt_config_markdown(stdout);
    } else if (argc == 2 && strcmp(argv[1], "schema") == 0) {
        dt_config_schema_json(stdout);
    } else {
        fprintf(stderr, "config_docs: expected one argument, markdown or schema\n");
        return DT_USAGE;
    }
    return fflush(stdout) == 0 && ferror(stdout) == 0 ? DT_OK : DT_IO;
}
