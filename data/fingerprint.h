/* Tells whether samples are the ones that they were, to the bit and in their places. */
#ifndef DT_DATA_FINGERPRINT_H
#define DT_DATA_FINGERPRINT_H

#include "base/samples.h"

/* A sum, modulo 2^64, of one hash (XXH3-64, xxHash library) for each sample here whose number is
 * `part` modulo n_parts: of its number, its pixels or values, and its label or targets. The sums of
 * all parts add up to the same at any number of parts, whoever has which samples. */
uint64_t dt_fingerprint(const struct dt_samples *samples, uint32_t part, uint32_t n_parts);

#endif
