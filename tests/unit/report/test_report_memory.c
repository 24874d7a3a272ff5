/* Memory that runs out while a run is read back: each allocation of ours, of cJSON, of documents
 * and of streams fails in turn. A report ends with 71, and never says that the run was killed, or
 * leaves a part out. */
#include <cjson/cJSON.h>
#include <stdarg.h>
#include <unistd.h>

#include "report/run.h"
#include "tests/lib/failing.h"
#include "tests/lib/folder.h"

FAILING(FILE *, fmemopen, (void *bytes, size_t n, const char *mode), (bytes, n, mode))
FAILING(char *, strdup, (const char *text), (text))
int __real_vasprintf(char **text, const char *format, va_list args); /* NOLINT */
int __wrap_vasprintf(char **text, const char *format, va_list args); /* NOLINT */
int __wrap_vasprintf(char **text, const char *format, va_list args)  /* NOLINT */
{
    return fails() ? -1 : __real_vasprintf(text, format, args);
}

static const char *page;

static void make_run(void)
{
    folder_open();
    page = path_of(DT_RUN_PAGE);
    put("config.json", quoted("{`data`: {`format`: `synthetic`}, `model`: {`input`: [1, 8, 8], "
                              "`layers`: [{`type`: `flatten`}, {`type`: `dense`, `units`: 4}]}}"));
    put("metrics.jsonl", quoted("{`type`:`run`,`step`:0,`started`:5,`last_step`:2,`world_size`:1}\n"
                                "{`type`:`step`,`step`:1,`epoch`:1,`loss`:2}\n"
                                "{`type`:`epoch`,`step`:2,`epoch`:1,`train_loss`:1,`test_loss`:1,"
                                "`staleness`:[1,2]}\n"));
    put("summary.json", quoted("{`exit_code`:70,`started`:5,"
                               "`ranks_ms_per_step`:[{`forward`:1},{`forward`:2}]}"));
    put("trace.json", quoted("{`traceEvents`:[{`cat`:`forward`,`name`:`forward`,`ph`:`X`,`ts`:0,"
                             "`dur`:9,`pid`:0,`args`:{`step`:1}}]}"));
    put("flight-0.json", quoted("{`rank`:0,`step`:1,`events`:[{`step`:1,`name`:`x`,`ns`:5}]}"));
}

/* Two samples of 8 x 8 pixels, and a filter. */
static const struct dt_learned *learned_of_test(void)
{
    static uint8_t images[2 * 64];
    static float filter[9];
    static double confusion[4] = {1, 0, 1, 0};
    static struct dt_learned learned = {.n_classes = 2,
                                        .class_names = "cat/dog",
                                        .confusion = confusion,
                                        .n_worst = 2,
                                        .shape = {1, 8, 8},
                                        .images = images,
                                        .n_filters = 1,
                                        .filter_h = 3,
                                        .filter_w = 3,
                                        .filter_c = 1,
                                        .filters = filter};
    return &learned;
}

/* A page of one run, or of two. */
static enum dt_status report(int n)
{
    static struct dt_record records[2];
    struct dt_doc *doc = NULL;
    enum dt_status s = DT_OK;
    int n_open = 0;
    for (; n_open < n && s == DT_OK; n_open += s == DT_OK) {
        s = dt_record_open(folder, &records[n_open]);
    }
    if (n == 2 && s == DT_OK) {
        records[1].config.epochs++;
    }
    if (s == DT_OK) {
        s = n == 1 ? dt_run_document(records, learned_of_test(), &doc)
                   : dt_runs_document(records, n, &doc);
    }
    s = s == DT_OK ? dt_run_page_write(folder, doc) : s;
    dt_doc_close(doc);
    for (int i = 0; i < n_open; i++) {
        dt_record_close(&records[i]);
    }
    return s;
}

static void test_each_allocation(int n)
{
    size_t n_whole, n_now;
    CHECK_OK(report(n));
    const char *whole = bytes_of(page, &n_whole);
    CHECK_HAS(whole, n == 1 ? "Timeline" : "train.epochs");
    CHECK_HAS(whole, n == 1 ? "Last events" : "A epochs=12");
    CHECK_HAS(whole, "failed");
    long k = 1;
    for (enum dt_status s = DT_NO_MEMORY; s == DT_NO_MEMORY; k++) {
        n_calls = 0;
        failing_call = k;
        s = report(n);
        const bool failed = n_calls >= k;
        failing_call = 0;
        CHECK_MESSAGE((s == DT_NO_MEMORY) == failed && (dt_error_text()[0] != '\0') == failed,
                      "%d runs, allocation %ld: status %d, %s", n, k, s, dt_error_text());
        dt_error_clear();
        const char *now = bytes_of(page, &n_now);
        CHECK(n_now == n_whole && memcmp(now, whole, n_whole) == 0);
    }
    CHECK(k > 50);
}

int main(void)
{
    cJSON_InitHooks(&(cJSON_Hooks){.malloc_fn = json_malloc, .free_fn = free});
    make_run();
    test_each_allocation(1);
    test_each_allocation(2);
    folder_remove();
    return 0;
}
