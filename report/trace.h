/* A run's trace.json, read back: the file may be anything, and what is not a span of ours is left
 * out. */
#ifndef DT_REPORT_TRACE_H
#define DT_REPORT_TRACE_H

#include "base/status.h"
#include "model/trace.h"

#define DT_TRACE_MAX_RANKS 1024
#define DT_TRACE_NAME_SIZE 40

struct dt_trace_span {
    enum dt_span_kind kind;
    int rank, step;
    int bucket;              /* of DT_SPAN_BUCKET, else -1 */
    double begin_ms, end_ms; /* since the first, on rank 0's clock */
    char name[DT_TRACE_NAME_SIZE];
};

/* Of a step, on a rank; NaN where it did nothing of the kind. */
struct dt_trace_step {
    double begin_ms, end_ms; /* of all that it did */
    double compute_end_ms;   /* of its passes */
    double sent_ms,
        hidden_ms; /* that some bucket was on its way, and meanwhile the rank computed */
};

struct dt_trace_record {
    int n, n_ranks, n_buckets;
    int first_step, last_step, n_steps;
    double clock_error_us;       /* the largest of the ranks' */
    struct dt_trace_span *spans; /* by rank, and then by their begin */
    struct dt_trace_step *steps; /* private */
};

/* Without the file, or with one that is not ours, there are no spans, and that is no error.
 * DT_NO_MEMORY; then it owes nothing. */
enum dt_status dt_trace_open(const char *folder, struct dt_trace_record *out);
void dt_trace_close(struct dt_trace_record *trace);

/* Of a rank and step that the record has. */
struct dt_trace_step dt_trace_step(const struct dt_trace_record *trace, int rank, int step);

#endif
