/* Sizes for people: three digits at every size, none lost at the borders between units. */
#include "base/text.h"
#include "tests/lib/check.h"

int main(void)
{
    static const struct {
        double n_bytes;
        const char *text;
    } cases[] = {
        {0, "0 B"},          {1, "1 B"},          {999, "999 B"},      {1000, "1 kB"},
        {70200, "70.2 kB"},  {999499, "999 kB"},  {999500, "1 MB"},    {33554432, "33.6 MB"},
        {1.24e9, "1.24 GB"}, {150.1e9, "150 GB"}, {9.99e11, "999 GB"}, {1234e12, "1.23e+03 TB"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[DT_BYTES_TEXT_SIZE];
        CHECK_TEXT(dt_bytes_text(cases[i].n_bytes, text), cases[i].text);
    }
    return 0;
}
