/* The document of a run, or of several side by side (view/document.h): `dtrain report`, and the
 * page at a training's end. A run's folder may be anybody's: what its files do not say is left out.
 *
 * Functions that add parts fail with DT_NO_MEMORY alone. */
#ifndef DT_REPORT_RUN_H
#define DT_REPORT_RUN_H

#include "report/record.h"
#include "train/hooks/learned.h"
#include "view/document.h"

#define DT_RUN_PAGE "report.html"
#define DT_RUNS_FOLDER "runs"
#define DT_REPORT_MAX_RUNS 8 /* beside each other */

/* The caller closes `out`, also after a failure. `learned`: NULL: the document says how to get it.
 */
enum dt_status dt_run_document(const struct dt_record *record, const struct dt_learned *learned,
                               struct dt_doc **out);
/* At most DT_REPORT_MAX_RUNS. */
enum dt_status dt_runs_document(const struct dt_record *records, int n, struct dt_doc **out);

/* Writes a document as DT_RUN_PAGE in the folder `dir`. DT_CANT_CREATE: that is no regular file.
 * DT_IO. */
enum dt_status dt_run_page_write(const char *dir, const struct dt_doc *doc);

/* For the sinks of a training: writes the page of a run at its end. */
extern const struct dt_run_reader dt_run_reader;

/* The newest run below DT_RUNS_FOLDER. DT_NO_INPUT: none. DT_NO_MEMORY. */
enum dt_status dt_runs_newest(char path[DT_PATH_SIZE]);

/* "2026-01-31 23:59:59" of seconds since 1970. False: not in the years from 1970 to 5138. */
#define DT_DATE_SIZE 32
bool dt_run_date(double seconds, char text[DT_DATE_SIZE]);

/* ---- parts, each in a file of its name */

/* The configuration: keys that differ from their defaults, and as a detail all of them. */
enum dt_status dt_run_config_add(struct dt_doc *doc, const struct dt_record *record);
/* Keys whose values are not the same in all runs; layers key by key ("model.layers.1.units") as
 * long as their types are alike. */
enum dt_status dt_run_differences_add(struct dt_doc *doc, const struct dt_record *records, int n);
/* Names for legends, such as "A lr=0.01 units=256": the letter of each run, and the values of the
 * keys that differ where they fit, or else its folder without what all have in front. */
#define DT_RUN_NAME_SIZE (DT_PATH_SIZE + 2)
enum dt_status dt_run_names(const struct dt_record *records, int n,
                            char names[DT_REPORT_MAX_RUNS][DT_RUN_NAME_SIZE]);

/* Series of loss, accuracy, gradient norm, rate and throughput; of several runs over each other. */
enum dt_status dt_run_curves_add(struct dt_doc *doc, const struct dt_record *record);
enum dt_status dt_runs_curves_add(struct dt_doc *doc, const struct dt_record *records,
                                  char names[DT_REPORT_MAX_RUNS][DT_RUN_NAME_SIZE], int n);

/* Where the time of the steps went, rank by rank, and what ranks sent. */
enum dt_status dt_run_time_add(struct dt_doc *doc, const struct dt_record *record);
/* Lanes of what the ranks did when, in the steps of trace.json, if there is one. Kinds of boxes:
 * enum dt_phase, and DT_N_PHASES for the loss. */
enum dt_status dt_run_timeline_add(struct dt_doc *doc, const struct dt_record *record);
/* The ranks' last steps side by side, of a run that ended badly; where the folder has them. */
enum dt_status dt_run_flight_add(struct dt_doc *doc, const struct dt_record *record);

/* Tests the model of a run, from the checkpoint that its test result is of, with the test data.
 * `data`: folder of the data in place of the configuration's, or NULL. Without checkpoint, data, or
 * classes `out` says so, and a line on stderr; only data that somebody named must be there. Data of
 * another user's run are read only if they are named, and generated ones up to a limit. The caller
 * closes `out`, also after a failure. */
enum dt_status dt_learned_find(const struct dt_record *record, const char *data,
                               struct dt_learned *out);
/* Confusion, precision and recall, the worst samples, filters. */
enum dt_status dt_run_learned_add(struct dt_doc *doc, const struct dt_learned *learned);

#endif
