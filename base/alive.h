/* A sign of life, which long work gives between its pieces to whoever waits for it. */
#ifndef DT_BASE_ALIVE_H
#define DT_BASE_ALIVE_H

#include <stddef.h>

struct dt_alive {
    void (*show)(
        void *context); /* takes microseconds at most, and never blocks; NULL: nobody waits */
    void *context;
};

static inline void dt_alive_show(const struct dt_alive *alive)
{
    if (alive->show != NULL) {
        alive->show(alive->context);
    }
}

#endif
