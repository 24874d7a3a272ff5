/* Keeps a run in a folder (train/save/run_dir.h): its configuration and checkpoints. */
#ifndef DT_TRAIN_SAVE_SAVER_H
#define DT_TRAIN_SAVE_SAVER_H

#include "checkpoint/checkpoint.h"
#include "train/save/run_dir.h"
#include "train/train.h"

struct dt_folder_saver {
    struct dt_saver saver; /* first */
    const char *run_dir;   /* NULL: choose one */
    bool resume;
    const char *checkpoint; /* with resume: this one; NULL: the newest of run_dir */
    const char *weights;    /* the file of the initial ones, where there is nothing to resume; NULL:
                               they are drawn */
    /* private */
    struct dt_run_dir dir;
    char resumed_from[DT_CHECKPOINT_PATH_SIZE], saved[DT_CHECKPOINT_PATH_SIZE],
        best[DT_CHECKPOINT_PATH_SIZE], changes[DT_CHANGES_SIZE];
};

extern const struct dt_saver_ops dt_folder_saver_ops;

#endif
