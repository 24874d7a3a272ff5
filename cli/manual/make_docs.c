/* Writes every file that follows from the program's tables: `make_docs SOURCE_DIR`, or says which:
 * `make_docs --list`. */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "cli/config/config.h"
#include "cli/manual/manual.h"

static const struct {
    const char *path; /* below the source's folder */
    void (*write)(FILE *out);
} files[] = {
    {"docs/config.md", dt_config_markdown},
    {"configs/dtrain.schema.json", dt_config_schema_json},
    {"docs/dtrain.1", dt_manual_program},
    {"docs/dtrain-config.5", dt_manual_config},
};

static bool write_file(const char *folder, int i)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, files[i].path);
    FILE *out = fopen(path, "w");
    bool done = out != NULL;
    if (done) {
        files[i].write(out);
        done = ferror(out) == 0;
        done = fclose(out) == 0 && done;
    }
    if (!done) {
        perror(path);
    }
    return done;
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "make_docs: expected the folder of the source\n");
        return DT_USAGE;
    }
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        if (strcmp(argv[1], "--list") == 0) {
            puts(files[i].path);
        } else if (!write_file(argv[1], (int)i)) {
            return DT_IO;
        }
    }
    return DT_OK;
}
