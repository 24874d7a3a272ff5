/* The watchdog and the flight record, alone and without MPI: built with the thread sanitizer, whose
 * findings fail it (tests/unit/CMakeLists.txt). */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <unistd.h>

#include "base/clock.h"
#include "dist/launch/launch.h"
#include "dist/liveness/flight.h"
#include "dist/liveness/watchdog.h"
#include "tests/lib/folder.h"

static atomic_int ended_with; /* dt_launch_end_job was called */
static char said[DT_WATCHDOG_LINE];
static atomic_int n_kept;

/* In place of the launcher's: the thread that would end the job stops here. */
void dt_launch_end_job(const char *line, int code)
{
    snprintf(said, sizeof said, "%s", line);
    atomic_store(&ended_with, code);
    for (;;) {
        pause();
    }
}

static void keep(void *context, const char *line)
{
    (void)line;
    dt_flight_write(context, folder, "here");
    atomic_fetch_add(&n_kept, 1);
}

static struct dt_comm *open_comm(void)
{
    struct dt_comm *comm;
    CHECK_OK(dt_comm_open_self(&comm));
    CHECK_OK(dt_liveness_open(comm));
    return comm;
}

static struct dt_watchdog *open_dog(struct dt_comm *comm)
{
    struct dt_watchdog *dog;
    const struct dt_watchdog_options options = {
        .host = "here", .keep = keep, .context = dt_liveness_table_of(comm)};
    CHECK_OK(dt_watchdog_open(comm, &options, &dog));
    return dog;
}

static const char *read_record(void)
{
    return text_of(path_of("flight-0.json"));
}

static int count(const char *text, const char *what)
{
    int n = 0;
    for (const char *at = text; (at = strstr(at, what)) != NULL; at++) {
        n++;
    }
    return n;
}

/* The main thread works and notes while another writes the record down, again and again. */
static void *write_often(void *context)
{
    struct dt_liveness_table *table = context;
    for (int i = 0; i < 200; i++) {
        dt_flight_rewrite(table);
        dt_flight_write(table, folder, "here");
        const char *text = read_record();
        CHECK(count(text, "\"kind\":") <= DT_FLIGHT_EVENTS && strstr(text, "\n]}") == NULL);
        CHECK(text[strlen(text) - 1] == '\n' && strstr(text, "]}") != NULL);
    }
    return NULL;
}

static void check_notes(void)
{
    struct dt_comm *comm = open_comm();
    struct dt_watchdog *dog = open_dog(comm);
    struct dt_liveness_table *table = dt_liveness_table_of(comm);
    pthread_t writer;
    CHECK(pthread_create(&writer, NULL, write_often, table) == 0);
    for (uint64_t step = 1; step <= 20000; step++) {
        dt_comm_phase(comm, "training");
        dt_liveness_step(table, step);
        CHECK_OK(dt_comm_barrier(comm, "a barrier"));
    }
    pthread_join(writer, NULL);
    dt_flight_rewrite(table);
    dt_flight_write(table, folder, "here");
    const char *text = read_record();
    CHECK(count(text, "\"kind\":") == DT_FLIGHT_EVENTS);
    CHECK(strstr(text, "\"kind\":\"collective\",\"step\":20000,\"sequence\":20004,\"bytes\":4,"
                       "\"name\":\"a barrier\"}]}") != NULL);
    CHECK(strstr(text, "\"step\":20000,\"collectives_begun\":20004,\"collectives_ended\":20004") !=
          NULL);
    dt_flight_remove(table, folder);
    dt_watchdog_close(dog);
    dt_comm_close(comm);
}

/* Signs of life, however slow, keep it quiet; without them it ends the job, names the place, and
 * has had everything kept. */
static void check_hang(void)
{
    struct dt_comm *comm = open_comm();
    dt_comm_set_timeout(comm, 2);
    open_dog(comm);
    dt_comm_phase(comm, "data load");
    for (int i = 0; i < 40; i++) {
        dt_sleep_ms(100);
        dt_comm_alive(comm);
    }
    CHECK(atomic_load(&ended_with) == 0);
    dt_comm_phase(comm, "training");
    dt_liveness_step(dt_liveness_table_of(comm), 7);
    CHECK_OK(dt_comm_barrier(comm, "a barrier"));
    for (int i = 0; i < 600 && atomic_load(&ended_with) == 0; i++) {
        dt_sleep_ms(100);
    }
    CHECK(atomic_load(&ended_with) == DT_STALLED && atomic_load(&n_kept) > 0);
    CHECK(strcmp(said, "dtrain: rank 0 (here) has shown no sign of life for 2 s: it hangs in "
                       "'training', step 7, last event 'a barrier' (raise DTRAIN_TIMEOUT if the "
                       "work takes that long)\n") == 0);
    dt_flight_remove(dt_liveness_table_of(comm), folder);
}

int main(void)
{
    folder_open();
    check_notes();
    check_hang();
    folder_close();
    puts("the watchdog: ok");
    fflush(stdout);
    _exit(0); /* its thread still believes that it ends the job */
}
