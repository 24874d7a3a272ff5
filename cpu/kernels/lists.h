/* Lists of nonzero numbers. */
#ifndef DT_CPU_KERNELS_LISTS_H
#define DT_CPU_KERNELS_LISTS_H

#include "cpu/kernels/kernels.h"
#include "cpu/kernels/vector.h"

/* Appends the nonzero elements of a row to a list, with their indices; NaN counts as nonzero.
 * Writes up to VL entries after the list's new end, which it returns. */
ALWAYS_INLINE struct dt_entry *append_nonzero(int n, const float *row, struct dt_entry *end)
{
    for (int first = 0; first < n; first += VL) {
        const vf v = load(row + first);
        uint64_t lanes = nonzero_lanes((vf)((vi)v & first_lanes(n - first)));
#if defined(__AVX512F__)
        const vf index = (vf)_mm512_maskz_compress_epi32((__mmask16)lanes,
                                                         (__m512i)(lane_numbers() + first)),
                 value = (vf)_mm512_maskz_compress_ps((__mmask16)lanes, (__m512)v);
        store((float *)end, interleave_low(index, value));
        store((float *)end + VL, interleave_high(index, value));
        end += __builtin_popcountll(lanes);
#else
        for (; lanes != 0; lanes &= lanes - 1) {
            const int i = first + __builtin_ctzll(lanes);
            *end++ = (struct dt_entry){i, row[i]};
        }
#endif
    }
    return end;
}

#endif
