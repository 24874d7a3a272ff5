/* Numbers as people read them. */
#ifndef DT_CLI_TEXT_H
#define DT_CLI_TEXT_H

#include <stdio.h>

#include "dist/strategy/facts/facts.h"
#include "train/events.h"

/* The word for this run's samples: "images", or "samples" where they are numbers. */
const char *dt_unit_name(const struct dt_config *config);
/* "0.1234"; what is huge in few digits. */
const char *dt_loss_text(double loss, char *text, size_t size);
/* Texts of a metric that has a best: "test loss 0.0312 at epoch 7"; and "test loss has not improved
 * for 3 epochs; best 0.0312 at epoch 7".
 */
const char *dt_best_text(const struct dt_monitored *best, char *text, size_t size);
const char *dt_stopping_text(const struct dt_monitored *stopping, char *text, size_t size);
const char *dt_metric_name(enum dt_test_metric metric); /* "test loss" */
/* "0:42", "3:07:59" */
const char *dt_duration_text(double seconds, char *text, size_t size);
/* "12,345" */
const char *dt_count_text(double value, char *text, size_t size);
/* The fewest digits that name this float and no other; `text` has 32 bytes. */
const char *dt_float_text(float value, char *text);
int dt_digits(unsigned long long value); /* how many it has: the width of a column */
/* "12 messages and 7.2 MB sent by each rank" */
/* A line about what goes between hosts, if there are several. */
void dt_traffic_print_between(FILE *out, const struct dt_step_traffic *traffic);
void dt_traffic_text(const struct dt_step_traffic *traffic, char *text, size_t n_text);
/* "  compression: int8 with error feedback, 1,213,946 bytes for 1,199,882 gradients: n + 3 ceil(n /
 * 256) for n numbers", with its line's end; nothing where there is none. */
void dt_compression_print(FILE *out, const struct dt_codec *codec, size_t n_gradients);

#endif
