#include "dist/compression/error_feedback.h"

#include <stdlib.h>

enum dt_status dt_error_feedback_open(const struct dt_codec *codec, int rank, size_t n_elems,
                                      struct dt_error_feedback *out)
{
    DT_ASSERT(rank >= 0);
    *out = (struct dt_error_feedback){.codec = *codec, .draw = DT_FIRST_DRAW(rank)};
    if (codec->spec.error_feedback && codec->spec.type != DT_COMPRESSION_NONE) {
        out->left = calloc(n_elems + 1, sizeof *out->left);
        if (out->left == NULL) {
            return dt_error(DT_NO_MEMORY, "no memory for what compression leaves of %zu gradients",
                            n_elems);
        }
    }
    return DT_OK;
}

void dt_error_feedback_close(struct dt_error_feedback *feedback)
{
    free(feedback->left);
    *feedback = (struct dt_error_feedback){.left = NULL};
}

uint64_t dt_error_feedback_draw(struct dt_error_feedback *feedback)
{
    DT_ASSERT((feedback->draw + 1) % DT_FIRST_DRAW(1) != 0);
    return feedback->draw++;
}

void dt_error_feedback_encode(struct dt_error_feedback *feedback, uint64_t draw, size_t begin,
                              size_t end, float *values, void *bytes)
{
    DT_ASSERT(begin <= end);
    DT_ASSERT(draw <= feedback->draw);
    const size_t n = end - begin;
    float *left = feedback->left != NULL ? feedback->left + begin : NULL;
    for (size_t i = 0; left != NULL && i < n; i++) {
        left[i] += values[i];
    }
    dt_codec_encode(&feedback->codec, draw, left != NULL ? left : values, begin, n, bytes);
    if (feedback->codec.spec.type == DT_COMPRESSION_NONE) { /* nothing is lost */
        return;
    }
    dt_codec_decode(&feedback->codec, bytes, begin, n, values);
    for (size_t i = 0; left != NULL && i < n; i++) {
        left[i] -= values[i];
    }
}
