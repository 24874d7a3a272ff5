/* Sizes for people. */
#ifndef DT_BASE_BYTES_H
#define DT_BASE_BYTES_H

#include <stdio.h>

#define DT_BYTES_TEXT_SIZE 16

/* "512 B", "33.6 MB", "139 GB": three digits, and a kB is 1000 B. Returns text. */
static inline const char *dt_bytes_text(double n_bytes, char text[DT_BYTES_TEXT_SIZE])
{
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB"};
    int unit = 0;
    for (; n_bytes >= 999.5 && unit < 4; unit++) {
        n_bytes /= 1000;
    }
    snprintf(text, DT_BYTES_TEXT_SIZE, "%.3g %s", n_bytes, units[unit]);
    return text;
}

#endif
