/* Who uses a run's folder: the process that holds flock of its run.lock. On a file system without
 * flock it is the process that run.lock names, by host, number and start, as long as it lives; such
 * a lock is taken while a file is there that only one process can create (O_EXCL). */
#ifndef DT_TRAIN_SAVE_RUN_LOCK_H
#define DT_TRAIN_SAVE_RUN_LOCK_H

#include "train/save/run_dir.h"

/* Of run->lock, which is open and closed on failure; notes run->lock_size. DT_CANT_CREATE: another
 * process uses the folder, or may do so on another host, where nobody can look whether it lives;
 * both are named. */
enum dt_status dt_run_lock_take(struct dt_run_dir *run);
void dt_run_lock_release(struct dt_run_dir *run);

/* Whether a process uses the folder of this open run.lock, as far as this host can tell. */
bool dt_run_lock_is_held(int fd);

#endif
