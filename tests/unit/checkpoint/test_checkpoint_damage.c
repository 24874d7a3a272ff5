/* Damaged and hostile checkpoints: every flipped bit, every cut, and headers that lie although
 * their CRCs are right. */
#include <zlib.h>

#include "tests/lib/checkpoint_sample.h"

static struct sample sample; /* shared; every test leaves it as it was */

/* ---- damage ---- */

static bool is_accepted(const uint8_t *bytes, size_t n_bytes)
{
    struct dt_checkpoint_file file;
    const enum dt_status status = dt_checkpoint_parse("x.safetensors", bytes, n_bytes, &file);
    if (status == DT_OK) {
        dt_checkpoint_close(&file);
        return true;
    }
    CHECK_INT(status, DT_BAD_DATA);
    CHECK_HAS(dt_error_text(), "x.safetensors: ");
    dt_error_clear();
    return false;
}

static void test_every_bit_and_every_length(void)
{
    size_t n_bytes;
    uint8_t *bytes = sample_bytes(&sample, &n_bytes);
    CHECK(is_accepted(bytes, n_bytes));
    for (size_t bit = 0; bit < 8 * n_bytes; bit += EVERY(7)) {
        bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
        CHECK_MESSAGE(!is_accepted(bytes, n_bytes),
                      "bit %zu of byte %zu flipped, and nobody noticed", bit % 8, bit / 8);
        bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    for (size_t n = 0; n < n_bytes; n += EVERY(7)) {
        uint8_t *exact = malloc(n + (n == 0)); /* so that a sanitizer sees a read past the end */
        CHECK(exact != NULL);
        memcpy(exact, bytes, n);
        CHECK_MESSAGE(!is_accepted(exact, n), "cut after %zu bytes, and nobody noticed", n);
        free(exact);
    }
    uint8_t *longer = temporary(1 * n_bytes + 1);
    memcpy(longer, bytes, n_bytes);
    CHECK(!is_accepted(longer, n_bytes + 1));
}

/* ---- hostile headers: right CRCs, wrong content ---- */

/* Replaces the first "from" in the header by "to", which have backticks for quotes, then makes
 * length and CRC right again. From malloc. */
static uint8_t *forge(const uint8_t *bytes, size_t n_bytes, const char *from, const char *to,
                      size_t *n_out)
{
    uint64_t length;
    from = quoted(from);
    to = quoted(to);
    memcpy(&length, bytes, 8);
    char *header = strndup((const char *)bytes + 8, length);
    CHECK(header != NULL);
    const char *place = strstr(header, from);
    CHECK(place != NULL);
    const size_t n_before = (size_t)(place - header), n_from = strlen(from), n_to = strlen(to);
    const uint64_t new_length = length - n_from + n_to;
    uint8_t *out = malloc(n_bytes - n_from + n_to);
    CHECK(out != NULL);
    memcpy(out, &new_length, 8);
    memcpy(out + 8, header, n_before);
    memcpy(out + 8 + n_before, to, n_to);
    memcpy(out + 8 + n_before + n_to, place + n_from, length - n_before - n_from);
    memcpy(out + 8 + new_length, bytes + 8 + length, n_bytes - 8 - length);
    free(header);
    char *field = memmem(out + 8, new_length, "\"header_crc\":\"", 14);
    if (field != NULL) {
        memcpy(field + 14, "00000000", 8);
        char digits[9];
        snprintf(digits, sizeof digits, "%08lx", crc32_z(0, out, 8 + new_length));
        memcpy(field + 14, digits, 8);
    }
    *n_out = n_bytes - n_from + n_to;
    return out;
}

static const struct {
    const char *from, *to, *message;
} forgeries[] = {
    {"`version`:`1`", "`version`:`3`", "format version 3, this dtrain reads 1"},
    {"`version`:`1`", "`version`:`one`", "metadata 'version' is 'one', not a counter"},
    {"`version`:`1`,", "", "no 'version' in its metadata"},
    {"`format`:`dtrain`", "`format`:`pt`", "not a checkpoint of dtrain (format 'pt')"},
    {"`header_crc`", "`header_cRc`", "not a checkpoint of dtrain"},
    {"`seed`:`0`", "`seed`:`18446744073709551616`",
     "metadata 'seed' is '18446744073709551616', not a counter"},
    {"`seed`:`0`", "`seed`:`-1`", "'seed' is '-1', not a counter"},
    {"`seed`:`0`", "`seed`:` 1`", "not a counter"},
    {"`seed`:`0`", "`seed`:``", "not a counter"},
    {"`seed`:`0`", "`seed`:0", "metadata 'seed' is not a string"},
    {"`seed`:`0`", "`seed`:`0`,`seed`:`0`", "metadata 'seed' appears twice"},
    {"`seed`:`0`", "`Seed`:`0`", "no 'seed' in its metadata"},
    {"`loss_sum`:`0x0p+0`", "`loss_sum`:`nan`",
     "metadata 'loss_sum' is 'nan', not a finite number"},
    {"`loss_sum`:", "`loss_Sum`:", "no 'loss_sum' in its metadata"},
    {"`format`:", "`Format`:", "no 'format' in its metadata"},
    {"`loss_sum`:`0x0p+0`", "`loss_sum`:`1e999`", "not a finite number"},
    {"`loss_sum`:`0x0p+0`", "`loss_sum`:`0.5x`", "not a finite number"},
    {"`config`:", "`gonfig`:", "no 'config' in its metadata"},
    {"`crc32.fc1.bias`", "`crc32.fc9.bias`", "no 'crc32.fc1.bias' in its metadata"},
    {"`__metadata__`:{", "`__metadata__`:[],`other`:{", "__metadata__ must be an object"},
    {"`__metadata__`:{", "`__metadata__`:{},`__metadata__`:{", "'__metadata__' appears twice"},
    {"`dtype`:`F32`", "`dtype`:`F16`",
     "tensor 'conv1.weight' has dtype 'F16', only F32 is supported"},
    {"`dtype`:`F32`", "`dtype`:32", "tensor 'conv1.weight' needs dtype, shape and data_offsets"},
    {"`dtype`:`F32`,", "", "needs dtype, shape and data_offsets"},
    {"`dtype`:`F32`", "`dtype`:`F32`,`dtype`:`F32`", "once each"},
    {"[4,1,3,3]", "[4,1,3,4]", "offsets [0, 144] do not match its shape, which takes 192 bytes"},
    {"[4,1,3,3]", "[4,1,1,3,3]", "tensor 'conv1.weight' has an impossible shape"},
    {"[4,1,3,3]", "[36.5]", "impossible shape"},
    {"[4,1,3,3]", "[-36]", "impossible shape"},
    {"[4,1,3,3]", "[0,36]", "impossible shape"},
    {"[4,1,3,3]", "[1e999]", "impossible shape"},
    {"[4,1,3,3]", "[`36`]", "impossible shape"},
    {"[4,1,3,3]", "36", "impossible shape"},
    {"[4,1,3,3]", "[4294967296,4294967296,1,1]", "impossible shape"},
    {"[4,1,3,3]", "[4611686018427387904,1]", "impossible shape"},
    {"[4,1,3,3]", "[2147483648,2147483648,4,9]", "impossible shape"}, /* 4 x 2^62 x 36 would wrap */
    {"[144,160]", "[144,164]", "offsets [144, 164] do not match its shape"},
    {"[144,160]", "[160,144]", "offsets [160, 144] do not match its shape"},
    {"[144,160]", "[144]", "invalid data_offsets"},
    {"[144,160]", "[144,160,176]", "invalid data_offsets"},
    {"[144,160]", "[144,-160]", "invalid data_offsets"},
    {"[144,160]", "[144,160.5]", "invalid data_offsets"},
    {"[144,160]", "[140,156]", "begins at byte 140 of the data, expected 144 (an overlap)"},
    {"[144,160]", "[148,164]",
     "tensor 'conv1.bias' begins at byte 148 of the data, expected 144 (a hole)"},
    {"[144,160]", "[9007199254740976,9007199254740992]",
     "truncated: tensor 'conv1.bias' ends at byte 9007199254740992"},
    {",`optimizer.1.fc2.bias`:{`dtype`:`F32`,`shape`:[4],`data_offsets`:[14816,14832]}", "",
     "16 extra bytes after the last tensor"},
    {"`conv1.bias`:", "`conv1.weight`:", "'conv1.weight' appears twice"},
    {"`conv1.bias`:", "`a-name-of-more-than-sixty-three-characters-0123456789012345678901`:",
     "is too long"},
    {"`conv1.bias`:{", "`conv1.bias`:7,`x`:{",
     "tensor 'conv1.bias' needs dtype, shape and data_offsets"},
    {"}}  ", "}} x", "its header is not JSON (line 1, column "},
    {"}}  ", "}}{}", "its header is not JSON"},
    {"}}  ", "}}\n ", "its header is not a JSON object"},
    {"{`__metadata__`", "[{`__metadata__`", "its header is not JSON"},
    {"`F32`", "`F32\\u0000`", "its header is not JSON"}, /* cJSON's texts end at a NUL */
    {"`fc1.bias`", "`fc1.bias\\u0000`", "its header is not JSON"},
    {"`seed`:`0`", "`seed`:`0\\u0000x`", "its header is not JSON"},
    {"`seed`", "`seed\\u0000`", "its header is not JSON"},
    {"`seed`:`0`", "`seed`:`\xff`", "its header is not JSON"},
    {"{`__metadata__`", " {`__metadata__`", "its header is not a JSON object"},
};

static void check_rejected(const uint8_t *bytes, size_t n_bytes, const char *message)
{
    struct dt_checkpoint_file file;
    CHECK_INT(dt_checkpoint_parse("x.safetensors", bytes, n_bytes, &file), DT_BAD_DATA);
    CHECK(file.config == NULL && file.content == NULL);
    CHECK_HAS(dt_error_text(), "x.safetensors: ");
    CHECK_HAS(dt_error_text(), message);
    dt_error_clear();
}

static void test_forged_headers(void)
{
    size_t n_bytes, n_forged;
    const uint8_t *bytes = sample_bytes(&sample, &n_bytes);
    uint8_t *forged = forge(bytes, n_bytes, "`seed`:`0`", "`seed`:`5`", &n_forged);
    CHECK(is_accepted(forged, n_forged)); /* the forger's craft is sound */
    free(forged);
    for (size_t i = 0; i < sizeof forgeries / sizeof forgeries[0]; i++) {
        forged = forge(bytes, n_bytes, forgeries[i].from, forgeries[i].to, &n_forged);
        check_rejected(forged, n_forged, forgeries[i].message);
        free(forged);
    }
}

/* More entries than any model has, and deeper nesting than any parser should follow. */
static void test_forged_sizes(void)
{
    const size_t n_text = 600000;
    size_t n_bytes, n_forged;
    char *text = temporary(n_text + 64);
    const uint8_t *bytes = sample_bytes(&sample, &n_bytes);
    size_t used = 0;
    for (int i = 0; used < n_text - 32; i++) {
        used += (size_t)sprintf(text + used, "`t%d`:{},", i);
    }
    strcpy(text + used, "`conv1.bias`:");
    uint8_t *forged = forge(bytes, n_bytes, "`conv1.bias`:", text, &n_forged);
    check_rejected(forged, n_forged, "tensors in the header, at most 641 are supported");
    free(forged);

    memset(text, '[', n_text);
    text[n_text] = '\0';
    forged = forge(bytes, n_bytes, "[4,1,3,3]", text, &n_forged);
    check_rejected(forged, n_forged, "its header is not JSON");
    free(forged);

    uint8_t start[64] = {0};
    const uint64_t lengths[] = {57, 1048577, UINT64_MAX, UINT64_MAX - 7, (uint64_t)1 << 63};
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        memcpy(start, &lengths[i], 8);
        check_rejected(start, sizeof start, "header length ");
    }
}

/* The kind of a file, as far as its beginning shows it. */
static void test_beginnings(void)
{
    const uint8_t zip[400] = {'P', 'K', 3, 4};
    size_t n_bytes;
    uint8_t *bytes = sample_bytes(&sample, &n_bytes);
    check_rejected(zip, sizeof zip, "not a safetensors file");
    check_rejected(bytes, 4, "truncated: 4 bytes");
    check_rejected(bytes, 100, "truncated: header length ");
    bytes[40] ^= 1;
    check_rejected(bytes, n_bytes, "damaged (header crc ");
    memcpy(bytes, &(uint64_t){1 << 19}, 8);
    check_rejected(bytes, n_bytes, "truncated: header length 524288");
    memcpy(bytes, &(uint64_t){(uint64_t)1 << 63}, 8);
    check_rejected(bytes, n_bytes,
                   "not a safetensors file, or damaged: header length 9223372036854775808");
}

static void test_non_finite_values(void)
{
    size_t n_bytes, n_forged;
    uint64_t length;
    uint8_t *bytes = sample_bytes(&sample, &n_bytes);
    memcpy(&length, bytes, 8);
    uint8_t *data = bytes + 8 + length; /* fc1.weight is at 160 .. 4768 */
    const float bad[3] = {NAN, INFINITY, -INFINITY};
    memcpy(data + 160, bad, 4);
    memcpy(data + 2000, bad + 1, 4);
    memcpy(data + 4764, bad + 2, 4);
    char *old = memmem(bytes, 8 + length, quoted("`crc32.fc1.weight`:`"), 20), from[32], to[32];
    CHECK(old != NULL);
    snprintf(from, sizeof from, "%.28s", old);
    snprintf(to, sizeof to, "`crc32.fc1.weight`:`%08lx", crc32_z(0, data + 160, 4608));
    uint8_t *forged = forge(bytes, n_bytes, from, to, &n_forged);
    check_rejected(forged, n_forged, "tensor 'fc1.weight' contains 3 non-finite values");
    free(forged);
    check_rejected(bytes, n_bytes, "damaged (tensor 'fc1.weight' crc ");

    char path[DT_CHECKPOINT_PATH_SIZE];
    for (int a = 0; a < 3; a++) { /* neither weights nor optimizer states are written */
        float *victim = sample.arenas[a] + sample.model.params[1].offset, kept = *victim;
        *victim = bad[a];
        CHECK_FAILS(
            dt_checkpoint_save(folder, 1, &sample.model, &sample.checkpoint, path), DT_NON_FINITE,
            "conv1.bias' has 1 non-finite values, no checkpoint saved (lower train.optimizer.lr");
        *victim = kept;
    }
    CHECK_INT(count_entries(), 0);
}

int main(void)
{
    folder_open();
    sample_open(4, 8, &sample);
    test_every_bit_and_every_length();
    test_forged_headers();
    test_forged_sizes();
    test_beginnings();
    test_non_finite_values();
    sample_close(&sample);
    folder_close();
    return 0;
}
