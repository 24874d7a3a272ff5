/* Checkpoints: one self-contained file that other tools can read. The format is safetensors
 * (huggingface.co/docs/safetensors): u64 little-endian header length, JSON header, raw
 * little-endian floats. Tensors have PyTorch's names, shapes and order ("conv1.weight" K C R S),
 * and so have optimizer state ("optimizer.0.conv1.weight"), running statistics ("bn1.running_mean")
 * and, with train.ema, the weights' average ("ema.conv1.weight"). With compressed gradients,
 * "compression.residuals" holds each worker's unsent remainder, one row per worker, in the order of
 * the arena. `__metadata__` holds strings only: counters in decimal, doubles as %a, the resolved
 * config, the names of the classes, a CRC32 per tensor and one of the header (zlib's crc32), so
 * that every flipped bit is found. Files are `step-000000000469.safetensors`, and
 * `best.safetensors`. */
#ifndef DT_CHECKPOINT_CHECKPOINT_H
#define DT_CHECKPOINT_CHECKPOINT_H

#include <stdbool.h>

#include "base/status.h"
#include "checkpoint/run_state.h"
#include "checkpoint/safetensors.h"
#include "model/block.h"

#define DT_CHECKPOINT_VERSION 1
#define DT_CHECKPOINT_NAME_SIZE 48
#define DT_CHECKPOINT_PATH_SIZE 1024

/* Everything in host memory. `arena` and `optimizer[i]` have the model's arena layout, but in the
 * file's order (dt_model_reorder); gaps are neither written nor read. */
struct dt_checkpoint {
    struct dt_checkpoint_state state;
    const char *config;      /* resolved config, JSON text */
    const char *class_names; /* of the training data (data/dataset.h); NULL: none */
    const float *arena;
    int n_optimizer_states;
    const float *optimizer[2];
    const float *ema;       /* the weights' average, likewise; NULL: none */
    const float *buffers;   /* model.buffer_elems, in the file's order; NULL only if that is 0 */
    const float *residuals; /* (state.world_size, arena_elems): each worker's gradient residuals, in
                               the arena's own order; NULL: none */
};

/* Writes and reads back `dir/step-....safetensors`, then removes all but the newest `keep` (>= 1)
 * of the files up to this step; files of later steps, left by a run that was resumed from an
 * earlier one, stay. Temporary files of killed writers are removed first. Non-finite weights or
 * optimizer states are DT_NON_FINITE, and not written. DT_IO: nothing is lost: the earlier files
 * are still there. */
enum dt_status dt_checkpoint_save(const char *dir, int keep, const struct dt_model *model,
                                  const struct dt_checkpoint *checkpoint,
                                  char path[DT_CHECKPOINT_PATH_SIZE]);

/* The same as `dir/best.safetensors`; removes no other file. */
enum dt_status dt_checkpoint_save_best(const char *dir, const struct dt_model *model,
                                       const struct dt_checkpoint *checkpoint,
                                       char path[DT_CHECKPOINT_PATH_SIZE]);

/* A checkpoint file in memory, fully checked: structure, names, consistent shapes, every CRC, every
 * value finite. */
struct dt_checkpoint_file {
    struct dt_checkpoint_state state;
    const char *config;      /* as in struct dt_checkpoint, likewise */
    const char *class_names; /* any text: at most DT_CLASS_NAMES_MOST bytes */
    char prefix[64];         /* of foreign weights: what dt_weights_name left out of names, or "" */
    void *content;           /* owned; private */
};

/* DT_NO_INPUT, DT_NO_PERMISSION, or DT_BAD_DATA naming the damage. */
enum dt_status dt_checkpoint_open(const char *path, struct dt_checkpoint_file *out);
void dt_checkpoint_close(struct dt_checkpoint_file *file);
/* The same from memory, which stays the caller's: the fuzzer calls it, as dt_weights_parse
 * below. */
enum dt_status dt_checkpoint_parse(const char *name, const uint8_t *bytes, size_t n_bytes,
                                   struct dt_checkpoint_file *out);

/* The same for weights saved by other programs, such as PyTorch: a safetensors file without state,
 * configuration (NULL) and CRCs. A dtrain checkpoint is accepted too, and checked as one. */
enum dt_status dt_weights_open(const char *path, struct dt_checkpoint_file *out);
enum dt_status dt_weights_parse(const char *name, const uint8_t *bytes, size_t n_bytes,
                                struct dt_checkpoint_file *out);

/* Weights saved by other programs, of whose tensors none has a name of the model's: leaves out of
 * the names what stands before these, as "module." of PyTorch's wrappers. */
void dt_weights_name(struct dt_checkpoint_file *file, const struct dt_model *model);

/* The same; then makes weights of another model fit: tensors of the model's names and shapes stay,
 * its others are those in `arena` and `buffers` (borrowed, in the file's order), and all else is
 * dropped. `text`: which, or "". DT_CONFIG, as dt_checkpoint_check: nothing fits. */
#define DT_FIT_TEXT_SIZE 640
enum dt_status dt_weights_fit(struct dt_checkpoint_file *file, const struct dt_model *model,
                              const float *arena, const float *buffers,
                              char text[DT_FIT_TEXT_SIZE]);

/* Checks that the file has the model's tensors and n_optimizer_states of each, and nothing else but
 * their average and residuals; with 0 the file's states are ignored. DT_CONFIG names the missing or
 * unknown tensors, or the first of another shape. */
enum dt_status dt_checkpoint_check(const struct dt_checkpoint_file *file,
                                   const struct dt_model *model, int n_optimizer_states);

/* Checks the same, then copies the tensors into arenas, gaps untouched, in the file's order
 * (dt_model_reorder). optimizer[i] may be NULL. */
enum dt_status dt_checkpoint_get(const struct dt_checkpoint_file *file,
                                 const struct dt_model *model, float *arena, int n_optimizer_states,
                                 float *const *optimizer);

/* For a checked file: whether it has the weights' average, and that in the file's order. */
bool dt_checkpoint_has_ema(const struct dt_checkpoint_file *file, const struct dt_model *model);
void dt_checkpoint_get_ema(const struct dt_checkpoint_file *file, const struct dt_model *model,
                           float *arena);

/* Copies the running statistics of a checked file, in its order. */
void dt_checkpoint_get_buffers(const struct dt_checkpoint_file *file, const struct dt_model *model,
                               float *buffers);

/* For a checked file. The second adds the file's state.world_size rows to `residuals`, (n_workers,
 * arena_elems) zeros: row n_workers goes to worker 0, and so on. */
bool dt_checkpoint_has_residuals(const struct dt_checkpoint_file *file);
void dt_checkpoint_get_residuals(const struct dt_checkpoint_file *file, size_t n_workers,
                                 float *residuals);

/* Further checks of a checkpoint, and a callback for damaged ones. */
struct dt_checkpoint_judge {
    /* DT_BAD_DATA: damaged; NULL: no further check. */
    enum dt_status (*check)(void *context, const char *path, const struct dt_checkpoint_file *file);
    void (*on_damaged)(void *context, const char *text); /* text: its error text */
    void *context;
};

/* Opens the newest checkpoint of `dir` that passes every check; `path` is "" if there are none, or
 * no such folder (which is DT_OK: a fresh start). Each damaged one is reported to on_damaged and
 * skipped. DT_BAD_DATA: all are damaged; DT_IO: some cannot be read. */
enum dt_status dt_checkpoint_newest(const char *dir, const struct dt_checkpoint_judge *judge,
                                    char path[DT_CHECKPOINT_PATH_SIZE],
                                    struct dt_checkpoint_file *out);

/* Reorders weights, or an optimizer's state, in host memory: to PyTorch's order in every tensor (as
 * in files), or back. DT_NO_MEMORY. */
enum dt_status dt_model_reorder(const struct dt_model *model, bool to_file, float *arena);
enum dt_status dt_buffers_reorder(const struct dt_model *model, bool to_file, float *buffers);

/* ---- the folder of a run's checkpoints: lists, names and removes files, and reads none */

#define DT_CHECKPOINT_BEST "best.safetensors"

/* "step-000000000469.safetensors" */
void dt_checkpoint_name(uint64_t step, char name[DT_CHECKPOINT_NAME_SIZE]);
/* The same in `dir`. DT_CANT_CREATE: too long. */
enum dt_status dt_checkpoint_path(const char *dir, uint64_t step,
                                  char path[DT_CHECKPOINT_PATH_SIZE]);
enum dt_status dt_checkpoint_best_path(const char *dir, char path[DT_CHECKPOINT_PATH_SIZE]);

/* Lists the steps of all checkpoint files in `dir`, newest first; *steps from malloc, or NULL if
 * there are none or no such folder. DT_NO_PERMISSION, DT_IO, DT_NO_MEMORY. */
enum dt_status dt_checkpoint_list(const char *dir, uint64_t **steps, size_t *n_steps);

/* Removes checkpoints so that only the last `keep` (>= 1) of those up to `newest` are left. Files
 * of later steps, left by a run that was resumed from an earlier one, are not counted and stay. A
 * file that cannot be removed is no error. */
enum dt_status dt_checkpoint_prune(const char *dir, uint64_t newest, int keep);

/* Removes the temporary files of checkpoints whose writers were killed. */
void dt_checkpoint_sweep(const char *dir);

/* ---- shared by the writer and the reader: names of tensors, and the place and range of CRCs */

#define DT_CHECKPOINT_FORMAT "dtrain" /* "format" in the metadata */
#define DT_CHECKPOINT_MAX_BYTES ((size_t)4 << 30)
#define DT_CRC_DIGITS 8
#define DT_CRC_KEY_SIZE (sizeof "crc32." + sizeof((struct dt_tensor *)0)->name)

/* The tensor that holds a parameter's weights (state -1, "conv1.weight"), their average ("ema.
 * conv1.weight") or one of its optimizer states ("optimizer.0.conv1.weight"). `arena` has the
 * model's arena layout; NULL: only name and shape are needed. */
#define DT_EMA_STATE (-2)
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

/* Loads the running statistics of a checked file into the network. DT_NO_MEMORY. */
struct dt_network;
enum dt_status dt_buffers_load(struct dt_network *network, const struct dt_checkpoint_file *file);

#endif
