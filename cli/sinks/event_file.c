#include "cli/sinks/event_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define POLYNOMIAL 0x82F63B78u /* its bits reversed */

static void make_table(uint32_t table[256])
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t remainder = i;
        for (int bit = 0; bit < 8; bit++) {
            remainder = remainder >> 1 ^ ((remainder & 1) != 0 ? POLYNOMIAL : 0);
        }
        table[i] = remainder;
    }
}

uint32_t dt_crc32c(const void *bytes, size_t n)
{
    static uint32_t table[256];
    const uint8_t *at = bytes;
    uint32_t crc = ~0u;
    if (table[1] == 0) {
        make_table(table);
    }
    for (size_t i = 0; i < n; i++) {
        crc = crc >> 8 ^ table[(crc ^ at[i]) & 0xFF];
    }
    return ~crc;
}

#define FOLDER "tensorboard"
#define PREFIX "events.out.tfevents."
#define BUFFER_BYTES ((size_t)1 << 16)

/* ---- names */

/* Finds the newest event file of the earlier starts. `folder` stays open. */
static enum dt_status find_newest(int folder, const char *path, long long *newest)
{
    const int copy = dup(folder);
    DIR *dir = copy >= 0 ? fdopendir(copy) : NULL;
    long long time_s;
    *newest = 0;
    if (dir == NULL) {
        const enum dt_status s = dt_error_errno(DT_CANT_CREATE, "%s", path);
        close(copy);
        return s;
    }
    for (const struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        if (sscanf(entry->d_name, PREFIX "%10lld.", &time_s) == 1) {
            *newest = time_s > *newest ? time_s : *newest;
        }
    }
    closedir(dir);
    return DT_OK;
}

/* The host's name, with a line in place of each character that a file name had better not have. */
static void name_host(char *out, size_t size)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._";
    out[0] = out[size - 1] = '\0';
    gethostname(out, size - 1);
    for (char *c = out; *c != '\0'; c++) {
        *c = strchr(plain, *c) != NULL ? *c : '_';
    }
}

static void name_file(long long newest, char *name, size_t size)
{
    char host[64];
    const long long now = (long long)time(NULL);
    name_host(host, sizeof host);
    snprintf(name, size, PREFIX "%010lld.%s.%ld", now > newest ? now : newest + 1, host,
             (long)getpid());
}

/* ---- opening */

static enum dt_status open_in(int folder, const char *path, FILE **out)
{
    char name[128];
    long long newest;
    DT_TRY(find_newest(folder, path, &newest));
    name_file(newest, name, sizeof name);
    const int fd = openat(folder, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (fd < 0) {
        return dt_error_errno(DT_CANT_CREATE, "%s/%s", path, name);
    }
    *out = fdopen(fd, "w");
    if (*out == NULL || setvbuf(*out, NULL, _IOFBF, BUFFER_BYTES) != 0) {
        close(fd);
        return dt_error(DT_NO_MEMORY, "%s/%s: out of memory", path, name);
    }
    return DT_OK;
}

enum dt_status dt_event_file_open(const struct dt_run_dir *run, FILE **out)
{
    char path[DT_PATH_SIZE + 16];
    snprintf(path, sizeof path, "%s/" FOLDER, run->path);
    if (mkdir(path, 0777) != 0 && errno != EEXIST) {
        return dt_error_errno(DT_CANT_CREATE, "%s", path);
    }
    const int folder = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (folder < 0) {
        return dt_error_errno(DT_CANT_CREATE, "%s", path);
    }
    const enum dt_status s = open_in(folder, path, out);
    close(folder);
    return s;
}

/* ---- records */

static void put_little(uint8_t *at, int n, uint64_t value)
{
    for (int i = 0; i < n; i++) {
        at[i] = (uint8_t)(value >> 8 * i);
    }
}

static uint32_t checksum(const void *bytes, size_t n)
{
    const uint32_t crc = dt_crc32c(bytes, n);
    return (crc >> 15 | crc << 17) + 0xA282EAD8u;
}

bool dt_event_file_put(FILE *file, const void *bytes, size_t n)
{
    uint8_t head[12], tail[4];
    put_little(head, 8, n);
    put_little(head + 8, 4, checksum(head, 8));
    put_little(tail, 4, checksum(bytes, n));
    return fwrite(head, 1, sizeof head, file) == sizeof head && fwrite(bytes, 1, n, file) == n &&
           fwrite(tail, 1, sizeof tail, file) == sizeof tail && fflush(file) == 0;
}
