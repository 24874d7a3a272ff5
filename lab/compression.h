/* `dtrain lab compression`: its results, its text and its page. */
#ifndef DT_LAB_COMPRESSION_H
#define DT_LAB_COMPRESSION_H

#include <stdio.h>

#include "lab/distributed.h"
#include "lab/golden.h"

#define DT_COMPRESSION_N_TEST 5000

struct dt_compression_way {
    struct dt_lab_outcome
        outcomes[2];   /* without error feedback and with; none has the first alone */
    double expected;   /* bytes a step, by the codec */
    bool nothing_lost; /* by error feedback over many encodings; none has none */
};

struct dt_compression_lesson {
    struct dt_compression_way ways[DT_N_COMPRESSION_TYPES];
    struct dt_lab_outcome whole; /* topk that sends them all */
    struct dt_golden golden;
};

/* How far a share of the test images may be from that of all images there could be, in 95 of 100
 * such test sets. */
double dt_compression_margin(double share);

/* Whether that chance explains the difference to another training's share: -1 it is worse, 0 it may
 * be the same, 1 it is better. */
int dt_compression_relation(double share, double other);

/* Which ways end worse than none, better, or cannot be told apart from it, as lines of text; no
 * claim but what the accuracies show.
 */
void dt_compression_print_claims(FILE *out, const struct dt_compression_lesson *lesson);

enum dt_status dt_compression_page(const char *path, const struct dt_compression_lesson *lesson);

#endif
