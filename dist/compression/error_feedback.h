/* Error feedback around any codec: what an encoding loses is kept, and added to what is encoded
 * next, so that nothing is lost in the long run, only late: Karimireddy, Rebjock, Stich, Jaggi,
 * "Error feedback fixes SignSGD and other gradient compression schemes", ICML 2019, arXiv
 * 1901.09847; first in Seide 2014. */
#ifndef DT_DIST_COMPRESSION_ERROR_FEEDBACK_H
#define DT_DIST_COMPRESSION_ERROR_FEEDBACK_H

#include "base/status.h"
#include "dist/compression/codec.h"

struct dt_error_feedback {
    struct dt_codec codec;
    float *left; /* of each element: what was lost and not sent yet; NULL: error feedback is off */
    uint64_t draw; /* of the next sum (dt_error_feedback_draw); begins with DT_FIRST_DRAW of the
                      world's rank, as no other does */
};

/* The rest of a draw counts the sums that the rank has begun. */
#define DT_DRAW_COUNT_BITS 40
#define DT_FIRST_DRAW(rank) ((uint64_t)(rank) << DT_DRAW_COUNT_BITS)

/* For the gradients of one rank, n_elems of them. It begins with nothing left; checkpoints have
 * what is (dist/strategy/residuals.h). Nothing is allocated afterwards. */
enum dt_status dt_error_feedback_open(const struct dt_codec *codec, int rank, size_t n_elems,
                                      struct dt_error_feedback *out);
void dt_error_feedback_close(struct dt_error_feedback *feedback); /* a zeroed one is fine */

/* The draw (codec.h) of a sum that begins. Every worker takes one for every sum, also where another
 * rank encodes it: so all have taken as many, in the order in which sums begin, whenever they are
 * encoded. */
uint64_t dt_error_feedback_draw(struct dt_error_feedback *feedback);

/* Encodes elements [begin, end) into dt_codec_bytes of their number; `values` begins at `begin`,
 * and becomes what was sent, as decoding has it. */
void dt_error_feedback_encode(struct dt_error_feedback *feedback, uint64_t draw, size_t begin,
                              size_t end, float *values, void *bytes);

#endif
