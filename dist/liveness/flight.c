#include "dist/liveness/flight.h"

#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"

#define WRITER_LIMIT_MS 500

enum { NOT_WRITTEN, BEING_WRITTEN, WRITTEN };

/* Text that grows in memory that is there from the start. */
struct text {
    char *bytes;
    size_t n;
};

static void put(struct text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void put(struct text *text, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const int n = vsnprintf(text->bytes + text->n, DT_FLIGHT_TEXT_SIZE - text->n, format, args);
    va_end(args);
    text->n += n > 0 ? (size_t)n : 0;
    text->n = text->n < DT_FLIGHT_TEXT_SIZE ? text->n : DT_FLIGHT_TEXT_SIZE - 1;
}

static void put_event(struct text *text, const struct dt_liveness_row *row, uint64_t index)
{
    static const char *const kinds[] = {"phase", "step", "collective"};
    struct dt_flight_event event;
    if (!dt_liveness_read_event(row, index, &event)) {
        return;
    }
    put(text,
        "%s\n{\"ns\":%llu,\"kind\":\"%s\",\"step\":%llu,\"sequence\":%llu,\"bytes\":%llu,"
        "\"name\":\"%s\"}",
        text->bytes[text->n - 1] == '[' ? "" : ",", (unsigned long long)event.ns, kinds[event.kind],
        (unsigned long long)event.step, (unsigned long long)event.sequence,
        (unsigned long long)event.n_bytes, event.name);
}

static void put_row(struct text *text, const struct dt_liveness_row *row, const char *host)
{
    const uint64_t n = atomic_load(&row->n_events), now_ns = dt_clock_ns(),
                   seen_ns = atomic_load(&row->seen_ns);
    put(text,
        "{\"rank\":%d,\"host\":\"%s\",\"step\":%llu,\"collectives_begun\":%llu,"
        "\"collectives_ended\":%llu,\"ns\":%llu,\"silent_ms\":%llu,\"events\":[",
        (int)row->rank, host, (unsigned long long)atomic_load(&row->step),
        (unsigned long long)atomic_load(&row->n_started),
        (unsigned long long)atomic_load(&row->n_done), (unsigned long long)now_ns,
        (unsigned long long)(seen_ns < now_ns ? (now_ns - seen_ns) / 1000000 : 0));
    for (uint64_t i = n > DT_FLIGHT_EVENTS ? n - DT_FLIGHT_EVENTS : 0; i < n; i++) {
        put_event(text, row, i);
    }
    put(text, "]}\n");
}

static void name_of(const struct dt_liveness_row *row, char name[32])
{
    snprintf(name, 32, "flight-%d.json", (int)row->rank);
}

static void write_all(struct dt_liveness_table *table, const char *folder, const char *host)
{
    char name[32];
    for (int i = 0; i < table->n_rows; i++) {
        struct text text = {.bytes = table->text};
        name_of(&table->rows[i], name);
        put_row(&text, &table->rows[i], host);
        (void)dt_file_leave(folder, name, text.bytes, text.n, false);
    }
}

void dt_flight_write(struct dt_liveness_table *table, const char *folder, const char *host)
{
    uint32_t expected = NOT_WRITTEN;
    _Atomic uint32_t *written = &table->rows[0].written;
    if (atomic_compare_exchange_strong(written, &expected, BEING_WRITTEN)) {
        write_all(table, folder, host);
        atomic_store(written, WRITTEN);
    }
    for (int ms = 0; ms < WRITER_LIMIT_MS && atomic_load(written) == BEING_WRITTEN; ms++) {
        dt_sleep_ms(1);
    }
}

bool dt_flight_rewrite(struct dt_liveness_table *table)
{
    uint32_t before = WRITTEN;
    atomic_compare_exchange_strong(&table->rows[0].written, &before, NOT_WRITTEN);
    return before != BEING_WRITTEN;
}

void dt_flight_remove(struct dt_liveness_table *table, const char *folder)
{
    char path[DT_PATH_SIZE + 32], name[32];
    for (int i = 0; i < table->n_rows; i++) {
        name_of(&table->rows[i], name);
        snprintf(path, sizeof path, "%s/%s", folder, name);
        unlink(path);
    }
}
