/* Event files without anybody else's reader: known checksums, the framing byte for byte, names that
 * sort, and nothing written elsewhere. */
#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "cli/sinks/event_file.h"
#include "cli/sinks/protobuf.h"
#include "cli/sinks/sinks.h"
#include "tests/lib/check.h"

static struct dt_run_dir run = {.lock = -1};
static const char *host_name = "node1";

int __wrap_gethostname(char *name, size_t size); /* NOLINT: the linker's name */

int __wrap_gethostname(char *name, size_t size) /* NOLINT */
{
    snprintf(name, size, "%s", host_name);
    return 0;
}

/* RFC 3720, B.4, and the usual one. */
static void test_crc32c(void)
{
    uint8_t bytes[32];
    CHECK_INT(dt_crc32c("", 0), 0);
    CHECK_INT(dt_crc32c("123456789", 9), 0xE3069283);
    CHECK_INT(dt_crc32c(memset(bytes, 0, 32), 32), 0x8A9136AA);
    CHECK_INT(dt_crc32c(memset(bytes, 0xFF, 32), 32), 0x62A8AB43);
    for (int i = 0; i < 32; i++) {
        bytes[i] = (uint8_t)i;
    }
    CHECK_INT(dt_crc32c(bytes, 32), 0x46DD794E);
}

/* The names in the folder, sorted; the caller frees them and the array. */
static int list(struct dirent ***out)
{
    char path[DT_PATH_SIZE + 16];
    snprintf(path, sizeof path, "%s/tensorboard", run.path);
    const int n = scandir(path, out, NULL, alphasort);
    CHECK(n >= 2);
    return n - 2; /* but "." and ".." */
}

/* Bytes of the file number `i` by name, and that name; the caller frees them. */
static size_t read_file(int i, uint8_t **bytes, char name[256])
{
    char path[DT_PATH_SIZE + 300];
    struct dirent **entries;
    size_t n_bytes = 0;
    const int n = list(&entries) + 2;
    snprintf(name, 256, "%s", entries[i + 2]->d_name);
    snprintf(path, sizeof path, "%s/tensorboard/%s", run.path, name);
    CHECK_OK(dt_file_read(path, 1 << 20, bytes, &n_bytes));
    for (int k = 0; k < n; k++) {
        free(entries[k]);
    }
    free(entries);
    return n_bytes;
}

/* The checksums were worked out by another program. */
static void test_framing(void)
{
    static const uint8_t expected[] = {3,    0,    0,   0,   0,   0,    0,    0,    0xB0, 0x99,
                                       0x49, 0x0E, 'a', 'b', 'c', 0x6E, 0x57, 0xF1, 0x21};
    static uint8_t large[100000];
    FILE *file;
    uint8_t *bytes;
    char name[256];
    CHECK_OK(dt_event_file_open(&run, &file));
    CHECK(dt_event_file_put(file, "abc", 3));
    CHECK(read_file(0, &bytes, name) == sizeof expected); /* before the close */
    for (size_t i = 0; i < sizeof expected; i++) {
        CHECK_INT(bytes[i], expected[i]);
    }
    free(bytes);
    CHECK(dt_event_file_put(file, large, sizeof large));
    CHECK(dt_event_file_put(file, "", 0));
    CHECK(read_file(0, &bytes, name) == sizeof expected + 16 + sizeof large + 16);
    free(bytes);
    fclose(file);
}

/* Also where the clock went back, and of two starts in one second. */
static void test_names(void)
{
    FILE *file;
    uint8_t *bytes;
    char path[DT_PATH_SIZE + 64], name[256];
    read_file(0, &bytes, name);
    free(bytes);
    CHECK(strncmp(name, "events.out.tfevents.", 20) == 0 && strspn(name + 20, "0123456789") == 10 &&
          name[30] == '.');
    snprintf(path, sizeof path, "%s/tensorboard/events.out.tfevents.9000000000.host.1", run.path);
    FILE *later = fopen(path, "w");
    CHECK(later != NULL && fclose(later) == 0);
    for (int i = 2; i < 4; i++) {
        CHECK_OK(dt_event_file_open(&run, &file));
        CHECK(dt_event_file_put(file, "x", 1));
        fclose(file);
        CHECK(read_file(i, &bytes, name) == 17); /* the last of all */
        CHECK_INT(strtoll(name + 20, NULL, 10), 9000000000 + i - 1);
        free(bytes);
    }
}

/* A host is called anything; the file's name has what is harmless, and is found in no time. */
static void test_host_names(void)
{
    static const char *const names[][2] = {{"node1.example.org", ".node1.example.org."},
                                           {"node_1", ".node_1."},
                                           {"../a b", "..._a_b."},
                                           {"n\xF6rd\n", ".n_rd_."},
                                           {"", ".."}};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct dirent **entries;
        FILE *file;
        host_name = names[i][0];
        CHECK_OK(dt_event_file_open(&run, &file));
        fclose(file);
        const int n = list(&entries) + 2;
        CHECK_HAS(entries[n - 1]->d_name, names[i][1]);
        for (int k = 0; k < n; k++) {
            free(entries[k]);
        }
        free(entries);
    }
}

static void test_links(const char *work)
{
    FILE *file = NULL;
    struct stat info;
    char link[DT_PATH_SIZE];
    snprintf(run.path, sizeof run.path, "%s/linked", work);
    CHECK(mkdir(run.path, 0777) == 0);
    snprintf(link, sizeof link, "%.900s/tensorboard", run.path);
    CHECK(symlink("/tmp", link) == 0);
    CHECK_FAILS(dt_event_file_open(&run, &file), DT_CANT_CREATE, "linked/tensorboard: ");
    dt_error_clear();
    CHECK(unlink(link) == 0 && mkfifo(link, 0600) == 0);
    CHECK_INT(dt_event_file_open(&run, &file), DT_CANT_CREATE);
    dt_error_clear();
    CHECK(file == NULL && stat(link, &info) == 0);
}

/* A full disk: the run continues without events, and says at its end that some are missing. */
static void test_full(void)
{
    static const struct dt_config config = {.tensorboard = true};
    const struct dt_step_event step = {
        .step = 1, .recorded = true, .train = {.loss_sum = 1, .n_samples = 2}};
    struct dt_sinks sinks = {.folder = {.config = &config, .dir = &run},
                             .events = fopen("/dev/full", "w")};
    const struct dt_event event = {.kind = DT_EVENT_STEP, .step = &step},
                          end = {.kind = DT_EVENT_END};
    CHECK(sinks.events != NULL);
    if (strcmp(dt_protobuf_library(), "none") != 0) {
        CHECK_OK(dt_tensorboard_take(&sinks, &event));
        CHECK(sinks.events_failed && sinks.events == NULL);
        CHECK_OK(dt_tensorboard_take(&sinks, &event));
        CHECK_FAILS(dt_tensorboard_take(&sinks, &end), DT_IO,
                    "tensorboard: events are missing, as the warning above says");
        dt_error_clear();
    }
    dt_sinks_close(&sinks);
}

int main(void)
{
    char work[] = "/tmp/dtrain-test-events-XXXXXX", command[64];
    CHECK(mkdtemp(work) != NULL);
    snprintf(run.path, sizeof run.path, "%s", work);
    alarm(60); /* ends what hangs */
    test_crc32c();
    test_framing();
    test_names();
    test_host_names();
    test_links(work);
    test_full();
    snprintf(command, sizeof command, "rm -rf %s", work);
    return system(command);
}
