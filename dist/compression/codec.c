#include "dist/compression/codec.h"

const char *const dt_compression_names[DT_N_COMPRESSION_TYPES] = {
    DT_COMPRESSION_LIST(DT_ENUM_NAME)};

#define FORMULA(constant, name, c_name, formula) formula,
const char *const dt_compression_formulas[DT_N_COMPRESSION_TYPES] = {DT_COMPRESSION_LIST(FORMULA)};

static size_t none_bytes(const struct dt_codec *codec, size_t begin, size_t n)
{
    (void)codec, (void)begin;
    return n * sizeof(float);
}

static void none_encode(const struct dt_codec *codec, uint64_t draw, const float *from,
                        size_t begin, size_t n, uint8_t *bytes)
{
    (void)codec, (void)draw, (void)begin;
    memcpy(bytes, from, n * sizeof *from);
}

static void none_decode_add(const struct dt_codec *codec, const uint8_t *bytes, size_t begin,
                            size_t n, float *to)
{
    (void)codec, (void)begin;
    for (size_t i = 0; i < n; i++) {
        float x;
        memcpy(&x, bytes + i * sizeof x, sizeof x);
        to[i] += x;
    }
}

const struct dt_codec_ops dt_none_codec = {
    .summable = true, .bytes = none_bytes, .encode = none_encode, .decode_add = none_decode_add};

struct dt_codec dt_codec_none(void)
{
    return (struct dt_codec){.ops = &dt_none_codec, .spec = {.type = DT_COMPRESSION_NONE}};
}

const struct dt_codec *dt_codec_or_none(const struct dt_codec *codec)
{
    static const struct dt_codec none = {.ops = &dt_none_codec};
    return codec != NULL ? codec : &none;
}

enum dt_status dt_codec_open(const struct dt_codec_ops *const *codecs,
                             const struct dt_compression_spec *spec,
                             const struct dt_codec_layout *layout, struct dt_codec *out)
{
    DT_ASSERT(layout == NULL || layout->n_matrices <= DT_MAX_MATRICES);
    *out = dt_codec_none();
    if (spec->type == DT_COMPRESSION_NONE) {
        return DT_OK;
    }
    if (codecs == NULL || codecs[spec->type] == NULL) {
        return dt_error(DT_INTERNAL, "this program links no codec \"%s\"",
                        dt_compression_names[spec->type]);
    }
    out->ops = codecs[spec->type];
    out->spec = *spec;
    out->layout = layout != NULL ? *layout : out->layout;
    return DT_OK;
}

/* The codec, or none where that takes no more bytes. */
static const struct dt_codec_ops *ops_for(const struct dt_codec *codec, size_t begin, size_t n)
{
    DT_ASSERT(begin + n >= begin);
    return codec->ops->bytes(codec, begin, n) < n * sizeof(float) ? codec->ops : &dt_none_codec;
}

size_t dt_codec_bytes(const struct dt_codec *codec, size_t begin, size_t n)
{
    DT_ASSERT(ops_for(codec, begin, n)->bytes(codec, begin, n) <= n * sizeof(float));
    return ops_for(codec, begin, n)->bytes(codec, begin, n);
}

void dt_codec_encode(const struct dt_codec *codec, uint64_t draw, const float *from, size_t begin,
                     size_t n, void *bytes)
{
    if (n > 0) {
        ops_for(codec, begin, n)->encode(codec, draw, from, begin, n, bytes);
    }
}

void dt_codec_decode_add(const struct dt_codec *codec, const void *bytes, size_t begin, size_t n,
                         float *to)
{
    if (n > 0) {
        ops_for(codec, begin, n)->decode_add(codec, bytes, begin, n, to);
    }
}

void dt_codec_decode(const struct dt_codec *codec, const void *bytes, size_t begin, size_t n,
                     float *to)
{
    for (size_t i = 0; i < n; i++) {
        to[i] = -0.0f; /* x + -0 is x, also where x is -0 */
    }
    dt_codec_decode_add(codec, bytes, begin, n, to);
}
