#include <stdlib.h>

#include "dist/compression/error_feedback.h"

static enum dt_status encoder_open(const struct dt_codec *codec, int rank, size_t n_elems,
                                   struct dt_error_feedback **out)
{
    *out = calloc(1, sizeof **out);
    return *out != NULL ? dt_error_feedback_open(codec, rank, n_elems, *out)
                        : dt_error(DT_NO_MEMORY, "no memory to encode gradients");
}

static void encode_input(struct dt_error_feedback *feedback, bool gathers, uint64_t draw,
                         size_t begin, size_t end, float *values, void *bytes)
{
    DT_ASSERT(begin <= end);
    if (gathers || feedback->left != NULL) {
        dt_error_feedback_encode(feedback, draw, begin, end, values, bytes);
    }
}

static void encoder_close(struct dt_error_feedback *feedback)
{
    if (feedback != NULL) {
        dt_error_feedback_close(feedback);
        free(feedback);
    }
}

const struct dt_encoder_ops dt_encoder = {.open = encoder_open,
                                          .draw = dt_error_feedback_draw,
                                          .encode_input = encode_input,
                                          .bytes = dt_codec_bytes,
                                          .encode = dt_codec_encode,
                                          .decode = dt_codec_decode,
                                          .decode_add = dt_codec_decode_add,
                                          .close = encoder_close};
