#include "train/hooks/guard.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/text.h"
#include "dist/liveness/watchdog.h"
#include "train/trainer.h"

#define STATUS_FILE "status.json"

struct dt_guard {
    struct dt_hook hook; /* first */
    const struct dt_world *world;
    struct dt_watchdog *dog;
    struct dt_liveness_table *table; /* of the world's communicator */
    const char *source;              /* borrowed: of `folder`, once there is one */
    char folder[DT_PATH_SIZE];
    atomic_bool has_folder; /* from the first step on */
};

/* ---- status.json */

/* Text within quotes of JSON. */
static size_t quote(char *out, size_t size, const char *text)
{
    size_t n = 0;
    for (size_t n_left = strlen(text), length; n_left > 0; text += length, n_left -= length) {
        length = dt_utf8_length(text, n_left, NULL);
        const bool plain = length > 0 && (unsigned char)*text >= ' ';
        const bool escaped = *text == '"' || *text == '\\';
        length = length > 0 ? length : 1;
        if (n + length + 2 > size) {
            break;
        }
        if (escaped) {
            out[n++] = '\\';
        }
        memcpy(out + n, plain ? text : "?", plain ? length : 1);
        n += plain ? length : 1;
    }
    DT_ASSERT(n < size);
    out[n] = '\0';
    return n;
}

static void leave_status(const struct dt_guard *guard, int code, const char *error)
{
    char text[2 * DT_WATCHDOG_LINE + 256], quoted[2 * DT_WATCHDOG_LINE];
    quote(quoted, sizeof quoted, error);
    const int n = snprintf(text, sizeof text,
                           "{\n\t\"exit_code\":\t%d,\n\t\"rank\":\t%d,\n\t\"host\":\t\"%s\",\n"
                           "\t\"error\":\t\"%s\"\n}\n",
                           code, guard->world->rank, guard->world->host, quoted);
    DT_ASSERT(n > 0 && (size_t)n < sizeof text);
    (void)dt_file_leave(guard->folder, STATUS_FILE, text, (size_t)n, true);
}

/* In the words of the line that is printed (cli/main.c). */
static void leave_error(const struct dt_guard *guard, enum dt_status status)
{
    char text[DT_ERROR_TEXT_SIZE + DT_HOST_SIZE + 32];
    const struct dt_world *world = guard->world;
    const bool lonely = !dt_error_is_agreed() && status != DT_STALLED && world->size > 1;
    snprintf(text, sizeof text, "rank %d (%s): ", world->rank, world->host);
    snprintf(text + (lonely ? strlen(text) : 0), DT_ERROR_TEXT_SIZE, "%s", dt_error_text());
    leave_status(guard, (int)status, dt_error_text()[0] != '\0' ? text : "");
}

/* A dt_watchdog_options.keep. */
static void keep(void *context, const char *line)
{
    const struct dt_guard *guard = context;
    const size_t prefix = sizeof "dtrain: " - 1;
    DT_ASSERT(line[0] == '\0' || strncmp(line, "dtrain: ", prefix) == 0);
    if (!atomic_load(&guard->has_folder)) {
        return;
    }
    if (line[0] != '\0') {
        char error[DT_WATCHDOG_LINE];
        snprintf(error, sizeof error, "%.*s", (int)strcspn(line + prefix, "\n"), line + prefix);
        leave_status(guard, DT_STALLED, error);
    }
    dt_flight_write(guard->table, guard->folder, guard->world->host);
}

/* ---- the hook */

static bool has_ended_well(enum dt_status status)
{
    return status == DT_OK || status == DT_STOPPED;
}

static enum dt_status take_folder(struct dt_hook *hook, struct dt_trainer *t)
{
    DT_ASSERT(((struct dt_guard *)hook)->source != NULL);
    struct dt_guard *guard = (struct dt_guard *)hook;
    char path[DT_PATH_SIZE + 16];
    snprintf(guard->folder, sizeof guard->folder, "%s", guard->source);
    if (t->world->rank == 0) { /* of a start before this one */
        snprintf(path, sizeof path, "%s/" STATUS_FILE, guard->folder);
        unlink(path);
    }
    dt_flight_remove(guard->table, guard->folder);
    atomic_store(&guard->has_folder, true);
    return DT_OK;
}

static enum dt_status begin_steps(struct dt_hook *hook, struct dt_trainer *t, uint64_t first,
                                  uint64_t last)
{
    (void)t, (void)last;
    dt_liveness_step(((struct dt_guard *)hook)->table, first);
    return DT_OK;
}

/* Before the end is emitted: a sink draws the run's page with the record. */
static enum dt_status end_run(struct dt_hook *hook, struct dt_trainer *t, enum dt_status status,
                              struct dt_end_event *end)
{
    struct dt_guard *guard = (struct dt_guard *)hook;
    (void)t, (void)end;
    if (!has_ended_well(status)) {
        dt_flight_write(guard->table, guard->folder, guard->world->host);
    }
    return DT_OK;
}

/* The guard stays: its run may end badly after the trainer. */
static void close_hook(struct dt_hook *hook)
{
    hook->next = NULL;
}

static const struct dt_hook_ops guard_ops = {
    .run_begun = take_folder, .step_begin = begin_steps, .run_end = end_run, .close = close_hook};

enum dt_status dt_guard_hook(struct dt_guard *guard, struct dt_trainer *t, const char *folder)
{
    guard->source = folder;
    dt_hook_add(t, &guard->hook);
    return DT_OK;
}

/* ---- open and close */

enum dt_status dt_guard_open(struct dt_world *world, struct dt_guard **out)
{
    struct dt_guard *guard = *out = NULL;
    DT_TRY(dt_world_alloc(world, 1, sizeof *guard, "the watchdog", (void **)&guard));
    *guard = (struct dt_guard){
        .hook = {.ops = &guard_ops}, .world = world, .table = dt_liveness_table_of(world->comm)};
    const struct dt_watchdog_options options = {
        .host = world->host, .keep = keep, .context = guard};
    const enum dt_status s =
        dt_world_agree(world, dt_watchdog_open(world->comm, &options, &guard->dog));
    if (s != DT_OK) {
        dt_watchdog_close(guard->dog);
        free(guard);
        return s;
    }
    *out = guard;
    return DT_OK;
}

void dt_guard_close(struct dt_guard *guard, enum dt_status status)
{
    const bool has_folder = atomic_load(&guard->has_folder);
    const bool well = has_ended_well(status);
    const bool tells = guard->world->rank == 0 || (!well && !dt_error_is_agreed());
    if (has_folder && tells) {
        leave_error(guard, status);
    }
    if (has_folder && well) {
        dt_flight_remove(guard->table, guard->folder);
    } else if (has_folder) {
        dt_flight_write(guard->table, guard->folder, guard->world->host);
    }
    dt_watchdog_close(guard->dog);
    free(guard);
}
