/* Is this text strict JSON (RFC 8259)? cJSON builds the tree, but accepts more than JSON and says
 * little about where it stopped: text after the end, 007 and 5., control characters and \u0000 in
 * strings, invalid UTF-8. What passes here cJSON accepts too, and reads as it is written. */
#ifndef DT_BASE_JSON_H
#define DT_BASE_JSON_H

#include <stdbool.h>
#include <stddef.h>

#define DT_JSON_DEPTH 16
#define DT_JSON_NUMBER_LENGTH 60 /* cJSON reads no longer ones */

struct dt_json_fault {
    const char *problem; /* "<what is wrong> (<how to mend it>)"; static */
    size_t line, column; /* from 1; columns count characters */
};

bool dt_json_check(const char *text, size_t n_bytes, struct dt_json_fault *fault);

/* Puts spaces in the place of comments, from "//" outside strings to the end of the line, so that
 * places in the text stay what they are. False: one holds what a text does not. */
bool dt_json_blank_comments(char *text, size_t n_bytes, struct dt_json_fault *fault);

/* Is it UTF-8 without control characters? */
bool dt_text_is_clean(const char *text, size_t n_bytes);

#endif
