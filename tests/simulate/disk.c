/* The disk, by way of the trainer's table of system calls (base/file_read.h). */
#include <unistd.h>

#include "base/file.h"
#include "tests/simulate/sim.h"

/* Nothing is lost here but by a fault, so nothing has to be synced. */
static int sync_nothing(int fd)
{
    (void)fd;
    sim_point("fsync");
    return 0;
}

void sim_disk_begin(void)
{
    dt_file_calls.fsync = sync_nothing;
}
