#include "cli/result.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/text.h"
#include "cli/output.h"
#include "cli/terminal.h"
#include "view/render.h"

#define HEAD_SIZE 4096 /* bytes of a file that show its kind */

/* A form of the result in a file, and the mark near the beginning of earlier files of this form. */
static const struct form {
    enum dt_option option;
    void (*render)(FILE *out, const struct dt_doc *doc);
    const char *kind, *mark; /* NULL: the first line of the new one */
} forms[] = {{DT_OPTION_HTML, dt_view_html, "page of dtrain", DT_HTML_MARK},
             {DT_OPTION_JSON, dt_view_json, "JSON result of dtrain", DT_JSON_MARK},
             {DT_OPTION_CSV, dt_view_csv, "CSV file with these columns", NULL},
             {DT_OPTION_JUNIT, dt_view_junit, "JUnit suite of dtrain", DT_JUNIT_MARK}};
enum { N_FORMS = sizeof forms / sizeof forms[0] };

static bool is_stdout(const char *path)
{
    return path != NULL && strcmp(path, "-") == 0;
}

/* Reads the beginning of a regular file; "" if there is none. */
static enum dt_status read_head(const char *path, char head[HEAD_SIZE + 1])
{
    struct stat info;
    size_t n = 0;
    int fd = -1;
    head[0] = '\0';
    if (stat(path, &info) != 0 || !S_ISREG(info.st_mode)) {
        return DT_OK;
    }
    DT_TRY(dt_file_open(path, &fd, &info));
    const enum dt_status s = dt_file_read_piece(fd, path, (uint8_t *)head, HEAD_SIZE, &n);
    head[s == DT_OK ? n : 0] = '\0';
    close(fd);
    return s;
}

/* Whether a file that begins so is an earlier result: it has the mark, or, without one, `line` is
 * its first line. */
static bool is_earlier(const struct form *form, const char *head, const char *line)
{
    const size_t n = strcspn(head, "\r\n");
    return form->mark != NULL ? strstr(head, form->mark) != NULL
                              : n == strlen(line) && strncmp(head, line, n) == 0;
}

/* DT_CANT_CREATE: an existing file that is no earlier result of this form. `line`: the first of the
 * new one, for a form without a mark. */
static enum dt_status may_replace(const struct dt_args *args, const struct form *form,
                                  const char *path, const char *line)
{
    char head[HEAD_SIZE + 1];
    if (dt_args_has(args, DT_OPTION_FORCE)) {
        return DT_OK;
    }
    DT_TRY(read_head(path, head));
    if (head[0] != '\0' && !is_earlier(form, head, line)) {
        return dt_error(DT_CANT_CREATE,
                        "%s: exists and is no %s (name another file, or add "
                        "--force)",
                        path, form->kind);
    }
    return DT_OK;
}

enum dt_status dt_result_try(const struct dt_args *args)
{
    int n_stdout = 0;
    for (int i = 0; i < N_FORMS; i++) {
        const char *path = dt_args_text(args, forms[i].option);
        const bool to_stdout = is_stdout(path);
        if (path == NULL) {
            continue;
        }
        if (to_stdout && ++n_stdout > 1) {
            return dt_error(DT_USAGE, "only one result can go to standard output (give the other "
                                      "option a file in place of -)");
        }
        DT_TRY(to_stdout ? DT_OK : dt_file_try(path, NULL));
        DT_TRY(to_stdout || forms[i].mark == NULL ? DT_OK
                                                  : may_replace(args, &forms[i], path, NULL));
    }
    return DT_OK;
}

static bool has_colors(void)
{
    const char *off = getenv("NO_COLOR"), *term = getenv("TERM");
    return dt_terminal_width(STDOUT_FILENO) > 0 && (off == NULL || off[0] == '\0') &&
           (term == NULL || strcmp(term, "dumb") != 0);
}

void dt_result_print(FILE *out, const struct dt_doc *doc)
{
    const struct dt_text_view view = {.width = dt_terminal_width(STDOUT_FILENO),
                                      .color = has_colors(),
                                      .utf8 = dt_terminal_utf8()};
    dt_view_text(out, doc, view);
}

struct rendering {
    const struct form *form; /* NULL: text */
    const struct dt_doc *doc;
};

/* A dt_file_put_fn. */
static void put_form(FILE *out, const void *context)
{
    const struct rendering *rendering = context;
    if (rendering->form != NULL) {
        rendering->form->render(out, rendering->doc);
    } else {
        dt_result_print(out, rendering->doc);
    }
}

static enum dt_status write_form(const struct dt_args *args, const struct form *form,
                                 const char *path, const struct dt_doc *doc)
{
    const struct rendering rendering = {form, doc};
    char *text = NULL;
    size_t n = 0;
    DT_TRY(dt_file_collect(path, put_form, &rendering, &text, &n));
    enum dt_status s = DT_OK;
    if (form->mark == NULL) {
        char header[HEAD_SIZE];
        snprintf(header, sizeof header, "%.*s", (int)strcspn(text, "\r\n"), text);
        s = may_replace(args, form, path, header);
    }
    s = s == DT_OK ? dt_file_write(path, &(struct dt_file_part){text, n}, 1) : s;
    free(text);
    if (s == DT_OK) {
        dt_text_print(stderr, "wrote %s", path);
    }
    return s;
}

/* In one piece: standard output may be a stream without a buffer. */
static enum dt_status print_form(const struct form *form, const struct dt_doc *doc)
{
    const struct rendering rendering = {form, doc};
    char *text = NULL;
    size_t n = 0;
    DT_TRY(dt_file_collect("standard output", put_form, &rendering, &text, &n));
    fwrite(text, 1, n, stdout);
    free(text);
    return DT_OK;
}

enum dt_status dt_result_show(const struct dt_args *args, const struct dt_doc *doc)
{
    enum dt_status first = DT_OK;
    const struct form *to_stdout = NULL;
    DT_TRY(dt_doc_status(doc));
    for (int i = 0; i < N_FORMS; i++) {
        const char *path = dt_args_text(args, forms[i].option);
        to_stdout = is_stdout(path) ? &forms[i] : to_stdout;
    }
    DT_TRY(print_form(to_stdout, doc));
    for (int i = 0; i < N_FORMS; i++) {
        const char *path = dt_args_text(args, forms[i].option);
        if (path == NULL || is_stdout(path)) {
            continue;
        }
        const enum dt_status s = write_form(args, &forms[i], path, doc);
        if (s != DT_OK && first != DT_OK) {
            dt_output_failed(s); /* the first one stands in the exit code */
        } else if (s != DT_OK) {
            first = s;
        }
    }
    return first;
}
