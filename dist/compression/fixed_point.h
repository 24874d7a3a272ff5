/* Sums of floats whose bits do not depend on the order of the additions.
 *
 * Addition of floats rounds, addition of integers does not. So each float becomes a 64-bit integer
 * in units of 2^-40, and these are added. A float has 24 bits: from 2^-17 up it is exact in this
 * unit, and smaller ones lose less than 5e-13, far below the rounding of the float sums that made
 * them. Addends below 2^11 leave room for DT_FIXED_MOST of them.
 *
 * Between ranks such an integer travels as digits: floats that are whole numbers, so small that
 * their sums over all ranks stay below 2^24, up to which floats count without a gap. Whatever adds
 * floats, in any order, then adds integers: every allreduce, and every server.
 *
 * Digits of 16 numbers lie together, the lowest first: (n / 16, n_digits, 16). */
#ifndef DT_DIST_COMPRESSION_FIXED_POINT_H
#define DT_DIST_COMPRESSION_FIXED_POINT_H

#include <stddef.h>
#include <stdint.h>

#define DT_FIXED_LARGEST 0x1p11F /* addends are below it */
#define DT_FIXED_MOST 4095       /* addends of a sum, on all ranks together */
#define DT_FIXED_MOST_RANKS 2048
#define DT_FIXED_GROUP 16

/* Adds n floats to as many sums. Returns how many of them no sum can hold, NaNs among them: then
 * the sums are worth nothing. */
uint32_t dt_fixed_add(size_t n, const float *x, int64_t *sums);

/* The digits of a number that so many ranks add. One rank needs no integers any more: its one digit
 * is the number itself, rounded to a float. */
int dt_fixed_n_digits(int n_ranks);

/* n: a multiple of DT_FIXED_GROUP. */
void dt_fixed_split(int n_digits, size_t n, const int64_t *sums, float *digits);
/* To floats, from digits that were added. A digit that is a NaN makes its number one; returns how
 * many there are. */
size_t dt_fixed_join(int n_digits, size_t n, const float *digits, float *out);

#endif
