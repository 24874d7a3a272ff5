#include "dist/liveness/flight.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"

#define N_WORDS (sizeof(struct dt_flight_event) / sizeof(uint64_t))
#define N_SLOTS (DT_FLIGHT_EVENTS + 1) /* one is being written */
#define WRITER_LIMIT_MS 500

enum { NOT_WRITTEN, BEING_WRITTEN, WRITTEN };

/* Only its rank writes it, but for `written`, which is one for all, in the first ring. A reader may
 * catch the oldest event while a new one takes its place: n_events tells. */
struct dt_flight_ring {
    _Atomic uint32_t written;
    _Atomic int32_t rank;
    _Atomic uint64_t n_events, step, n_started, n_done, seen_ns;
    _Atomic uint64_t events[N_SLOTS][N_WORDS];
};

_Static_assert(sizeof(struct dt_flight_event) % sizeof(uint64_t) == 0, "an event is whole words");

static struct dt_flight_ring *rings(const struct dt_flight *flight)
{
    return flight->memory.bytes;
}

enum dt_status dt_flight_open(struct dt_comm *comm, struct dt_flight *out)
{
    const size_t n_rings = (size_t)comm->local_size;
    *out = (struct dt_flight){.n_rings = comm->local_size};
    DT_TRY(dt_host_memory_open(comm, n_rings * sizeof *out->mine, &out->memory));
    out->text = malloc(DT_FLIGHT_TEXT_SIZE);
    if (out->text == NULL) {
        dt_flight_close(out);
        return dt_error(DT_NO_MEMORY, "no memory for the flight record");
    }
    if (out->memory.bytes != NULL) {
        out->mine = &rings(out)[comm->local_rank];
        atomic_store(&out->mine->rank, comm->rank);
        dt_flight_seen(out);
    }
    return DT_OK;
}

void dt_flight_close(struct dt_flight *flight)
{
    dt_host_memory_close(&flight->memory);
    free(flight->text);
    *flight = (struct dt_flight){.mine = NULL};
}

/* ---- taking notes */

#define RELAXED memory_order_relaxed

void dt_flight_note(struct dt_flight *flight, enum dt_flight_kind kind, const char *name,
                    uint64_t sequence, size_t n_bytes)
{
    struct dt_flight_ring *ring = flight->mine;
    uint64_t words[N_WORDS];
    if (ring == NULL) {
        return;
    }
    const uint64_t n = atomic_load_explicit(&ring->n_events, RELAXED);
    struct dt_flight_event event = {.ns = dt_clock_ns(),
                                    .kind = kind,
                                    .step = atomic_load_explicit(&ring->step, RELAXED),
                                    .sequence = sequence,
                                    .n_bytes = n_bytes};
    memccpy(event.name, name, '\0', sizeof event.name - 1);
    memcpy(words, &event, sizeof words);
    for (size_t i = 0; i < N_WORDS; i++) {
        atomic_store_explicit(&ring->events[n % N_SLOTS][i], words[i], memory_order_release);
    }
    if (kind == DT_FLIGHT_COLLECTIVE) {
        atomic_store_explicit(&ring->n_started, sequence, RELAXED);
    }
    atomic_store_explicit(&ring->n_events, n + 1, memory_order_release);
}

void dt_flight_step(struct dt_flight *flight, uint64_t step)
{
    if (flight->mine != NULL) {
        atomic_store_explicit(&flight->mine->step, step, RELAXED);
        dt_flight_note(flight, DT_FLIGHT_STEP, "step", 0, 0);
    }
}

void dt_flight_count(struct dt_flight *flight, uint64_t n_done)
{
    if (flight->mine != NULL) {
        atomic_store_explicit(&flight->mine->n_done, n_done, RELAXED);
    }
}

uint64_t dt_flight_n_events(const struct dt_flight *flight)
{
    return flight->mine != NULL ? atomic_load(&flight->mine->n_events) : 0;
}

void dt_flight_seen(struct dt_flight *flight)
{
    if (flight->mine != NULL) {
        atomic_store(&flight->mine->seen_ns, dt_clock_ns());
    }
}

/* ---- writing them down */

/* Text that grows in the room that was there from the start. */
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

/* False: another has taken its place. */
static bool read_event(const struct dt_flight_ring *ring, uint64_t index,
                       struct dt_flight_event *out)
{
    uint64_t words[N_WORDS];
    for (size_t i = 0; i < N_WORDS; i++) {
        words[i] = atomic_load_explicit(&ring->events[index % N_SLOTS][i], memory_order_acquire);
    }
    memcpy(out, words, sizeof words);
    return index + N_SLOTS > atomic_load(&ring->n_events) && out->kind <= DT_FLIGHT_COLLECTIVE;
}

void dt_flight_last(const struct dt_flight *flight, struct dt_flight_event *out)
{
    const uint64_t n = dt_flight_n_events(flight);
    if (n == 0 || !read_event(flight->mine, n - 1, out)) {
        *out = (struct dt_flight_event){.ns = 0};
    }
}

static void put_event(struct text *text, const struct dt_flight_ring *ring, uint64_t index)
{
    static const char *const kinds[] = {"phase", "step", "collective"};
    struct dt_flight_event event;
    if (!read_event(ring, index, &event)) {
        return;
    }
    put(text,
        "%s\n{\"ns\":%llu,\"kind\":\"%s\",\"step\":%llu,\"sequence\":%llu,\"bytes\":%llu,"
        "\"name\":\"%s\"}",
        text->bytes[text->n - 1] == '[' ? "" : ",", (unsigned long long)event.ns, kinds[event.kind],
        (unsigned long long)event.step, (unsigned long long)event.sequence,
        (unsigned long long)event.n_bytes, event.name);
}

static void put_ring(struct text *text, const struct dt_flight_ring *ring, const char *host)
{
    const uint64_t n = atomic_load(&ring->n_events), now_ns = dt_clock_ns(),
                   seen_ns = atomic_load(&ring->seen_ns);
    put(text,
        "{\"rank\":%d,\"host\":\"%s\",\"step\":%llu,\"collectives_begun\":%llu,"
        "\"collectives_ended\":%llu,\"ns\":%llu,\"silent_ms\":%llu,\"events\":[",
        (int)atomic_load(&ring->rank), host, (unsigned long long)atomic_load(&ring->step),
        (unsigned long long)atomic_load(&ring->n_started),
        (unsigned long long)atomic_load(&ring->n_done), (unsigned long long)now_ns,
        (unsigned long long)(seen_ns < now_ns ? (now_ns - seen_ns) / 1000000 : 0));
    for (uint64_t i = n > DT_FLIGHT_EVENTS ? n - DT_FLIGHT_EVENTS : 0; i < n; i++) {
        put_event(text, ring, i);
    }
    put(text, "]}\n");
}

static void name_of(const struct dt_flight_ring *ring, char name[32])
{
    snprintf(name, 32, "flight-%d.json", (int)atomic_load(&ring->rank));
}

static void write_all(struct dt_flight *flight, const char *folder, const char *host)
{
    char name[32];
    for (int i = 0; i < flight->n_rings; i++) {
        struct text text = {.bytes = flight->text};
        name_of(&rings(flight)[i], name);
        put_ring(&text, &rings(flight)[i], host);
        (void)dt_file_leave(folder, name, text.bytes, text.n, false);
    }
}

void dt_flight_write(struct dt_flight *flight, const char *folder, const char *host)
{
    uint32_t expected = NOT_WRITTEN;
    if (flight->mine == NULL) {
        return;
    }
    _Atomic uint32_t *written = &rings(flight)[0].written;
    if (atomic_compare_exchange_strong(written, &expected, BEING_WRITTEN)) {
        write_all(flight, folder, host);
        atomic_store(written, WRITTEN);
    }
    for (int ms = 0; ms < WRITER_LIMIT_MS && atomic_load(written) == BEING_WRITTEN; ms++) {
        dt_sleep_ms(1);
    }
}

void dt_flight_rewrite(struct dt_flight *flight)
{
    uint32_t expected = WRITTEN;
    if (flight->mine != NULL) {
        atomic_compare_exchange_strong(&rings(flight)[0].written, &expected, NOT_WRITTEN);
    }
}

void dt_flight_remove(struct dt_flight *flight, const char *folder)
{
    char path[DT_PATH_SIZE + 32], name[32];
    for (int i = 0; i < flight->n_rings && flight->mine != NULL; i++) {
        name_of(&rings(flight)[i], name);
        snprintf(path, sizeof path, "%s/%s", folder, name);
        unlink(path);
    }
}
