/* What is in a folder, and what to say where something is missing in it. */
#ifndef DT_DATA_FORMATS_FOLDER_H
#define DT_DATA_FORMATS_FOLDER_H

#include "base/file_open.h"

/* Names, sorted. */
struct dt_names {
    char **at;
    size_t n, room;
};
enum dt_status dt_names_add(const char *path, const char *name, struct dt_names *out);
int dt_names_index(const struct dt_names *names, const char *name); /* -1: not there */
void dt_names_sort(struct dt_names *names);
void dt_names_close(struct dt_names *names);

/* Adds the files and the folders in a folder, without hidden ones, whose names begin with a dot,
 * and what other systems put beside them (__MACOSX, @eaDir); NULL: not these. The caller closes the
 * names, also after a failure. DT_NO_INPUT: no such folder. */
enum dt_status dt_folder_list(const char *path, struct dt_names *files, struct dt_names *folders);
bool dt_folder_is_there(const char *path);

/* "a, b and 12 more": at most six of them. */
#define DT_SOME_NAMES_SIZE 240
void dt_names_some(const struct dt_names *names, char text[DT_SOME_NAMES_SIZE]);

/* DT_NO_INPUT. The text says that `dir` is no folder, or what it lacks (`lacks`: "train.bin is not
 * there") and which names it holds. It proposes the right folder, which may lie up to two levels
 * below `dir` or one above, and otherwise `cure`. */
enum dt_status dt_folder_refuse(const char *dir, const char *lacks,
                                bool (*is_right)(const char *dir), const char *cure);

#endif
