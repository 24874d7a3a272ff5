/* A short list of texts, as of a configuration: one after another, each with its NUL. */
#ifndef DT_BASE_TEXTS_H
#define DT_BASE_TEXTS_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#define DT_TEXTS_BYTES 8188
struct dt_texts {
    int n;
    char bytes[DT_TEXTS_BYTES];
};

/* Text i; that of `n` is the end of the last one. */
static inline const char *dt_texts_at(const struct dt_texts *texts, int i)
{
    const char *at = texts->bytes;
    for (; i > 0; i--) {
        at += strlen(at) + 1;
    }
    return at;
}

/* -1: not there. */
static inline int dt_texts_find(const struct dt_texts *texts, const char *text)
{
    int i = texts->n - 1;
    for (; i >= 0 && strcmp(dt_texts_at(texts, i), text) != 0; i--) {
    }
    return i;
}

/* False: there is no room for it. */
static inline bool dt_texts_add(struct dt_texts *texts, const char *text)
{
    const size_t used = (size_t)(dt_texts_at(texts, texts->n) - texts->bytes), n = strlen(text) + 1;
    if (n > DT_TEXTS_BYTES - used) {
        return false;
    }
    memcpy(texts->bytes + used, text, n);
    texts->n++;
    return true;
}

#endif
