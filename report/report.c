#include "report/report.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/text.h"
#include "report/learned.h"
#include "report/run_compare.h"
#include "report/run_page.h"
#include "report/run_text.h"

static enum dt_status write_page(const struct dt_args *args, const struct dt_record *records)
{
    const char *const dir = records[0].path;
    struct dt_learned learned = {.why_not = ""};
    const bool one = args->n_paths == 1;
    DT_TRY(args->html == NULL ? dt_dir_try(dir) : DT_OK);
    enum dt_status s = one ? dt_learned_find(records, args->data, &learned) : DT_OK;
    s = s == DT_OK
            ? dt_run_page_write(args->html, dir, records, args->n_paths, one ? &learned : NULL)
            : s;
    dt_learned_close(&learned);
    if (s == DT_OK) {
        dt_text_print(stderr, "wrote %s%s", args->html != NULL ? args->html : dir,
                      args->html != NULL ? "" : "/" DT_RUN_PAGE);
    }
    return s;
}

static enum dt_status report(const struct dt_args *args, struct dt_record *records)
{
    for (int i = 0; i < args->n_paths; i++) {
        DT_TRY(dt_record_open(args->paths[i], &records[i]));
    }
    if (args->n_paths == 1) {
        dt_run_text_print(&records[0]);
    } else {
        dt_run_compare_print(records, args->n_paths);
    }
    const enum dt_status s =
        dt_error_text()[0] == '\0' ? DT_OK : DT_NO_MEMORY; /* there was none for a part */
    return s == DT_OK && args->command == DT_COMMAND_REPORT ? write_page(args, records) : s;
}

enum dt_status dt_report(const struct dt_args *args)
{
    struct dt_record *records = calloc((size_t)args->n_paths, sizeof *records);
    if (records == NULL) {
        return dt_error(DT_NO_MEMORY, "no memory for the records of a run");
    }
    const enum dt_status s = report(args, records);
    for (int i = 0; i < args->n_paths; i++) {
        dt_record_close(&records[i]);
    }
    free(records);
    return s;
}
