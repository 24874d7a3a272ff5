/* Text from outside, on its way to a terminal: printable characters as they are, everything else in
 * sight and without effect. */
#include "base/status.h"
#include "base/text.h"
#include "tests/lib/temporary.h"

static const struct {
    const char *text, *shown;
} cases[] = {
    {"", ""},
    {"runs/mnist 1/step-000000000469.safetensors", "runs/mnist 1/step-000000000469.safetensors"},
    {"Übung/数字 × ½ – 🙂 e\u0301", "Übung/数字 × ½ – 🙂 e\u0301"},
    {"a\\b", "a\\b"},
    {"a\tb\nc\rd", "a\\x09b\\x0ac\\x0dd"},
    {"\033[2J\033]0;title\a\x7f", "\\x1b[2J\\x1b]0;title\\x07\\x7f"},
    {"\xc2\x9b[J\xc2\x85", "\\u009b[J\\u0085"}, /* C1: CSI and next line */
    {"\u202egnp\u2066x\u2069\u200f", "\\u202egnp\\u2066x\\u2069\\u200f"}, /* directions */
    {"\u2028\u2029\ufeff\u00ad", "\\u2028\\u2029\\ufeff\\u00ad"},
    {"\U000E0041", "\\U000e0041"},
    {"\x9b[J", "\\x9b[J"},
    {"\xff\xc3", "\\xff\\xc3"},
    {"\xc0\xae\xe0\x80\xaf", "\\xc0\\xae\\xe0\\x80\\xaf"}, /* overlong */
    {"\xed\xa0\x80\xf4\x90\x80\x80",
     "\\xed\\xa0\\x80\\xf4\\x90\\x80\\x80"}, /* a surrogate; too large */
    {"\xe2\x80", "\\xe2\\x80"},              /* cut off */
};

static void test_escape(void)
{
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char shown[256], again[256];
        CHECK_TEXT(dt_text_escape(cases[i].text, shown, sizeof shown), cases[i].shown);
        CHECK_TEXT(dt_text_escape(shown, again, sizeof again), shown);
    }
}

/* No half of a character, and no half of an escape. */
static void test_full(void)
{
    char small[4];
    CHECK_TEXT(dt_text_escape("abcd", small, sizeof small), "abc");
    CHECK_TEXT(dt_text_escape("abü", small, sizeof small), "ab");
    CHECK_TEXT(dt_text_escape("\033", small, sizeof small), "");
    CHECK_TEXT(dt_text_escape("abc", small, 1), "");
}

/* Every code point comes back as itself, or as an escape; none is longer than 10 bytes. */
static void test_all_points(void)
{
    for (uint32_t p = 1; p <= 0x10FFFF; p++) {
        char text[5] = "", shown[16];
        const int n = p < 0x80 ? 1 : p < 0x800 ? 2 : p < 0x10000 ? 3 : 4;
        text[0] = (char)(n == 1 ? p : (0xF00u >> n & 0xFF) | p >> 6 * (n - 1));
        for (int i = 1; i < n; i++) {
            text[i] = (char)(0x80 | (p >> 6 * (n - 1 - i) & 0x3F));
        }
        const bool surrogate = p >= 0xD800 && p < 0xE000;
        uint32_t found = 0;
        CHECK_INT(dt_utf8_length(text, (size_t)n, &found), surrogate ? 0 : n);
        CHECK_INT(dt_utf8_length(text, (size_t)n - (n > 1), NULL), n > 1 ? 0 : 1);
        CHECK(surrogate || found == p);
        dt_text_escape(text, shown, sizeof shown);
        CHECK_INT(strcmp(shown, text) == 0, !surrogate && dt_text_shows(p));
    }
}

static void test_line(void)
{
    dt_text_print(print_begin(), "saved %s", "a\nb\u202e");
    CHECK_TEXT(print_end(), "saved a\\x0ab\\u202e\n");
}

/* The texts of errors are made of what hostile files hold. */
static void test_error(void)
{
    CHECK_INT(dt_error(DT_BAD_DATA, "%s: %s", "\u202e.json", "\xc2\x9b[J\n"), DT_BAD_DATA);
    CHECK_TEXT(dt_error_text(), "\\u202e.json: \\u009b[J\\x0a");
    dt_error_around(DT_BAD_DATA, "rank 1 (\x1b): ", " ü");
    CHECK_TEXT(dt_error_text(), "rank 1 (\\x1b): \\u202e.json: \\u009b[J\\x0a ü");
}

/* A text that its stream could not write whole is none, whatever closing the stream says. */
static void test_closing_texts(void)
{
    static const struct {
        const char *stream;
        bool has_text, flushes, whole;
    } ends[] = {{"/dev/null", true, false, true},
                {"/dev/null", false, false, false}, /* as glibc's, without the memory at its end */
                {"/dev/full", true, true, false},
                {"/dev/full", true, false, false},
                {NULL, false, false, false}};
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        FILE *out = ends[i].stream != NULL ? fopen(ends[i].stream, "w") : NULL;
        char *text = ends[i].has_text ? strdup("half of it") : NULL;
        if (out != NULL) {
            fputs("all of it", out);
            ends[i].flushes ? fflush(out) : 0;
        }
        CHECK_INT(dt_text_close(out, &text), ends[i].whole);
        CHECK_INT(text != NULL, ends[i].whole);
        free(text);
    }
}

/* Names are left out once there is no room for one more and for the count. */
static void test_name_list(void)
{
    static const struct {
        size_t n_bytes; /* of each name */
        int n;
        const char *expected; /* its end */
    } lists[] = {{1, 3, "'x', 'x', 'x'"}, {0, 2, "'', ''"},
                 {100, 1, "xx'"},         {100, 65535, "xx' and 65534 more"},
                 {200, 3, " and 3 more"}, {8, 1000, "'xxxxxxxx' and 991 more"}};
    char name[200];
    memset(name, 'x', sizeof name);
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        struct dt_name_list list = {.n = 0};
        for (int k = 0; k < lists[i].n; k++) {
            dt_name_list_add(&list, name, lists[i].n_bytes);
        }
        const size_t n = strlen(list.text), n_expected = strlen(lists[i].expected);
        CHECK_INT(list.n, lists[i].n);
        CHECK(n >= n_expected && n < sizeof list.text);
        CHECK_TEXT(list.text + n - n_expected, lists[i].expected);
    }
}

int main(void)
{
    dt_error_format = dt_text_format;
    test_escape();
    test_full();
    test_all_points();
    test_line();
    test_error();
    test_closing_texts();
    test_name_list();
    return 0;
}
