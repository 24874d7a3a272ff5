/* Strict JSON (RFC 8259). cJSON builds the tree, but accepts more than JSON and says little about
 * where it stopped: text after the end, 007 and 5., control characters and \u0000 in strings,
 * invalid UTF-8. So the text is checked first; what passes, cJSON reads as it is written. */
#ifndef DT_BASE_JSON_H
#define DT_BASE_JSON_H

#include <cjson/cJSON.h>
#include <stddef.h>

#define DT_JSON_DEPTH 16
#define DT_JSON_NUMBER_LENGTH 60 /* cJSON cuts longer numbers */

struct dt_json_fault {
    const char *problem; /* "<what is wrong> (<how to mend it>)"; static; NULL: out of memory */
    size_t line, column; /* from 1; columns count characters */
};

/* The tree, which the caller deletes; NULL: see `fault`. */
cJSON *dt_json_parse(const char *text, size_t n_bytes, struct dt_json_fault *fault);

/* The same of a text with comments, from "//" outside strings to the end of the line. Replaces them
 * by spaces in `text`, so that faults keep their place. */
cJSON *dt_json_parse_commented(char *text, size_t n_bytes, struct dt_json_fault *fault);

#endif
