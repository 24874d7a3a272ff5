/* CRC-32C (Castagnoli's polynomial), which zlib has not got: checksum of records in event files. */
#ifndef DT_BASE_CRC32C_H
#define DT_BASE_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* Of n bytes; "123456789" has 0xE3069283. */
uint32_t dt_crc32c(const void *bytes, size_t n);

#endif
