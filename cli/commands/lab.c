/* `dtrain lab`: the course, a table of the lessons' rows. */
#include <string.h>

#include "cli/result.h"

static enum dt_status list_lessons(const struct dt_args *args)
{
    int minutes = 0;
    struct dt_doc *doc = dt_doc_open("lab", "A course in distributed training");
    dt_doc_text(doc, "Each lesson explains one idea, computes it with the code that trains, and "
                     "checks the result. docs/lessons.md says what to look for.");
    struct dt_part *table = dt_doc_table(doc, "Lessons", "command|minutes::0|question");
    for (const struct dt_command *const *c = args->program->commands; *c != NULL; c++) {
        if ((*c)->minutes > 0) { /* the usage without its optional part */
            const int n = (int)(strstr((*c)->usage, " [") - (*c)->usage);
            dt_doc_row(table, dt_t(dt_doc_print(doc, "%.*s", n, (*c)->usage)), dt_n((*c)->minutes),
                       dt_t((*c)->meaning));
            minutes += (*c)->minutes;
        }
    }
    dt_doc_text(doc, "%d minutes in all.", minutes);
    const enum dt_status s = dt_result_show(args, doc);
    dt_doc_close(doc);
    return s;
}

const struct dt_command dt_command_lab = {
    .word = "lab",
    .meaning = "list the lessons of a course; lab NAME runs one",
    .usage = "dtrain lab" DT_RESULT_USAGE,
    .examples = "  dtrain lab\n"
                "  dtrain lab allreduce\n",
    .options = {DT_RESULT_OPTIONS},
    .alone = list_lessons,
};
