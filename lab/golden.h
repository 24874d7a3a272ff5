/* The numbers that a lesson has to come to: known from elsewhere (a textbook's example, a formula),
 * and checked at its end. */
#ifndef DT_LAB_GOLDEN_H
#define DT_LAB_GOLDEN_H

#include <stdbool.h>

#include "base/status.h"

struct dt_golden {
    int n; /* checked so far */
    bool differs;
    char verdict[200]; /* of the first that differs; else, after dt_golden_end: how many there were
                        */
};

/* That |actual - expected| <= tolerance; no NaN passes. `what` is for people: "the loss of rank 0".
 */
void dt_golden_number(struct dt_golden *golden, const char *what, double actual, double expected,
                      double tolerance);
void dt_golden_fact(struct dt_golden *golden, const char *what,
                    bool holds); /* "both ranks have the same weights" */

/* Writes `verdict`: "PASS: ..." or what differs. */
void dt_golden_end(struct dt_golden *golden);
/* DT_FAILED with the verdict as the error's text, or else `written`, how writing the page ended. */
enum dt_status dt_golden_status(const struct dt_golden *golden, enum dt_status written);

#endif
