/* `dtrain predict`: what a trained model sees in PNG images. */
#ifndef DT_CLI_PREDICT_H
#define DT_CLI_PREDICT_H

#include "cli/eval.h"

/* For each image, on stdout: its picture in characters as the model sees it, the class, and the probabilities. Rank 0 works, the
 * others wait. Every rank calls it; agreed. DT_CONFIG: the model is no classifier of images. */
enum dt_status dt_predict(struct dt_world *world, const struct dt_trained *from, const char *const *images, int n_images);

#endif
