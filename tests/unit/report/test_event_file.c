/* Event files without anybody else's reader: known checksums, the framing byte for byte, names that
 * sort, and nothing written elsewhere. */
#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/sinks/event_file.h"
#include "cli/sinks/protobuf.h"
#include "cli/sinks/sinks.h"
#include "tests/lib/folder.h"
#include "tests/lib/wrap.h"

static struct dt_run_dir run = {.lock = -1};
static const char *host_name = "node1";

WRAP(int, gethostname, char *name, size_t size)
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

/* The name of the file number `i` by name; -1: of the last. */
static const char *name_of(int i)
{
    struct dirent **entries;
    const int n = scandir(path_of("tensorboard"), &entries, NULL, alphasort);
    char *name = temporary(256);
    CHECK(n > i + 2);
    strcpy(name, entries[i < 0 ? n - 1 : i + 2]->d_name); /* "." and ".." are the first */
    for (int k = 0; k < n; k++) {
        free(entries[k]);
    }
    free(entries);
    return name;
}

static const uint8_t *read_file(int i, size_t *n_bytes)
{
    return (uint8_t *)bytes_of(path_of("tensorboard/%s", name_of(i)), n_bytes);
}

/* The checksums were worked out by another program. */
static void test_framing(void)
{
    static const uint8_t expected[] = {3,    0,    0,   0,   0,   0,    0,    0,    0xB0, 0x99,
                                       0x49, 0x0E, 'a', 'b', 'c', 0x6E, 0x57, 0xF1, 0x21};
    static uint8_t large[100000];
    FILE *file;
    size_t n;
    CHECK_OK(dt_event_file_open(&run, &file));
    CHECK(dt_event_file_put(file, "abc", 3));
    const uint8_t *bytes = read_file(0, &n); /* before the close */
    CHECK_INT(n, sizeof expected);
    for (size_t i = 0; i < sizeof expected; i++) {
        CHECK_INT(bytes[i], expected[i]);
    }
    CHECK(dt_event_file_put(file, large, sizeof large));
    CHECK(dt_event_file_put(file, "", 0));
    read_file(0, &n);
    CHECK_INT(n, sizeof expected + 16 + sizeof large + 16);
    fclose(file);
}

/* Also where the clock went back, and of two starts in one second. */
static void test_names(void)
{
    FILE *file;
    size_t n;
    const char *name = name_of(0);
    CHECK(strncmp(name, "events.out.tfevents.", 20) == 0 && strspn(name + 20, "0123456789") == 10 &&
          name[30] == '.');
    put("tensorboard/events.out.tfevents.9000000000.host.1", "");
    for (int i = 2; i < 4; i++) {
        CHECK_OK(dt_event_file_open(&run, &file));
        CHECK(dt_event_file_put(file, "x", 1));
        fclose(file);
        read_file(i, &n);
        CHECK_INT(n, 17); /* the last of all */
        CHECK_INT(strtoll(name_of(i) + 20, NULL, 10), 9000000000 + i - 1);
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
        FILE *file;
        host_name = names[i][0];
        CHECK_OK(dt_event_file_open(&run, &file));
        fclose(file);
        CHECK_HAS(name_of(-1), names[i][1]);
    }
}

static void test_links(void)
{
    FILE *file = NULL;
    struct stat info;
    const char *link = path_of("linked/tensorboard");
    strcpy(run.path, path_of("linked"));
    CHECK(mkdir(run.path, 0777) == 0);
    CHECK(symlink("/tmp", link) == 0);
    CHECK_FAILS(dt_event_file_open(&run, &file), DT_CANT_CREATE, "linked/tensorboard: ");
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
    }
    dt_sinks_close(&sinks);
}

int main(void)
{
    folder_open();
    strcpy(run.path, folder);
    alarm(60); /* ends what hangs */
    test_crc32c();
    test_framing();
    test_names();
    test_host_names();
    test_links();
    test_full();
    folder_remove();
    return 0;
}
