/* The flight record of a run that ended badly (train/hooks/guard.h): which rank lags, and what all
 * of them did in their last steps, side by side. */
#include "report/run.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "dist/liveness/flight.h"

#define MAX_RANKS 4096
#define SHOWN_STEPS 3
#define SHOWN_RANKS 16 /* of a step */
#define SILENT_MS 1000
#define CELL_SIZE 2048

/* The folder may be anybody's: the events of ranks that are not shown are not kept. */
struct rank {
    bool there;  /* it has left a record */
    cJSON *json; /* of a rank that is shown */
    char host[80];
    double step, begun, silent_ms;
    double begin_ns[SHOWN_STEPS + 1]; /* of the step after `step`, of that one, and so on back */
};

struct flight {
    int n_ranks;
    struct rank *ranks;
    double last_step;
    bool any;
    int behind; /* the rank that lags, or -1 */
};

static const cJSON *first_event(const cJSON *rank)
{
    return cJSON_GetArrayItem(cJSON_GetObjectItemCaseSensitive(rank, "events"), 0);
}

/* The rank with fewer collectives is further behind; if both have as many, the rank that was silent
 * for longer. */
static bool is_more_behind(const struct rank *a, const struct rank *b)
{
    return a->begun < b->begun || (a->begun == b->begun && a->silent_ms > b->silent_ms);
}

static void find_behind(struct flight *f)
{
    double most = 0;
    const struct rank *least = NULL;
    for (const struct rank *rank = f->ranks; rank < f->ranks + f->n_ranks; rank++) {
        if (rank->there) {
            most = fmax(most, rank->begun);
            f->last_step = fmax(f->last_step, rank->step);
            least = least == NULL || is_more_behind(rank, least) ? rank : least;
        }
    }
    f->any = least != NULL;
    f->behind = f->any && (least->begun < most || least->silent_ms > SILENT_MS)
                    ? (int)(least - f->ranks)
                    : -1;
}

/* NULL: there is none. Links are not followed: many could lead to one file. */
static enum dt_status read_rank(const struct dt_record *r, int rank, cJSON **out)
{
    char name[32], path[DT_PATH_SIZE + 32];
    struct stat info;
    *out = NULL;
    snprintf(name, sizeof name, "flight-%d.json", rank);
    snprintf(path, sizeof path, "%s/%s", r->path, name);
    return lstat(path, &info) != 0 || S_ISLNK(info.st_mode)
               ? DT_OK
               : dt_record_read(r->path, name, DT_FLIGHT_TEXT_SIZE, out);
}

static void note_rank(cJSON *json, struct rank *out)
{
    *out = (struct rank){.there = json != NULL,
                         .json = json,
                         .step = dt_record_number(json, "step"),
                         .begun = dt_record_number(json, "collectives_begun"),
                         .silent_ms = dt_record_number(json, "silent_ms"),
                         .begin_ns = {NAN, NAN, NAN, NAN}};
    snprintf(out->host, sizeof out->host, "%s", dt_record_text(json, "host"));
    for (const cJSON *event = first_event(json); event != NULL; event = event->next) {
        const double back = out->step + 1 - dt_record_number(event, "step");
        if (back >= 0 && back <= SHOWN_STEPS && isnan(out->begin_ns[(int)back])) {
            out->begin_ns[(int)back] = dt_record_number(event, "ns");
        }
    }
}

static void close_flight(struct flight *f)
{
    for (int r = 0; r < f->n_ranks; r++) {
        cJSON_Delete(f->ranks[r].json);
    }
    free(f->ranks);
}

/* Also after a failure the caller closes it. */
static enum dt_status open_flight(const struct dt_record *r, struct flight *f)
{
    const double n = dt_record_number(r->start, "world_size");
    const int n_ranks = n >= 1 && n <= MAX_RANKS && r->state != DT_RUN_GOING ? (int)n : 0;
    int n_shown = 0;
    *f = (struct flight){.ranks = calloc((size_t)n_ranks + 1, sizeof *f->ranks)};
    if (f->ranks == NULL) {
        return dt_error(DT_NO_MEMORY, "no memory for the flight record");
    }
    f->n_ranks = n_ranks;
    for (int i = 0; i < n_ranks; i++) {
        cJSON **json = &f->ranks[i].json;
        DT_TRY(read_rank(r, i, json));
        note_rank(*json, &f->ranks[i]);
        if (*json != NULL && n_shown++ >= SHOWN_RANKS) {
            cJSON_Delete(*json);
            *json = NULL;
        }
    }
    find_behind(f);
    return f->behind >= 0 && f->ranks[f->behind].json == NULL
               ? read_rank(r, f->behind, &f->ranks[f->behind].json)
               : DT_OK;
}

/* When the first rank of this host entered the step. */
static double begin_of(const struct flight *f, const char *host, double step)
{
    double begin = NAN;
    for (int r = 0; r < f->n_ranks; r++) {
        const double back = f->ranks[r].step + 1 - step;
        if (back >= 0 && back <= SHOWN_STEPS && strcmp(f->ranks[r].host, host) == 0) {
            begin = fmin(begin, f->ranks[r].begin_ns[(int)back]);
        }
    }
    return begin;
}

/* "+0.012 allreduce of gradient bucket 0 (3712 bytes)" */
static void events_text(const struct flight *f, const struct rank *rank, double step,
                        char text[CELL_SIZE])
{
    const double begin_ns = begin_of(f, rank->host, step);
    size_t n = 0;
    snprintf(text, CELL_SIZE, "has not entered it");
    for (const cJSON *event = first_event(rank->json); event != NULL && n < CELL_SIZE;
         event = event->next) {
        const double n_bytes = dt_record_number(event, "bytes");
        if (dt_record_number(event, "step") == step) {
            n += (size_t)snprintf(text + n, CELL_SIZE - n, "%s+%.3f %.100s", n > 0 ? ", " : "",
                                  (dt_record_number(event, "ns") - begin_ns) * 1e-6,
                                  dt_record_text(event, "name"));
            n += n_bytes > 0 && n < CELL_SIZE
                     ? (size_t)snprintf(text + n, CELL_SIZE - n, " (%.0f bytes)", n_bytes)
                     : 0;
        }
    }
}

static void tell_behind(struct dt_doc *doc, const struct flight *f)
{
    const cJSON *rank = f->behind < 0 ? NULL : f->ranks[f->behind].json;
    if (rank == NULL) {
        dt_doc_text(doc, "No rank was behind the others.");
        return;
    }
    dt_doc_text(doc,
                "Rank %d (%s) was behind: in step %.0f it had begun %.0f collectives, of which "
                "%.0f had ended, and gave no sign of life for %.1f s.",
                f->behind, dt_record_text(rank, "host"), dt_record_number(rank, "step"),
                dt_record_number(rank, "collectives_begun"),
                dt_record_number(rank, "collectives_ended"),
                dt_record_number(rank, "silent_ms") * 1e-3);
}

static void add_flight(struct dt_doc *doc, const struct flight *f)
{
    char text[CELL_SIZE];
    dt_doc_section(doc, "The last events of each rank");
    tell_behind(doc, f);
    struct dt_part *table = dt_doc_table(doc, "Last events", "step::+|rank::+|events");
    dt_doc_caption(table, "Times in ms since the first rank of the host entered the step.");
    for (int i = SHOWN_STEPS - 1; i >= 0; i--) {
        const double step = f->last_step - i;
        for (int r = 0; r < f->n_ranks && step >= 0; r++) {
            if (f->ranks[r].json != NULL) {
                events_text(f, &f->ranks[r], step, text);
                dt_doc_row(table, dt_n(step), dt_n(r), dt_t(text));
            }
        }
    }
}

enum dt_status dt_run_flight_add(struct dt_doc *doc, const struct dt_record *r)
{
    struct flight f;
    const enum dt_status s = open_flight(r, &f);
    if (s == DT_OK && f.any) {
        add_flight(doc, &f);
    }
    close_flight(&f);
    return s;
}
