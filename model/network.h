/* A model opened on a backend: weights, gradients, activations, and the passes over them. Images
 * are larger than the caches: the spatial blocks process the batch in chunks, each chunk through
 * all of them, and the other blocks process the whole batch at once. */
#ifndef DT_MODEL_NETWORK_H
#define DT_MODEL_NETWORK_H

#include "model/backend.h"

/* Weights and gradients, on the device, arena_elems floats each. */
struct dt_network_memory {
    float *params, *grads;
};

struct dt_network;
/* Called when the gradients of arena range [begin, end) are final, or enqueued. Ranges come front
 * to back, without gaps. */
typedef enum dt_status (*dt_grad_ready_fn)(void *context, size_t begin, size_t end);

struct dt_operation_memory;
/* Blocks with an operation of their own, for networks that are no plain chain
 * (model/layers/layers.h). */
struct dt_block_operations {
    enum dt_status (*open)(struct dt_network *network);
    void (*close)(struct dt_network *network); /* half-open is fine */
    enum dt_status (*forward)(struct dt_network *network, int block, const struct dt_pass *pass);
    enum dt_status (*backward)(struct dt_network *network, int block, const struct dt_pass *pass);
    /* Adds network->part to the gradient of an output. */
    enum dt_status (*add_part)(struct dt_network *network, int output, const struct dt_pass *pass);
};

#define DT_OVER_OUTPUT (-1)
/* Where gradients of outputs lie: they share a few arrays, one after another. */
struct dt_network_layout {
    int n_arrays;
    struct {
        size_t n_elems; /* of a sample */
        bool of_chunk;
        int busy_until; /* the block whose backward pass reads it */
    } arrays[DT_MAX_LAYERS];
    int array_of[DT_MAX_LAYERS];    /* or DT_OVER_OUTPUT: the gradient overwrites the output */
    int last_reader[DT_MAX_LAYERS]; /* the block that reads the output last; n_blocks: the loss */
    size_t part;                    /* floats of a sample: dt_network.part */
};
void dt_network_lay_out(const struct dt_model *model, const struct dt_network_plan *plan,
                        struct dt_network_layout *out);

/* Floats of each sample of the batch, or of one chunk at a time: then the step is 0. */
struct dt_network_floats {
    float *floats; /* device */
    size_t step;   /* floats from a sample to the next */
};

struct dt_network {
    const struct dt_model *model; /* borrowed; must outlive the network */
    struct dt_backend *backend;   /* borrowed */
    int capacity;                 /* largest batch */
    float *params, *grads;        /* struct dt_network_memory */
    /* private */
    struct dt_network_memory own; /* of dt_network_open_alone */
    struct dt_network_plan plan;  /* the backend's */
    struct dt_block_state *states[DT_MAX_LAYERS];
    struct dt_network_floats outputs[DT_MAX_LAYERS + 1]; /* [0]: the input batch; [i + 1]: of block
                                                            i */
    /* Gradients of the blocks' outputs. A pipeline brings its own for the ends of its range. */
    struct dt_network_floats deltas[DT_MAX_LAYERS];
    struct dt_network_layout layout;
    float *arrays[DT_MAX_LAYERS]; /* of the layout */
    float *part;                  /* of a gradient that has another reader's part already */
    bool wanted[DT_MAX_LAYERS];   /* the block or one before it on the way is trained */
    struct dt_operation_memory *operations; /* of dt_block_operations */
};

/* `what` and `of` name the memory in the error text: "the output of ", "conv1". */
enum dt_status dt_floats_alloc(struct dt_backend *backend, const char *what, const char *of,
                               size_t n_elems, float **out);
static inline void dt_floats_free(struct dt_backend *backend, float *floats) /* NULL is fine */
{
    backend->ops->free(backend, floats);
}

/* memory: borrowed. by_stages: for passes over a few blocks and a part of the batch at a time, in
 * any order, as a pipeline's; the network then keeps each block's output for the whole batch, and
 * has no chunks. A failed open owes nothing. */
enum dt_status dt_network_open(const struct dt_model *model, struct dt_backend *backend,
                               int capacity, const struct dt_network_memory *memory, bool by_stages,
                               struct dt_network **out);
void dt_network_close(struct dt_network *network); /* NULL is fine */

/* Reads the input batch from the bound samples. batch->n <= capacity. */
enum dt_status dt_network_gather(struct dt_network *network, struct dt_bound_samples *samples,
                                 const struct dt_batch *batch);

/* Computes the logits of the gathered batch. */
enum dt_status dt_network_forward(struct dt_network *network, const struct dt_pass *pass);

/* The loss head: adds to the backend's metrics; in training also starts the backward pass with
 * dlogits. */
enum dt_status dt_network_loss(struct dt_network *network, struct dt_bound_samples *samples,
                               const struct dt_pass *pass);

/* Computes all gradients, last block first; `on_grad_ready` may be NULL. */
enum dt_status dt_network_backward(struct dt_network *network, const struct dt_pass *pass,
                                   dt_grad_ready_fn on_grad_ready, void *context);

float *dt_network_activation(struct dt_network *network, int block,
                             int first); /* device; input of a block, from sample `first` on */
float *dt_network_delta(struct dt_network *network, int block,
                        int first); /* device; gradient of a block's output */

/* Logits of the last forward pass, (n, n_outputs) in device memory, and their gradient, with which
 * the backward pass starts; a test may write its own. */
static inline float *dt_network_logits(struct dt_network *network)
{
    return dt_network_activation(network, network->model->n_blocks, 0);
}

static inline float *dt_network_dlogits(struct dt_network *network)
{
    return dt_network_delta(network, network->model->n_blocks - 1, 0);
}

/* Bytes that opening needs on the device at most: parameters, gradients, optimizer state and
 * activations. Chunks need less. */
size_t dt_model_n_bytes(const struct dt_model *model, int capacity, int n_optimizer_states);

/* Blocks [begin, end) over the pass's samples, last first in the backward pass. */
enum dt_status dt_network_forward_blocks(struct dt_network *network, int begin, int end,
                                         enum dt_span_kind kind, const struct dt_pass *pass);
enum dt_status dt_network_backward_blocks(struct dt_network *network, int begin, int end,
                                          const struct dt_pass *pass,
                                          dt_grad_ready_fn on_grad_ready, void *context);

/* Where a block writes the gradient of its input i, from sample `first` on; NULL: nothing before
 * the block needs it. `adds` becomes true if another reader's part is there already. */
float *dt_network_dx(struct dt_network *network, int block, int i, int first, bool *adds);

#endif
