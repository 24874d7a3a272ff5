/* What the model of a run has learned, from its newest checkpoint and the test data: for its page.
 */
#ifndef DT_REPORT_LEARNED_H
#define DT_REPORT_LEARNED_H

#include "cli/sinks/record.h"
#include "report/run.h"

/* `data`: folder of the data in place of the configuration's, or NULL. Without checkpoint, data, or
 * classes `out` says so; only data that somebody named must be there. The caller closes `out`, also
 * of a failure. */
enum dt_status dt_learned_find(const struct dt_record *record, const char *data,
                               struct dt_learned *out);

#endif
