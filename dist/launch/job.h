/* How a job begins and ends: the careful way to start MPI and to leave it. The environment is read
 * only to recognise launches that can only be mistakes, such as n programs that each think they are
 * rank 0 of 1. */
#ifndef DT_DIST_LAUNCH_JOB_H
#define DT_DIST_LAUNCH_JOB_H

#include "dist/ranks/world.h"

/* Blocks the stop signals (dist/launch/stop.h), starts MPI, finds the ranks and checks the
 * launch and DTRAIN_TIMEOUT. Every rank calls it, first thing. After any failure `world` serves for
 * dt_world_speaks and dt_world_exit, and all ranks have the same. DT_CONFIG: a bad DTRAIN_TIMEOUT.
 * DT_UNAVAILABLE: MPI does not start, or a launch that cannot be meant
 * (dist/launch/launch.h). */
enum dt_status dt_world_open(struct dt_world *world);

/* The first n ranks as a world of their own, within which they do as if there were no others;
 * out->comm is NULL on those. Every rank calls it; agreed. Those in it close it. */
enum dt_status dt_world_open_first(struct dt_world *world, int n, struct dt_world *out);
void dt_world_close_first(struct dt_world *part);

/* This rank as a world of its own, in which it trains by itself; on its host it keeps its place,
 * and with it its GPU. Local. dt_world_close_first closes it. */
enum dt_status dt_world_open_alone(const struct dt_world *world, struct dt_world *out);

/* Which rank prints the error: of an agreed one rank 0, and a rank whose wait was too long; else
 * any. Of those the first of each host that asks. Ask once, before dt_world_exit. */
bool dt_world_speaks(struct dt_world *world, bool agreed);

/* Ends the program with `status` as the exit code of the whole job, within 10 s whatever the other
 * ranks do. Does not return. All ranks call it with an agreed status; with DT_STALLED or a status
 * that is not agreed (`agreed` false) it takes the others along. A rank that ends in any other way
 * after dt_world_open, by a stray exit(0) too, makes the whole job fail. */
void dt_world_exit(struct dt_world *world, enum dt_status status, bool agreed)
    __attribute__((noreturn));

#endif
