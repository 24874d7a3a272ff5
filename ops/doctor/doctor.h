/* `dtrain doctor`: lists the resources of these ranks before a job, and reports problems. */
#ifndef DT_OPS_DOCTOR_DOCTOR_H
#define DT_OPS_DOCTOR_DOCTOR_H

#include "ops/doctor/facts.h"

/* Prints to stdout: a row for each rank, then a line for each check (checks.h) with its verdict and
 * cure. DT_UNAVAILABLE, agreed: there are problems; warnings do not count. Every rank calls it. */
enum dt_status dt_doctor(struct dt_world *world, const struct dt_doctor_spec *spec);

#endif
