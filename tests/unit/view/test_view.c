/* One document in all forms: what each must say, at several widths; texts that attack; a document
 * for which memory runs out at every allocation in turn. */
#include <cjson/cJSON.h>
#include <stdarg.h>

#include "tests/lib/check.h"
#include "tests/lib/failing.h"
#include "view/render.h"

FAILING(char *, strdup, (const char *text), (text))
int __real_vasprintf(char **text, const char *format, va_list args); /* NOLINT */
int __wrap_vasprintf(char **text, const char *format, va_list args); /* NOLINT */
int __wrap_vasprintf(char **text, const char *format, va_list args)  /* NOLINT */
{
    return fails() ? -1 : __real_vasprintf(text, format, args);
}

#define ATTACK "<b>&\"'\x1b[31m\xff\u202e`,\n=1"

static struct dt_doc *demo(void)
{
    static const double x[] = {0, 1, 2, 3}, y[] = {4, (double)NAN, 2, 1}, low[] = {3, 0, 1, 0},
                        high[] = {5, 0, 3, 2}, cells[] = {90, 10, (double)NAN, 80},
                        pixels[] = {0, 255, 128, 999};
    static const char *const names[] = {"cat", ATTACK};
    struct dt_doc *doc = dt_doc_open("lab demo", "A ring of %d ranks %s", 4, ATTACK);
    dt_doc_section(doc, "First");
    dt_doc_text(doc,
                "Each rank sends to `rank + 1` in every round, and so on until the line is "
                "longer than a terminal is wide. %s",
                ATTACK);
    struct dt_part *figures = dt_doc_figures(doc, "Result");
    dt_doc_figure(figures, "accuracy::%", dt_n(0.985));
    dt_doc_judge(figures, DT_VERDICT_PASS, "better than `0.98`");
    dt_doc_bound(figures, false, 0.98);
    dt_doc_figure(figures, "speed:images/s:0", dt_n(1234567));
    dt_doc_figure(figures, "memory::B", dt_n(99.2e6));
    dt_doc_figure(figures, "latency::t", dt_n(5.4e-6));
    dt_doc_figure(figures, "time::d", dt_n(3723));
    dt_doc_figure(figures, "weight::f", dt_n((double)2.0128188f));
    dt_doc_figure(figures, "unknown::g", dt_n((double)INFINITY));
    dt_doc_fact(figures, "command", "%s", ATTACK);
    struct dt_part *table = dt_doc_table(doc, "Checks", "check|time:s:1|result");
    dt_doc_row(table, dt_t("links"), dt_n(0.44), dt_t("slow"));
    dt_doc_judge(table, DT_VERDICT_MEASURED, "no limit given");
    dt_doc_row(table, dt_t(ATTACK), dt_t("long"), dt_t(NULL));
    dt_doc_judge(table, DT_VERDICT_FAIL, "%s", ATTACK);
    dt_doc_row(table, dt_t("last"), dt_n(2), dt_t("plain"));
    dt_doc_emphasize(table);
    struct dt_part *series = dt_doc_series(doc, "Loss", "step", "loss");
    dt_doc_line(series, &(struct dt_line){.name = "test", .n = 4, .x = x, .y = y});
    dt_doc_line(series, &(struct dt_line){
                            .name = "band", .n = 4, .x = x, .y = x, .low = low, .high = high});
    dt_doc_line(series,
                &(struct dt_line){.name = "bars", .n = 4, .x = x, .y = x, .stroke = DT_BARS});
    dt_doc_line(series, &(struct dt_line){.name = "", .n = 4, .x = x, .y = x});
    dt_doc_axes(series, DT_LOG_Y_IF_WIDE | DT_FROM_ZERO);
    dt_doc_mark(series, 2, "resumed");
    dt_doc_ticks(series, 2, names);
    dt_doc_step(doc, "round 1");
    struct dt_part *lanes = dt_doc_lanes(doc, "Moves", "round");
    dt_doc_kind(lanes, 1, "adds");
    const int lane = dt_doc_lane(lanes, "rank %d", 0);
    dt_doc_box(lanes, lane, 1, 3, 1, "a%s", "b");
    dt_doc_step(doc, NULL);
    struct dt_part *grid = dt_doc_grid(doc, "Confusion", DT_GRID_COUNTS, 2, 2, cells);
    dt_doc_names(grid, "true|predicted", names, names);
    dt_doc_odd(grid, 0, 1);
    dt_doc_caption(grid, "Of %d images.", 180);
    dt_doc_grid(doc, "7 as 2", DT_GRID_PIXELS, 2, 2, pixels);
    dt_doc_grid(doc, "red", DT_GRID_COLORS, 2, 2, pixels);
    struct dt_part *more = dt_doc_table(doc, "More", "key|value::g");
    dt_doc_row(more, dt_t("lr"), dt_n(0.001));
    dt_doc_detail(more);
    dt_doc_code(doc, "Command", "dtrain --config x.json\n  " ATTACK);
    dt_doc_verdict(doc, DT_VERDICT_FAIL, "FAIL: %d of 3", 1);
    return doc;
}

enum form { TEXT, HTML, JSON, CSV, JUNIT, N_FORMS };

/* The caller frees it. NULL: no memory for the stream. */
static char *drawn(const struct dt_doc *doc, enum form form, struct dt_text_view view)
{
    static void (*const renders[])(FILE *, const struct dt_doc *) = {
        NULL, dt_view_html, dt_view_json, dt_view_csv, dt_view_junit};
    char *text = NULL;
    size_t n = 0;
    FILE *out = open_memstream(&text, &n);
    if (out == NULL) {
        return NULL;
    }
    if (form == TEXT) {
        dt_view_text(out, doc, view);
    } else {
        renders[form](out, doc);
    }
    CHECK_INT(fclose(out), 0);
    return text;
}

static int longest_line(const char *text)
{
    int longest = 0, n = 0;
    for (; *text != '\0'; text++) {
        n = *text == '\n' ? 0 : n + (((unsigned char)*text & 0xC0) != 0x80);
        longest = n > longest ? n : longest;
    }
    return longest;
}

static void test_text(const struct dt_doc *doc)
{
    char *text = drawn(doc, TEXT, (struct dt_text_view){.width = 80, .utf8 = true});
    CHECK(longest_line(text) <= 80);
    CHECK_HAS(text, "PASS  accuracy  98.50 % (at least 98.00 %)");
    CHECK_HAS(text, "1,234,567 images/s\n");
    CHECK_HAS(text, "99.2 MB\n");
    CHECK_HAS(text, "5.40 µs\n");
    CHECK_HAS(text, "1:02:03\n");
    CHECK_HAS(text, "2.0128188\n");
    CHECK_HAS(text, "unknown   –\n");
    CHECK_HAS(text, "MEASURED  links");
    CHECK_HAS(text, "\n* ");
    CHECK_HAS(text, "\\x1b[31m\\xff\\u202e");
    CHECK_HAS(text, "4 → 1\n");
    CHECK_HAS(text, "rank 0  · ab\n");
    CHECK(strstr(text, "\x1b") == NULL && strstr(text, "lr") == NULL &&
          strstr(text, "7 as 2") == NULL);
    CHECK_TEXT(text + strlen(text) - strlen("\nFAIL: 1 of 3\n"), "\nFAIL: 1 of 3\n");
    free(text);
    text = drawn(doc, TEXT, (struct dt_text_view){.width = 40, .color = true});
    CHECK_HAS(text, "\x1b[31mFAIL\x1b[0m");
    CHECK_HAS(text, "5.40 us\n");
    free(text);
    text = drawn(doc, TEXT, (struct dt_text_view){.width = 0});
    CHECK_HAS(text, "4 -> 1\n"); /* a row is a line where there is no terminal */
    for (const char *c = text; *c != '\0'; c++) {
        CHECK((unsigned char)*c < 0x80);
    }
    free(text);
}

static void test_html(const struct dt_doc *doc)
{
    char *page = drawn(doc, HTML, (struct dt_text_view){.width = 0});
    CHECK_HAS(page, "<meta name=\"generator\" content=\"dtrain\">");
    CHECK_HAS(page, "default-src 'none'");
    CHECK_HAS(page, "&lt;b&gt;&amp;&quot;'\\x1b[31m\\xff\\u202e");
    CHECK(strstr(page, "<b>") == NULL && strstr(page, "http") == strstr(page, "http-equiv"));
    CHECK_HAS(page, "<code>rank + 1</code>");
    CHECK_HAS(page, "<section class=\"step\"><h2>round 1</h2>");
    CHECK_HAS(page, "data:image/png;base64,iVBOR");
    CHECK_HAS(page, "<tr class=\"this\">");
    CHECK_HAS(page, "<small>at least 98.00 %</small>");
    CHECK_HAS(page, "class=\"shade odd\"");
    CHECK_HAS(page, "<details class=\"card\"><summary>More</summary>");
    CHECK(strstr(page, "nan\"") == NULL && strstr(page, "nan<") == NULL);
    free(page);
}

static const cJSON *part(const cJSON *doc, const char *title)
{
    const cJSON *p;
    cJSON_ArrayForEach(p, cJSON_GetObjectItem(doc, "parts"))
    {
        const cJSON *own = cJSON_GetObjectItem(p, "title");
        if (own != NULL && strcmp(own->valuestring, title) == 0) {
            return p;
        }
    }
    CHECK_FAIL("no part %s", title);
}

static double number(const cJSON *object, const char *key)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
    return cJSON_IsNumber(item) ? item->valuedouble : (double)NAN;
}

static void test_json(const struct dt_doc *doc)
{
    char *text = drawn(doc, JSON, (struct dt_text_view){.width = 0});
    cJSON *json = cJSON_Parse(text);
    CHECK(json != NULL);
    CHECK_NEAR(number(json, "dtrain_document"), DT_DOCUMENT_VERSION, 0);
    CHECK_TEXT(cJSON_GetObjectItem(json, "verdict")->valuestring, "FAIL");
    const cJSON *figures = cJSON_GetObjectItem(part(json, "Result"), "figures"),
                *accuracy = cJSON_GetObjectItem(figures, "accuracy"),
                *row = cJSON_GetArrayItem(cJSON_GetObjectItem(part(json, "Checks"), "rows"), 1),
                *line = cJSON_GetArrayItem(cJSON_GetObjectItem(part(json, "Loss"), "lines"), 0);
    CHECK_NEAR(number(accuracy, "value"), 0.985, 0);
    CHECK_NEAR(number(accuracy, "at_least"), 0.98, 0);
    CHECK(cJSON_IsNull(cJSON_GetObjectItem(cJSON_GetObjectItem(figures, "unknown"), "value")));
    CHECK_TEXT(cJSON_GetObjectItem(row, "verdict")->valuestring, "FAIL");
    CHECK_TEXT(cJSON_GetObjectItem(row, "time")->valuestring, "long");
    CHECK_INT(cJSON_GetArraySize(cJSON_GetObjectItem(line, "y")), 4);
    CHECK_NEAR(
        number(cJSON_GetArrayItem(cJSON_GetObjectItem(part(json, "More"), "rows"), 0), "value"),
        0.001, 0);
    CHECK_TEXT(cJSON_GetObjectItem(part(json, "Moves"), "step")->valuestring, "round 1");
    cJSON_Delete(json);
    free(text);
}

static void test_csv_and_junit(const struct dt_doc *doc)
{
    char *text = drawn(doc, CSV, (struct dt_text_view){.width = 0});
    CHECK_HAS(
        text,
        "check,\"time, s\",result,verdict,hint\r\nlinks,0.44,slow,MEASURED,no limit given\r\n");
    CHECK_HAS(text, "\r\nlast,2,plain,,\r\n");
    CHECK_HAS(text, "\"<b>&\"\"'");
    free(text);
    text = drawn(doc, JUNIT, (struct dt_text_view){.width = 0});
    CHECK_HAS(text,
              "<testsuite name=\"dtrain lab demo\" tests=\"3\" failures=\"1\" skipped=\"1\">");
    CHECK_HAS(
        text,
        "name=\"links\" time=\"0.440\"><skipped message=\"measured: slow (no limit given)\"/>");
    CHECK_HAS(text, "<property name=\"memory\" value=\"99.2 MB\"/>");
    CHECK_HAS(text, "<failure message=\"&lt;b&gt;");
    free(text);
}

/* Without a table: figures, and without figures: series. */
static void test_csv_without_table(void)
{
    static const double x[] = {1, 2}, y[] = {0.5, 0.25};
    struct dt_doc *doc = dt_doc_open("a", "b");
    struct dt_part *series = dt_doc_series(doc, "Loss", "step", "loss");
    dt_doc_line(series, &(struct dt_line){.name = "=sum", .n = 2, .x = x, .y = y});
    char *text = drawn(doc, CSV, (struct dt_text_view){.width = 0});
    CHECK_TEXT(text, "series,x,y\r\n'=sum,1,0.5\r\n'=sum,2,0.25\r\n");
    free(text);
    dt_doc_figure(dt_doc_figures(doc, NULL), "speed:images/s:0", dt_n(7.25));
    text = drawn(doc, CSV, (struct dt_text_view){.width = 0});
    CHECK_TEXT(text, "name,value,unit\r\nspeed,7.25,images/s\r\n");
    free(text);
    dt_doc_close(doc);
}

/* The texts of lanes at 80 columns: labels where they fit, else letters, on the scale asked for. */
static void test_lanes(void)
{
    struct dt_doc *doc = dt_doc_open("a", "b");
    for (int i = 0; i < 2; i++) {
        struct dt_part *lanes = dt_doc_lanes(doc, NULL, i == 0 ? "" : "time");
        dt_doc_kind(lanes, 0, "forward");
        dt_doc_box(lanes, dt_doc_lane(lanes, "A"), 0, i == 0 ? 1 : 0.5, 0, "abc");
        dt_doc_extent(lanes, 2);
    }
    char *text = drawn(doc, TEXT, (struct dt_text_view){.width = 25});
    CHECK_TEXT(text, "b\n\n  A  abc\n\n"
                     "  A  fffff...............\n     0 to 2: time;\n     forward\n");
    free(text);
    text = drawn(doc, HTML, (struct dt_text_view){.width = 0});
    char *second = strstr(strstr(text, "<svg") + 1, "<svg");
    CHECK(second != NULL && strstr(second, "width=\"229.1\"") != NULL);
    CHECK(strstr(strstr(text, "<svg"), "class=\"grid\"") > second); /* the first has no axis */
    CHECK(strstr(text, "lanes few") == NULL); /* pictures of one scale are of one width */
    free(text);
    struct dt_part *few = dt_doc_lanes(doc, NULL, "");
    dt_doc_box(few, dt_doc_lane(few, "A"), 0, 1, 0, "abc");
    text = drawn(doc, HTML, (struct dt_text_view){.width = 0});
    CHECK_HAS(text, "class=\"lanes few\""); /* each label fits its box on a phone */
    char *last = strstr(text, "lanes few");
    CHECK(strstr(last + 1, "class=\"lanes") == NULL);
    free(text);
    struct dt_part *wide = dt_doc_lanes(doc, NULL, "");
    dt_doc_box(wide, dt_doc_lane(wide, "A"), 0, 1, 0,
               "a label that needs the whole width of a picture on a desk");
    text = drawn(doc, HTML, (struct dt_text_view){.width = 0});
    CHECK_HAS(strstr(text, "lanes few"), "class=\"lanes\"");
    free(text);
    dt_doc_close(doc);
}

/* Of 17 steps a text has three at each end, a page has all. */
static void test_steps(void)
{
    struct dt_doc *doc = dt_doc_open("a", "b");
    for (int i = 0; i < 17; i++) {
        dt_doc_step(doc, dt_doc_print(doc, "round %d", i));
        dt_doc_text(doc, "one");
        dt_doc_text(doc, "two");
    }
    char *text = drawn(doc, TEXT, (struct dt_text_view){.width = 80});
    CHECK_HAS(text, "\nround 2\none\n\ntwo\n\n... 11 more steps (--html and --json have them)\n\n"
                    "round 14\none\n");
    CHECK(strstr(text, "round 3") == NULL && strstr(text, "round 13") == NULL);
    free(text);
    text = drawn(doc, HTML, (struct dt_text_view){.width = 0});
    CHECK_HAS(text, "<h2>round 8</h2>");
    free(text);
    dt_doc_close(doc);
}

/* Each allocation fails in turn; a document that says DT_OK is whole. */
static void test_memory(void)
{
    struct dt_doc *whole = demo();
    char *expected = drawn(whole, JSON, (struct dt_text_view){.width = 0});
    long failures = 0;
    for (failing_call = 1;; failing_call++) {
        n_calls = 0;
        struct dt_doc *doc = demo();
        const bool reached = n_calls >= failing_call;
        const long call = failing_call;
        failing_call = 0;
        failures += dt_doc_status(doc) == DT_NO_MEMORY;
        if (dt_doc_status(doc) == DT_OK) {
            char *text = drawn(doc, JSON, (struct dt_text_view){.width = 0});
            CHECK_TEXT(text, expected);
            free(text);
        }
        dt_doc_close(doc);
        failing_call = call;
        if (!reached) {
            break;
        }
    }
    failing_call = 0;
    CHECK(failures > 100);
    free(expected);
    dt_doc_close(whole);
}

int main(void)
{
    struct dt_doc *doc = demo();
    CHECK_OK(dt_doc_status(doc));
    test_text(doc);
    test_html(doc);
    test_json(doc);
    test_csv_and_junit(doc);
    test_csv_without_table();
    test_lanes();
    test_steps();
    dt_doc_close(doc);
    test_memory();
    return 0;
}
