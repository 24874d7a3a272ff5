/* `dtrain predict`: what a trained model sees in PNG images. */
#ifndef DT_CLI_COMMANDS_PREDICT_H
#define DT_CLI_COMMANDS_PREDICT_H

#include "cli/commands/eval.h"

/* For each image, on stdout: its picture in characters as the model sees it, the class, and the
 * probabilities. Rank 0 works, the others wait. `invert`: "yes", "no", or "auto" or NULL: an image
 * with a border as bright as no training image's is inverted, or as dark as none's; where the file
 * does not tell what those were like, they are taken to be light on dark, as MNIST's. Every rank
 * calls it; agreed. DT_CONFIG: the model is no classifier of images. DT_USAGE: another `invert`.
 * DT_NON_FINITE: what the model computes is not finite. */
enum dt_status dt_predict(struct dt_world *world, const struct dt_trained *from, const char *invert,
                          const char *const *images, int n_images);

#endif
