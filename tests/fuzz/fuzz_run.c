/* Any bytes as the files of a run's folder, for the documents that `report` makes of one run and of
 * two: an error with a text or their text and page; never a crash, a leak or a read out of bounds,
 * no text of a file unescaped in the page, and no control character on a terminal.
 *
 * An input is pieces that begin with a line "@NAME", such as "@metrics.jsonl"; without a
 * configuration the run has a small one. What they hold is in memory. */
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <sys/stat.h>

#include "base/file.h"
#include "dist/strategy/strategy.h"
#include "report/run.h"
#include "tests/fuzz/fuzz.h"
#include "tests/unit/base/file_calls.h"
#include "view/render.h"

#define MOST_FILES 8
#define DESCRIPTORS 2000 /* from here on */

static const char small_config[] =
    "{\"data\": {\"format\": \"synthetic\"}, \"model\": {\"input\": [1, 8, 8], \"layers\": ["
    "{\"type\": \"flatten\"}, {\"type\": \"dense\", \"units\": 4}]}}";

static struct file {
    char name[32];
    const char *text;
    size_t n, at;
} files[MOST_FILES];
static int n_files;
static char folder[] = "/tmp/dtrain-fuzz-XXXXXX", config_path[64]; /* there is such a file */
static char *page;                                                 /* what was written */
static size_t n_page;

/* The rows that the configuration's reader asks: nothing that opens. */
static const struct dt_algorithm algorithms[] = {DT_ALGORITHM_LIST(DT_ALGORITHM_ROW)};
static const struct dt_strategy_entry *const strategies[] = {NULL};
const struct dt_dist_entries dt_all_entries = {
    .strategies = strategies,
    .allreduce = {.algorithms = algorithms, .n_algorithms = DT_N_ALGORITHMS}};

static int open_one(int at, const char *path, int flags, mode_t mode)
{
    const char *slash = strrchr(path, '/'), *name = slash != NULL ? slash + 1 : path;
    (void)at, (void)flags, (void)mode;
    for (int i = n_files; i-- > 0;) {
        if (strcmp(files[i].name, name) == 0) {
            files[i].at = 0;
            return DESCRIPTORS + i;
        }
    }
    errno = ENOENT;
    return -1;
}

static int look(int fd, struct stat *info)
{
    *info = (struct stat){.st_mode = S_IFREG | 0600, .st_size = (off_t)files[fd - DESCRIPTORS].n};
    return 0;
}

static ssize_t read_some(int fd, void *bytes, size_t n)
{
    struct file *file = &files[fd - DESCRIPTORS];
    n = n < file->n - file->at ? n : file->n - file->at;
    memcpy(bytes, file->text + file->at, n);
    file->at += n;
    return (ssize_t)n;
}

static int done(int fd)
{
    (void)fd;
    return 0;
}

static void add_file(const char *name, size_t n_name, const char *text, size_t n)
{
    if (n_files < MOST_FILES && n_name < sizeof files[0].name) {
        struct file *file = &files[n_files++];
        *file = (struct file){.text = text, .n = n};
        memcpy(file->name, name, n_name);
    }
}

static void remove_folder(void)
{
    unlink(config_path);
    rmdir(folder);
}

static void make_folder(void)
{
    require(mkdtemp(folder) != NULL && atexit(remove_folder) == 0);
    snprintf(config_path, sizeof config_path, "%s/config.json", folder);
    const int fd = open(config_path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    require(fd >= 0 && close(fd) == 0);
}

/* Cuts the text into files. */
static void take_files(const char *text, size_t n)
{
    const char *const end = text + n;
    n_files = 0;
    add_file("config.json", strlen("config.json"), small_config, sizeof small_config - 1);
    for (const char *at = text; at < end && *at == '@';) {
        const char *line = memchr(at, '\n', (size_t)(end - at));
        const char *body = line != NULL ? line + 1 : end, *next = body;
        while ((next = memmem(next, (size_t)(end - next), "\n@", 2)) != NULL && next < body) {
            next++;
        }
        next = next != NULL ? next + 1 : end;
        add_file(at + 1, (size_t)((line != NULL ? line : end) - at - 1), body,
                 (size_t)(next - body));
        at = next;
    }
}

static void draw_page(FILE *out, const struct dt_doc *doc)
{
    dt_view_html(out, doc);
}

static void draw_text(FILE *out, const struct dt_doc *doc)
{
    dt_view_text(out, doc, (struct dt_text_view){.width = 80, .utf8 = true});
}

/* The seeds' texts have elements, as dtrain itself never writes them. */
static bool is_right_page(char c, const char *text)
{
    (void)c;
    return strncmp(text, "<q>", 3) != 0;
}

static bool is_right_text(char c, const char *text)
{
    (void)text;
    return (c >= ' ' || c == '\n' || (unsigned char)c >= 0x80) && c != 0x7f;
}

static void check_text(void (*draw)(FILE *out, const struct dt_doc *doc),
                       bool (*is_right)(char c, const char *text), const struct dt_doc *doc)
{
    char *text = NULL;
    size_t n = 0;
    FILE *out = open_memstream(&text, &n);
    require(out != NULL);
    draw(out, doc);
    require(fclose(out) == 0);
    for (size_t i = 0; i < n; i++) {
        require(is_right(text[i], text + i));
    }
    free(text);
}

static void check_document(enum dt_status s, struct dt_doc *doc)
{
    require(s == DT_OK);
    check_text(draw_text, is_right_text, doc);
    check_text(draw_page, is_right_page, doc);
    dt_doc_close(doc);
}

static void report(void)
{
    struct dt_record records[2];
    struct dt_doc *doc;
    dt_error_clear();
    if (dt_record_open(folder, &records[0]) != DT_OK) {
        require(dt_error_text()[0] != 0);
        return;
    }
    records[1] = records[0];
    enum dt_status s = dt_run_document(records, NULL, &doc);
    check_document(s, doc);
    s = dt_runs_document(records, 2, &doc);
    check_document(s, doc);
    dt_record_close(&records[0]);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes)
{
    if (config_path[0] == '\0') {
        make_folder();
    }
    char *text = (char *)copy_of(bytes, n_bytes);
    take_files(text, n_bytes);
    calls.openat = open_one;
    calls.fstat = look;
    calls.read = read_some;
    calls.close = done;
    report();
    calls = real;
    free(text);
    return 0;
}
