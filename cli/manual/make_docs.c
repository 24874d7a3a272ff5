/* Writes every file that follows from the program's tables: `make_docs SOURCE_DIR`, or says which:
 * `make_docs --list`. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/config/config.h"
#include "cli/manual/manual.h"

static const struct {
    const char *path; /* below the source's folder */
    void (*write)(FILE *out);
} files[] = {
    {"docs/config.md", dt_config_markdown},
    {"docs/files.md", dt_manual_fields},
    {"configs/dtrain.schema.json", dt_config_schema_json},
    {"docs/dtrain.1", dt_manual_program},
    {"docs/dtrain-config.5", dt_manual_config},
};

static bool write_file(const char *folder, int i)
{
    char path[4096];
    char *text = NULL;
    size_t n = 0;
    snprintf(path, sizeof path, "%s/%s", folder, files[i].path);
    FILE *memory = open_memstream(&text, &n); /* some read the file that they write */
    if (memory != NULL) {
        files[i].write(memory);
        fclose(memory);
    }
    FILE *out = text != NULL ? fopen(path, "w") : NULL;
    bool done = out != NULL && fwrite(text, 1, n, out) == n;
    done = out != NULL && fclose(out) == 0 && done;
    if (!done) {
        perror(path);
    }
    free(text);
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
