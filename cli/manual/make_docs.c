/* Writes what follows from the program's tables: `make_docs SOURCE_DIR` the files of the
 * repository, which `make_docs --list` lists; `make_docs --manual DIR` the manual pages, for scdoc.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/config/config.h"
#include "cli/manual/manual.h"

struct file {
    const char *path; /* below the folder that is given; NULL behind the last */
    void (*write)(FILE *out);
};

static const struct file files[] = {
    {"docs/config.md", dt_config_markdown},
    {"docs/files.md", dt_manual_fields},
    {"configs/dtrain.schema.json", dt_config_schema_json},
    {NULL, NULL},
};

static const struct file pages[] = {
    {"dtrain.1.scd", dt_manual_program},
    {"dtrain-config.5.scd", dt_manual_config},
    {NULL, NULL},
};

static bool write_file(const char *folder, const struct file *file)
{
    char path[4096];
    char *text = NULL;
    size_t n = 0;
    snprintf(path, sizeof path, "%s/%s", folder, file->path);
    FILE *memory = open_memstream(&text, &n); /* some read the file that they write */
    if (memory != NULL) {
        file->write(memory);
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
    const bool manual = argc == 3 && strcmp(argv[1], "--manual") == 0;
    if (argc != 2 && !manual) {
        fprintf(stderr, "make_docs: expected the folder of the source, or --manual FOLDER\n");
        return DT_USAGE;
    }
    for (const struct file *file = manual ? pages : files; file->path != NULL; file++) {
        if (strcmp(argv[1], "--list") == 0) {
            puts(file->path);
        } else if (!write_file(argv[argc - 1], file)) {
            return DT_IO;
        }
    }
    return DT_OK;
}
