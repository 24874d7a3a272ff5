/* Files that are read: bad ones, those that change meanwhile, and every system call failing. */
#include "tests/unit/base/file_faults.h"
#include "tests/unit/base/file_folder.h"

#include <errno.h>
#include <unistd.h>

static void expect_read(const char *path, enum dt_status status, const char *text)
{
    uint8_t *bytes;
    size_t n_bytes;
    CHECK_FAILS(dt_file_read(path, 100, &bytes, &n_bytes), status, text);
    CHECK(strncmp(dt_error_text(), path, strlen(path)) == 0);
    dt_error_clear();
}

static void test_reading_bad_files(void)
{
    char link_path[512];
    snprintf(link_path, sizeof link_path, "%s", path_of("pipe"));
    CHECK_INT(mkfifo(link_path, 0600), 0);
    expect_read(link_path, DT_NO_INPUT, "not a regular file"); /* and does not wait for a writer */
    expect_read("/dev/zero", DT_NO_INPUT, "not a regular file");
    expect_read(folder, DT_NO_INPUT, "is a directory");
    expect_read(path_of("missing"), DT_NO_INPUT, "No such file or directory");
    expect_read("", DT_NO_INPUT, "No such file or directory");
    put("empty", "");
    expect_read(path_of("empty"), DT_BAD_DATA, "empty file");
    char long_text[102] = {0};
    memset(long_text, 'x', 101);
    put("long", long_text);
    expect_read(path_of("long"), DT_BAD_DATA, "too large: 101 bytes, at most 100");
    if (geteuid() != 0) { /* root may read everything */
        CHECK_INT(chmod(path_of("long"), 0), 0);
        expect_read(path_of("long"), DT_NO_PERMISSION, "Permission denied");
    }
    set_fault(FAULT_ERROR, 0, EACCES);
    expect_read(path_of("long"), DT_NO_PERMISSION, "Permission denied");
    set_fault(FAULT_ERROR, 0, ENOMEM); /* the file is not to blame */
    expect_read(path_of("long"), DT_NO_MEMORY, "Cannot allocate memory");
    no_fault();
    unlink(link_path);
    unlink(path_of("empty"));
    unlink(path_of("long"));
}

static void test_reading_in_pieces(void)
{
    put("file", new_text);
    set_fault(FAULT_NONE, -1, 0);
    short_and_interrupted = true;
    CHECK_INT(content_of("file"), 'n');
    short_and_interrupted = false;
    no_fault();
}

/* Each system call of a read fails once: an error every time, but for the last close, and no
 * descriptor is lost. */
static void test_every_read_call_failing(void)
{
    uint8_t *bytes;
    size_t n_bytes;
    put("file", old_text);
    const int n_descriptors = count_descriptors();
    set_fault(FAULT_NONE, -1, 0);
    CHECK_OK(dt_file_read(path_of("file"), 100, &bytes, &n_bytes));
    free(bytes);
    const int n = n_calls;
    CHECK(n >= 5); /* open, fstat, read, read to the end, fstat, close */
    for (int k = 0; k < n - 1; k++) {
        set_fault(FAULT_ERROR, k, EIO);
        CHECK_INT(dt_file_read(path_of("file"), 100, &bytes, &n_bytes),
                  k == 0 ? DT_NO_INPUT : DT_IO);
        CHECK_HAS(dt_error_text(), "Input/output error");
        no_fault();
        CHECK_INT(count_descriptors(), n_descriptors);
    }
    no_fault();
}

/* The file grows, or is cut, between the two looks at it. */
static int change_to;

static ssize_t changing_read(int fd, void *bytes, size_t n_bytes)
{
    CHECK_INT(truncate(path_of("file"), change_to), 0);
    return real.read(fd, bytes, n_bytes);
}

/* Written over in place: only the time of change tells. The file system's clock is coarse, so it is
 * set by hand. */
static ssize_t overwriting_read(int fd, void *bytes, size_t n_bytes)
{
    const struct timespec times[2] = {{.tv_sec = 1}, {.tv_sec = 1}};
    CHECK_INT(utimensat(AT_FDCWD, path_of("file"), times, 0), 0);
    return real.read(fd, bytes, n_bytes);
}

/* The file system gives a byte more than the file has by fstat, as one over a network may. */
static ssize_t longer_read(int fd, void *bytes, size_t n_bytes)
{
    const ssize_t n = real.read(fd, bytes, n_bytes);
    *(char *)bytes = 'x';
    return n > 0 ? n : 1;
}

static void test_changing_file(void)
{
    static const int sizes[] = {0, 3, 60};
    for (int i = 0; i < 3; i++) {
        put("file", old_text);
        change_to = sizes[i];
        calls.read = changing_read;
        expect_read(path_of("file"), DT_BAD_DATA, "changed while it was read");
        no_fault();
    }
    calls.read = longer_read;
    expect_read(path_of("file"), DT_BAD_DATA, "changed while it was read");
    no_fault();
    calls.read = overwriting_read;
    expect_read(path_of("file"), DT_BAD_DATA, "changed while it was read");
    no_fault();
}

int main(void)
{
    folder_open();
    test_reading_bad_files();
    test_reading_in_pieces();
    test_every_read_call_failing();
    test_changing_file();
    unlink(path_of("file"));
    folder_close();
    return 0;
}
