/* dt_manual_fields of cli/manual/manual.h. */
#include <stdio.h>
#include <string.h>

#include "cli/manual/manual.h"
#include "cli/sinks/fields.h"

static const struct {
    const char *name;
    const struct dt_fields *fields;
    bool recorded; /* has columns for metrics.csv and TensorBoard */
} tables[] = {{"run", &dt_run_fields, false},
              {"step", &dt_step_fields, true},
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

void dt_manual_fields(FILE *out)
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
