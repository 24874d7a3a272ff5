#include "cli/sinks/json.h"

#include <string.h>

#include "base/text.h"

static const char replacement[] = "\xEF\xBF\xBD"; /* U+FFFD */

/* With `out` as a copy; returns how long it is. */
static size_t mend(const char *text, size_t n_bytes, char *out)
{
    size_t n_out = 0;
    for (size_t i = 0; i < n_bytes;) {
        const size_t n = dt_utf8_length(text + i, n_bytes - i, NULL),
                     n_put = n > 0 ? n : strlen(replacement);
        if (out != NULL) {
            memcpy(out + n_out, n > 0 ? text + i : replacement, n_put);
        }
        n_out += n_put;
        i += n > 0 ? n : 1;
    }
    return n_out;
}

char *dt_json_print(const cJSON *tree, bool in_lines)
{
    char *text = in_lines ? cJSON_Print(tree) : cJSON_PrintUnformatted(tree);
    const size_t n = text != NULL ? strlen(text) : 0, n_mended = mend(text, n, NULL);
    if (n_mended == n) { /* each byte that is none becomes three */
        return text;
    }
    char *mended = cJSON_malloc(n_mended + 1);
    if (mended != NULL) {
        mend(text, n, mended);
        mended[n_mended] = '\0';
    }
    cJSON_free(text);
    return mended;
}
