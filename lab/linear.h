/* `dtrain lab linear`: its results, text and page. */
#ifndef DT_LAB_LINEAR_H
#define DT_LAB_LINEAR_H

#include "lab/golden.h"
#include "lab/points.h"
#include "train/events.h"

#define DT_LINEAR_STEPS 64
#define DT_LINEAR_CASES 4

/* The path of each rank's line in one of the cases; [0] is its start. */
struct dt_linear_case {
    bool average, broadcast;
    struct dt_line path[2][DT_LINEAR_STEPS + 1];
    double apart;   /* distance of the final lines */
    double loss[2]; /* of the final lines, over all points */
};

struct dt_linear_lesson {
    const char *batch_name; /* "1", "16", "all" */
    int batch;              /* samples in a rank's step */
    double rate;
    struct dt_line alone[DT_LINEAR_STEPS + 1]; /* of one process with all points, from (1, 1) */
    struct dt_linear_case cases[DT_LINEAR_CASES];
    int n_uphill;             /* steps of the first case that raise the loss over all points */
    struct dt_samples points; /* all of them; the page draws their loss */
    struct dt_golden golden;
};

enum dt_status dt_linear_page(const char *path, const struct dt_linear_lesson *lesson);

#endif
