/* Writes what follows from the program's tables: `make_docs SOURCE_DIR` the files of the
 * repository, which `make_docs --list` lists; `make_docs --manual DIR` the manual pages, for scdoc.
 */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "cli/config/config.h"
#include "cli/manual/manual.h"
#include "cli/sinks/fields.h"

static const struct {
    const char *name;
    const struct dt_fields *fields;
    bool recorded; /* has columns for metrics.csv and TensorBoard */
} tables[] = {{"run", &dt_run_fields, false},
              {"step", &dt_step_fields, true},
              {"audit", &dt_audit_fields, false},
              {"epoch", &dt_epoch_fields, true},
              {"summary", &dt_end_fields, false}};

static void put_table(FILE *out, const struct dt_fields *fields, bool recorded)
{
    fputs(recorded
              ? "| field | unit | metrics.csv | TensorBoard | meaning |\n|---|---|---|---|---|\n"
              : "| field | unit | meaning |\n|---|---|---|\n",
          out);
    for (int i = 0; i < fields->n; i++) {
        const struct dt_field *f = &fields->rows[i];
        const char *quote = f->tag[0] != '\0' ? "`" : "";
        fprintf(out, "| `%s` | %s |", f->name, f->unit);
        if (recorded) {
            fprintf(out, " %s | %s%s%s |", f->csv ? "yes" : "", quote, f->tag, quote);
        }
        fprintf(out, " %s |\n", f->meaning);
    }
}

/* The table that begins after this line of the page: "<!-- fields: step -->". */
static void put_table_of(FILE *out, const char *line)
{
    char name[16] = "";
    sscanf(line, "<!-- fields: %15s -->", name);
    for (size_t i = 0; i < sizeof tables / sizeof tables[0]; i++) {
        if (strcmp(name, tables[i].name) == 0) {
            put_table(out, tables[i].fields, tables[i].recorded);
        }
    }
}

/* docs/files.md, with its tables of fields written again. */
static void put_files(FILE *out)
{
    char line[1024];
    bool inside = false;
    FILE *page = fopen(DT_SOURCE_DIR "/docs/files.md", "r");
    if (page == NULL) {
        return;
    }
    while (fgets(line, sizeof line, page) != NULL) {
        inside = inside && strncmp(line, "<!-- end", 8) != 0;
        fputs(inside ? "" : line, out);
        if (strncmp(line, "<!-- fields:", 12) == 0) {
            inside = true;
            put_table_of(out, line);
        }
    }
    fclose(page);
}

/* ---- files */

struct file {
    const char *path; /* below the folder that is given; NULL behind the last */
    void (*write)(FILE *out);
};

static const struct file files[] = {
    {"docs/config.md", dt_config_markdown},
    {"docs/files.md", put_files},
    {"configs/dtrain.schema.json", dt_config_schema_json},
    {NULL, NULL},
};

static const struct file pages[] = {
    {"dtrain.1.scd", dt_manual_program},
    {"dtrain-config.5.scd", dt_manual_config},
    {NULL, NULL},
};

/* A dt_file_put_fn. */
static void put_file(FILE *out, const void *context)
{
    const struct file *file = context;
    file->write(out);
}

int main(int argc, char **argv)
{
    const bool manual = argc == 3 && strcmp(argv[1], "--manual") == 0;
    if (argc != 2 && !manual) {
        fprintf(stderr, "make_docs: expected the folder of the source, or --manual FOLDER\n");
        return DT_USAGE;
    }
    for (const struct file *file = manual ? pages : files; file->path != NULL; file++) {
        char path[4096];
        snprintf(path, sizeof path, "%s/%s", argv[argc - 1], file->path);
        if (strcmp(argv[1], "--list") == 0) {
            puts(file->path);
        } else if (dt_file_print(path, put_file, file) != DT_OK) { /* some read what they write */
            fprintf(stderr, "%s\n", dt_error_text());
            return DT_IO;
        }
    }
    return DT_OK;
}
