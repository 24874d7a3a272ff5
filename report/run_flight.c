/* The flight record of a run that ended badly (train/watch/guard.h): which rank lags, and what all
 * of them did in their last steps, side by side. */
#include "report/run.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/text.h"
#include "dist/ranks/liveness/flight.h"
#include "report/page/page.h"

#define MAX_RANKS 4096
#define SHOWN_STEPS 3
#define SHOWN_RANKS 16 /* of a step */
#define SILENT_MS 1000

/* Of a folder that may be anybody's: of ranks that are not shown, the events are not kept. */
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
    int behind; /* the rank that the others are before, or -1 */
    FILE *out;
    bool page; /* for HTML; else for a terminal */
};

static const cJSON *first_event(const cJSON *rank)
{
    return cJSON_GetArrayItem(cJSON_GetObjectItemCaseSensitive(rank, "events"), 0);
}

/* Fewer collectives than others; of those that have as few, the one that was silent for longest. */
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

/* NULL: there is none, or no memory for it, which is an error. Many links could lead to one file.
 */
static cJSON *read_rank(const struct dt_record *r, int rank)
{
    char name[32], path[DT_PATH_SIZE + 32];
    struct stat info;
    cJSON *json = NULL;
    snprintf(name, sizeof name, "flight-%d.json", rank);
    snprintf(path, sizeof path, "%s/%s", r->path, name);
    if (lstat(path, &info) != 0 || !S_ISLNK(info.st_mode)) {
        (void)dt_record_read(r->path, name, DT_FLIGHT_TEXT_SIZE, &json);
    }
    return json;
}

static void note_rank(const cJSON *json, struct rank *out)
{
    *out = (struct rank){.there = json != NULL,
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

/* False: there is none, or no memory for it, which is an error. */
static bool open_flight(const struct dt_record *r, struct flight *f)
{
    const double n = dt_record_number(r->start, "world_size");
    int n_shown = 0;
    f->n_ranks = n >= 1 && n <= MAX_RANKS && r->state != DT_RUN_GOING ? (int)n : 0;
    f->ranks = calloc((size_t)f->n_ranks + 1, sizeof *f->ranks);
    if (f->ranks == NULL) {
        f->n_ranks = 0;
        dt_error(DT_NO_MEMORY, "no memory for the flight record");
    }
    for (int i = 0; i < f->n_ranks; i++) {
        cJSON *json = read_rank(r, i);
        note_rank(json, &f->ranks[i]);
        cJSON_Delete(json);
    }
    find_behind(f);
    for (int i = 0; i < f->n_ranks; i++) {
        if (f->ranks[i].there && (n_shown++ < SHOWN_RANKS || i == f->behind)) {
            f->ranks[i].json = read_rank(r, i);
        }
    }
    if (!f->any) {
        close_flight(f);
    }
    return f->any;
}

/* ---- a step: a row for each rank */

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

static void put_text(const struct flight *f, const char *text)
{
    char shown[DT_LINE_SIZE];
    if (f->page) {
        dt_page_text(f->out, text);
    } else {
        fputs(dt_text_escape(text, shown, sizeof shown), f->out);
    }
}

/* "+0.012 allreduce of gradient bucket 0 (3712 bytes)" */
static void put_events(const struct flight *f, const struct rank *rank, double step)
{
    const double begin_ns = begin_of(f, rank->host, step);
    const char *between = "";
    for (const cJSON *event = first_event(rank->json); event != NULL; event = event->next) {
        const double n_bytes = dt_record_number(event, "bytes");
        if (dt_record_number(event, "step") != step) {
            continue;
        }
        fprintf(f->out, "%s+%.3f ", between, (dt_record_number(event, "ns") - begin_ns) * 1e-6);
        put_text(f, dt_record_text(event, "name"));
        if (n_bytes > 0) {
            fprintf(f->out, " (%.0f bytes)", n_bytes);
        }
        between = ", ";
    }
    fputs(between[0] == '\0' ? "has not entered it" : "", f->out);
}

static void put_step(const struct flight *f, double step)
{
    for (int r = 0; r < f->n_ranks; r++) {
        if (f->ranks[r].json != NULL) {
            fprintf(f->out, f->page ? "<tr><td>%.0f<td>%d<td>" : "%6.0f%6d  ", step, r);
            put_events(f, &f->ranks[r], step);
            fputc('\n', f->out);
        }
    }
}

static void put_behind(const struct flight *f)
{
    const cJSON *rank = f->behind < 0 ? NULL : f->ranks[f->behind].json;
    if (rank == NULL) {
        fputs("no rank was behind the others", f->out);
        return;
    }
    fprintf(f->out, "rank %d (", f->behind);
    put_text(f, dt_record_text(rank, "host"));
    fprintf(
        f->out,
        ") was behind: in step %.0f it had begun %.0f collectives, of which %.0f had ended, and "
        "gave no sign of life for %.1f s",
        dt_record_number(rank, "step"), dt_record_number(rank, "collectives_begun"),
        dt_record_number(rank, "collectives_ended"), dt_record_number(rank, "silent_ms") * 1e-3);
}

static void put_steps(const struct flight *f)
{
    for (int i = SHOWN_STEPS - 1; i >= 0; i--) {
        if (f->last_step - i >= 0) {
            put_step(f, f->last_step - i);
        }
    }
}

void dt_run_flight_print(FILE *out, const struct dt_record *r)
{
    struct flight f = {.out = out};
    if (!open_flight(r, &f)) {
        return;
    }
    fputs("\nlast events: ", out);
    put_behind(&f);
    fprintf(out, "\n%6s%6s  events, in ms since the first rank of the host entered the step\n",
            "step", "rank");
    put_steps(&f);
    close_flight(&f);
}

void dt_run_flight_draw(FILE *out, const struct dt_record *r)
{
    struct flight f = {.out = out, .page = true};
    if (!open_flight(r, &f)) {
        return;
    }
    fputs("<h2 class=\"part\">The last events of each rank</h2>\n<p>Before the end, ", out);
    put_behind(&f);
    fputs(".</p>\n<table><thead><tr><th>step<th>rank<th>events, in ms since the first rank of the "
          "host entered the step</thead><tbody>\n",
          out);
    put_steps(&f);
    fputs("</tbody></table>\n", out);
    close_flight(&f);
}
