/* How a job begins and ends. It reads the environment only to refuse launches that can only be
 * mistakes, such as n programs that each think they are rank 0 of 1. */
#ifndef DT_DIST_LAUNCH_JOB_H
#define DT_DIST_LAUNCH_JOB_H

#include "dist/ranks/world.h"

/* Blocks the stop signals (dist/launch/stop.h), starts MPI, finds the ranks and checks the
 * launch and DTRAIN_TIMEOUT. Every rank calls it, before anything else. A failure is the same on
 * all ranks, and `world` then serves for dt_world_speaks and dt_world_exit. DT_CONFIG: a bad
 * DTRAIN_TIMEOUT. DT_UNAVAILABLE: MPI does not start, or dt_launch_check refuses the launch. */
enum dt_status dt_world_open(struct dt_world *world);

/* dt_comm_set_timeout, unless DTRAIN_TIMEOUT is set: that counts. Every rank calls it; agreed. */
enum dt_status dt_world_set_timeout(struct dt_world *world, double seconds);

/* Makes a world of the first n ranks; on the others out->comm is NULL. Every rank calls it; agreed
 * where dt_error_is_agreed. The ranks of the new world close it (dt_world_close). */
enum dt_status dt_world_open_first(struct dt_world *world, int n, struct dt_world *out);

/* Makes a world of this rank alone, which keeps its GPU. Local. dt_world_close closes it. */
enum dt_status dt_world_open_alone(const struct dt_world *world, struct dt_world *out);

/* True if this rank prints the error. An agreed error is rank 0's, or that of a rank whose wait was
 * too long; any rank may print another error. The first of these ranks to ask prints it, on each
 * host. Ask once, before dt_world_exit. */
bool dt_world_speaks(struct dt_world *world, bool agreed);

/* Ends the program with `status` as the exit code of the whole job, within 10 s whatever the other
 * ranks do. Does not return. All ranks call it with an agreed status; with DT_STALLED or a status
 * that is not agreed (`agreed` false) it takes the others along. A rank that ends in any other way
 * after dt_world_open, by a stray exit(0) too, makes the whole job fail. */
void dt_world_exit(struct dt_world *world, enum dt_status status, bool agreed)
    __attribute__((noreturn));

#endif
