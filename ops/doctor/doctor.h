/* `dtrain doctor`: what these ranks have, before a job is given to them, and what is wrong with it.
 */
#ifndef DT_OPS_DOCTOR_DOCTOR_H
#define DT_OPS_DOCTOR_DOCTOR_H

#include "ops/doctor/facts.h"

/* Prints to stdout: a row for each rank, then a line for each check (checks.h) with its verdict and
 * cure. DT_UNAVAILABLE, agreed: there are problems; warnings are none. Every rank calls it. */
enum dt_status dt_doctor(struct dt_world *world, const struct dt_doctor_spec *spec);

#endif
