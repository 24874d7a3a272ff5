/* The two contents that the file of a test has, before and after, and counts of what is left
 * behind. */
#ifndef DT_TESTS_FILE_FOLDER_H
#define DT_TESTS_FILE_FOLDER_H

#include "base/file.h"
#include "tests/lib/folder.h"

#include <fcntl.h>
#include <stdlib.h>

static const char old_text[] = "the old content";
static const char new_text[] = "the new content, which is longer";

/* Which of the two contents the file has: 'o' or 'n'; anything else ends the test. */
static inline char content_of(const char *name)
{
    uint8_t *bytes;
    size_t n_bytes;
    CHECK_OK(dt_file_read(path_of("%s", name), 1000, &bytes, &n_bytes));
    const bool is_old = strcmp((char *)bytes, old_text) == 0 && n_bytes == sizeof old_text - 1;
    const bool is_new = strcmp((char *)bytes, new_text) == 0 && n_bytes == sizeof new_text - 1;
    free(bytes);
    CHECK(is_old || is_new);
    return is_old ? 'o' : 'n';
}

static inline int count_descriptors(void)
{
    int n = 0;
    for (int fd = 0; fd < 256; fd++) {
        n += fcntl(fd, F_GETFD) >= 0;
    }
    return n;
}

#endif
