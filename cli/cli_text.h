/* Numbers as people read them. */
#ifndef DT_CLI_CLI_TEXT_H
#define DT_CLI_CLI_TEXT_H

#include <stdio.h>

#include "dist/strategy/summary/summary.h"
#include "train/events.h"

/* The word for this run's samples: "images", or "samples" if they are numbers. */
const char *dt_unit_name(const struct dt_config *config);
/* "0.1234"; a huge loss in few digits. */
const char *dt_loss_text(double loss, char *text, size_t size);
/* "test loss 0.0312 at epoch 7", and "test loss has not improved for 3 epochs; best 0.0312 at epoch
 * 7". */
const char *dt_best_text(const struct dt_monitored *best, char *text, size_t size);
const char *dt_stopping_text(const struct dt_monitored *stopping, char *text, size_t size);
const char *dt_metric_name(enum dt_test_metric metric); /* "test loss" */
/* "0:42", "3:07:59" */
const char *dt_duration_text(double seconds, char *text, size_t size);
/* "12,345" */
const char *dt_count_text(double value, char *text, size_t size);
/* "12 messages and 7.2 MB sent by each rank" */
void dt_traffic_text(const struct dt_step_traffic *traffic, char *text, size_t n_text);
/* Prints a line about the traffic between hosts, if there are several. */
void dt_traffic_print_between(FILE *out, const struct dt_step_traffic *traffic);

#endif
