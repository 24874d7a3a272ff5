#include "base/crc32c.h"

#define POLYNOMIAL 0x82F63B78u /* its bits reversed */

static void make_table(uint32_t table[256])
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t remainder = i;
        for (int bit = 0; bit < 8; bit++) {
            remainder = remainder >> 1 ^ ((remainder & 1) != 0 ? POLYNOMIAL : 0);
        }
        table[i] = remainder;
    }
}

uint32_t dt_crc32c(const void *bytes, size_t n)
{
    static uint32_t table[256];
    const uint8_t *at = bytes;
    uint32_t crc = ~0u;
    if (table[1] == 0) {
        make_table(table);
    }
    for (size_t i = 0; i < n; i++) {
        crc = crc >> 8 ^ table[(crc ^ at[i]) & 0xFF];
    }
    return ~crc;
}
