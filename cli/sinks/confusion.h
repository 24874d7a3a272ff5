/* A confusion matrix as a picture: rows are what samples are, columns what was said of them. */
#ifndef DT_CLI_SINKS_CONFUSION_H
#define DT_CLI_SINKS_CONFUSION_H

#include "cli/image.h"

/* `counts`: (n, n) [label][said], at most 999,999 each are legible. The caller frees out->bytes.
 * False: no memory. */
bool dt_confusion_draw(int n, const double *counts, struct dt_png *out);

#endif
