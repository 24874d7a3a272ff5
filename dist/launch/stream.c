#include "dist/launch/stream.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"

#define BUFFER_SIZE 8192 /* of stdio: a line of base/text.h */
#define GRACE_MS 100     /* for a reader that is slow, before lines are dropped */
#define LOOK_MS 100

struct stream {
    int fd, own; /* `own`: the same file, opened once more, and non-blocking; -1: none */
    char *kept;
    size_t size, n;   /* of `kept`: room, and bytes in use */
    bool within_line; /* the reader has a part of the first line kept */
    bool stuck;       /* the reader has taken nothing since lines were dropped */
    bool failed;
};

static char kept_out[1 << 20], kept_error[64 << 10], buffers[2][BUFFER_SIZE];
static struct stream streams[] = {
    {.fd = STDOUT_FILENO, .own = -1, .kept = kept_out, .size = sizeof kept_out},
    {.fd = STDERR_FILENO, .own = -1, .kept = kept_error, .size = sizeof kept_error},
};

/* As write(2), but EAGAIN where it would wait: for sockets, for what has been opened once more,
 * and, as long as no other process fills the pipe in between, for all others. */
static ssize_t write_now(int fd, const char *text, size_t n)
{
    struct pollfd file = {.fd = fd, .events = POLLOUT};
    for (size_t i = 0; i < sizeof streams / sizeof streams[0]; i++) {
        if (streams[i].fd == fd && streams[i].own >= 0) {
            return write(streams[i].own, text, n);
        }
    }
    const ssize_t n_sent = send(fd, text, n, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n_sent >= 0 || errno != ENOTSOCK) {
        return n_sent;
    }
    if (poll(&file, 1, 0) == 0) {
        errno = EAGAIN;
        return -1;
    }
    return write(fd, text, n < PIPE_BUF ? n : PIPE_BUF);
}

static bool is_blocked(void)
{
    return errno == EAGAIN || errno == EINTR;
}

size_t dt_stream_write(int fd, const char *text, size_t n, int limit_ms)
{
    const double begin_s = dt_clock_s();
    struct pollfd file = {.fd = fd, .events = POLLOUT};
    size_t done = 0;
    while (done < n) {
        const ssize_t n_now = write_now(fd, text + done, n - done);
        if (n_now > 0) {
            done += (size_t)n_now;
            continue;
        }
        if (n_now < 0 && !is_blocked()) {
            return done;
        }
        if (limit_ms >= 0 && 1e3 * (dt_clock_s() - begin_s) >= limit_ms) {
            errno = EAGAIN;
            return done;
        }
        if (poll(&file, 1, limit_ms < 0 || limit_ms > LOOK_MS ? LOOK_MS : limit_ms) != 0) {
            dt_sleep_ms(1); /* ready, but not for all of it, or somebody else was faster */
        }
    }
    return done;
}

/* Writes what is kept. False, with errno: some is left. */
static bool drain(struct stream *s, int limit_ms)
{
    const size_t n = dt_stream_write(s->fd, s->kept, s->n, limit_ms);
    if (n > 0) {
        s->within_line = s->kept[n - 1] != '\n';
        s->stuck = false;
        s->n -= n;
        memmove(s->kept, s->kept + n, s->n);
    }
    if (s->n > 0 && !is_blocked()) { /* the reader is gone */
        s->failed = true;
        s->n = 0;
    }
    return s->n == 0;
}

/* The line stays of which the reader has a part. */
static void drop(struct stream *s)
{
    static const char words[] = "dtrain: some lines are missing here: nobody read them in time\n";
    const char *end = s->within_line ? memchr(s->kept, '\n', BUFFER_SIZE) : NULL;
    s->n = end == NULL ? 0 : (size_t)(end + 1 - s->kept);
    memcpy(s->kept + s->n, words, sizeof words - 1);
    s->n += sizeof words - 1;
    s->stuck = true;
}

static void keep(struct stream *s, const char *text, size_t n)
{
    if (s->n + n > s->size && s->fd == STDOUT_FILENO) {
        (void)drain(s, -1);
    } else if (s->n + n > s->size && !drain(s, s->stuck ? 0 : GRACE_MS) && s->n + n > s->size) {
        drop(s);
    }
    memcpy(s->kept + s->n, text, n);
    s->n += n;
}

/* Of fopencookie(3): at most BUFFER_SIZE bytes, or as many as a caller prints at once. */
static ssize_t take(void *stream, const char *text, size_t n)
{
    struct stream *s = stream;
    size_t done = 0;
    errno = EAGAIN;
    if (drain(s, 0) && !s->failed) {
        done = dt_stream_write(s->fd, text, n, 0);
        s->within_line = done > 0 ? text[done - 1] != '\n' : s->within_line;
    }
    if (done < n && (s->failed || !is_blocked())) {
        return (ssize_t)done;
    }
    while (done < n) {
        const size_t n_next = n - done < BUFFER_SIZE ? n - done : BUFFER_SIZE;
        keep(s, text + done, n_next);
        done += n_next;
    }
    return (ssize_t)n;
}

static FILE *open_stream(struct stream *s, char *buffer)
{
    char path[32];
    struct stat info;
    const bool terminal = isatty(s->fd) == 1;
    FILE *file = fopencookie(s, "w", (cookie_io_functions_t){.write = take});
    if (terminal || (fstat(s->fd, &info) == 0 && S_ISFIFO(info.st_mode))) {
        snprintf(path, sizeof path, "/proc/self/fd/%d", s->fd);
        s->own = open(path, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    }
    if (file != NULL) {
        const bool lines = terminal || s->fd == STDERR_FILENO;
        setvbuf(file, buffer, lines ? _IOLBF : _IOFBF, BUFFER_SIZE);
    }
    return file;
}

void dt_stream_open(void)
{
    FILE *out = open_stream(&streams[0], buffers[0]), *error = open_stream(&streams[1], buffers[1]);
    stdout = out != NULL ? out : stdout;
    stderr = error != NULL ? error : stderr;
}

bool dt_stream_flush(void)
{
    const double begin_s = dt_clock_s();
    fflush(stderr);
    fflush(stdout);
    (void)drain(&streams[1], DT_STREAM_ENDS_MS);
    (void)drain(&streams[0], DT_STREAM_ENDS_MS - (int)(1e3 * (dt_clock_s() - begin_s)));
    return streams[0].n == 0;
}

bool dt_stream_wait(bool (*stops)(void))
{
    while (!drain(&streams[0], LOOK_MS) && !stops()) {
    }
    return streams[0].n == 0;
}
