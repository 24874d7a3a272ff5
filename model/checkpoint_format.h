/* The part of the format that the writer and the reader of checkpoints share: names of tensors, and
 * the place and range of CRCs. */
#ifndef DT_MODEL_CHECKPOINT_FORMAT_H
#define DT_MODEL_CHECKPOINT_FORMAT_H

#include "model/block.h"
#include "model/safetensors.h"

#define DT_CHECKPOINT_FORMAT "dtrain" /* "format" in the metadata */
#define DT_CHECKPOINT_MAX_BYTES ((size_t)4 << 30)
#define DT_CRC_DIGITS 8
#define DT_CRC_KEY_SIZE (sizeof "crc32." + sizeof((struct dt_tensor *)0)->name)

/* The tensor that holds a parameter's weights (state -1, "conv1.weight") or one of its optimizer
 * states ("optimizer.0.conv1.weight"). `arena` has the model's arena layout; NULL: only name and
 * shape are needed. */
struct dt_tensor dt_checkpoint_tensor(const struct dt_param *param, int state, const float *arena);

/* The tensor of compression residuals: n_workers rows of the model's arena. */
#define DT_RESIDUALS_NAME "compression.residuals"
struct dt_tensor dt_residuals_tensor(const struct dt_model *model, uint64_t n_workers,
                                     const float *residuals);

uint32_t dt_crc(const void *bytes, size_t n_bytes); /* zlib's crc32 */
void dt_crc_print(uint32_t crc, char text[DT_CRC_DIGITS + 1]);
void dt_crc_key(const struct dt_tensor *tensor,
                char key[DT_CRC_KEY_SIZE]); /* "crc32.conv1.weight", in the metadata */

/* The digits of the header's own CRC inside the header, or NULL. */
const char *dt_header_crc_find(const char *header, size_t n_header);

/* The CRC of the first n_bytes of a file, length field and padding included, as if the digits were
 * zeros. */
uint32_t dt_header_crc(const char *start, size_t n_bytes, const char *digits);

#endif
