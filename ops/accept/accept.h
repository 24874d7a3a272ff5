/* `dtrain accept`: PASS or FAIL for each thing that a cluster must be able to do, before anybody
 * relies on it. */
#ifndef DT_OPS_ACCEPT_ACCEPT_H
#define DT_OPS_ACCEPT_ACCEPT_H

#include "dist/ranks/world.h"
#include "train/watch/inject.h"

struct dt_accept_spec {
    const char *command; /* the line that was given, for the record */
    const char *run;   /* where the short training leaves its folder; NULL: a new one below "runs",
                          which goes if all passed */
    const char *junit; /* a file for what reads JUnit's XML; NULL: none */
    const char *json;  /* the rows with their figures, for `baseline`; NULL: none */
    const char *html;  /* a page; NULL: none */
    const char *baseline; /* an earlier run's `json`: what is a tenth worse fails; NULL: none */
    bool quick;           /* measures for as long as it takes, and no longer */
    const struct dt_faults *faults; /* put into the training, to see it fail */
};

/* Prints to stdout a row for each check (rows.h) as it ends. DT_FAILED, agreed: one has. A rank
 * that stalls ends it with the error of that. Every rank calls it. */
enum dt_status dt_accept(struct dt_world *world, const struct dt_accept_spec *spec);

#endif
