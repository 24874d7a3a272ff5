/* The flight record: the table of signs of life (table.h) as files, a flight-<rank>.json per rank
 * of this host. Any rank of the host can write it down, also for a rank that hangs or is stopped.
 * By any thread; nothing is allocated. */
#ifndef DT_DIST_LIVENESS_FLIGHT_H
#define DT_DIST_LIVENESS_FLIGHT_H

#include "dist/liveness/table.h"

/* Writes the files into the folder. If another rank of the host writes them already, waits for that
 * rank, half a second at most. What cannot be written is left out. */
void dt_flight_write(struct dt_liveness_table *table, const char *folder, const char *host);
/* The run goes on: the next dt_flight_write writes again. False while a rank still writes. */
bool dt_flight_rewrite(struct dt_liveness_table *table);
/* Removes the files of this host's ranks. */
void dt_flight_remove(struct dt_liveness_table *table, const char *folder);

#endif
