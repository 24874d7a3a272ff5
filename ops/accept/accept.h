/* `dtrain accept`: PASS or FAIL for each ability that training needs of a cluster, before anybody
 * relies on it. */
#ifndef DT_OPS_ACCEPT_ACCEPT_H
#define DT_OPS_ACCEPT_ACCEPT_H

#include "dist/ranks/world.h"
#include "train/watch/inject.h"

struct dt_accept_spec {
    const char *command; /* the command line, for the record */
    const char *
        run; /* folder of the short training; NULL: a new one below "runs", removed if all passed */
    const char *junit; /* output file in JUnit's XML; NULL: none */
    const char *json;  /* output file with the rows and their figures, for `baseline`; NULL: none */
    const char *html;  /* output page; NULL: none */
    const char *baseline; /* an earlier run's `json`: a figure worse by a tenth fails; NULL: none */
    bool quick;           /* measures no longer than necessary */
    const struct dt_faults *faults; /* injected into the training, to see it fail */
};

#endif
