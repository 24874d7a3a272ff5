/* Event files as TensorBoard looks for them: `tensorboard/events.out.tfevents.<time>.<host>.<pid>`
 * in a run's folder, one for each start of the run. They hold records as TensorFlow's TFRecord
 * files do: the length as 8 bytes, a checksum of these, the bytes, a checksum of those, all
 * little-endian. A checksum is the CRC-32C, turned and moved so that one of bytes with checksums in
 * them is still good. cli/sinks/tensorboard.c fills the records. */
#ifndef DT_CLI_SINKS_EVENT_FILE_H
#define DT_CLI_SINKS_EVENT_FILE_H

#include <stdio.h>

#include "train/save/run_dir.h"

/* Creates the folder, if need be, and a new file in it, whose name sorts behind those of earlier
 * starts, as readers go through them, whatever the clock says. Follows no link. DT_CANT_CREATE,
 * DT_NO_MEMORY; a failed open owes nothing. */
enum dt_status dt_event_file_open(const struct dt_run_dir *run, FILE **out);

/* Appends a record, and hands it to the system at once, so that it survives if the program is
 * killed. Allocates nothing. False, with errno: the record is not whole, and nothing may follow. */
bool dt_event_file_put(FILE *file, const void *bytes, size_t n);

/* CRC-32C (Castagnoli's polynomial), which zlib has not got, of n bytes: the checksum of records.
 * "123456789" has 0xE3069283. */
uint32_t dt_crc32c(const void *bytes, size_t n);

#endif
