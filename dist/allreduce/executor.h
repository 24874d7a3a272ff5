/* Runs an algorithm's moves over a wire, a little further at each call and without ever waiting, so
 * that gradients travel while the backward pass computes. Nothing is allocated after opening.
 *
 * Several ranges of one array may be under way at once, each in a slot of its own, whose number is
 * the messages' tag: the same range in the same slot on every rank. A round ends when its messages
 * have come and gone; then what came is added. */
#ifndef DT_DIST_ALLREDUCE_EXECUTOR_H
#define DT_DIST_ALLREDUCE_EXECUTOR_H

#include "dist/allreduce/algorithm.h"
#include "dist/ranks/wire.h"

/* The sum that is under way in a slot. */
struct dt_execution {
    size_t begin, end; /* of the array */
    int round, n_rounds;
    bool begun;            /* its messages are on their way */
    int n_moves;           /* of this round */
    struct dt_move *moves; /* DT_MAX_MOVES(size) of them; elements of the array, not of the range */
    struct dt_wire_request *requests; /* one for each */
};

struct dt_executor;
struct dt_codec;
struct dt_error_feedback;

/* How elements of the array become messages. Slots that may be NULL do nothing then. */
struct dt_payload_ops {
    int n_buffers; /* as long as the array, for an algorithm that does not gather */
    enum dt_status (*open)(struct dt_executor *executor); /* may be NULL */
    uint64_t (*draw)(struct dt_executor *executor);       /* dt_executor_draw; may be NULL */
    /* A sum of elements [begin, end) starts. */
    void (*start)(struct dt_executor *executor, uint64_t draw, size_t begin, size_t end);
    /* The memory that move `index` of a round sends from or receives into, and the bytes of its
     * message. */
    void *(*message)(struct dt_executor *executor, const struct dt_execution *x, int index,
                     size_t *n_bytes);
    /* The round ends: adds what a move has received, or stores it. */
    void (*take)(struct dt_executor *executor, const struct dt_move *move);
    void (*end)(struct dt_executor *executor, size_t begin, size_t end); /* of a sum; may be NULL */
    void (*close)(struct dt_executor *executor);                         /* may be NULL */
};

struct dt_payload {
    const struct dt_payload_ops *ops;
    const struct dt_codec *codec; /* borrowed */
    int rank;                     /* in the world, from which draws differ */
};

struct dt_executor {
    const struct dt_algorithm *algorithm;
    struct dt_wire *wire; /* borrowed */
    float *data;          /* borrowed; the array that is summed in place */
    size_t n_elems;
    struct dt_payload payload;
    struct dt_error_feedback *feedback; /* the payload's, or NULL */
    /* Receive buffers as long as the array, a message at the offset of its first element: one for
     * each rank if the algorithm gathers, this rank's own with its input; else the payload's. */
    float *incoming;
    int n_slots;
    struct dt_execution *slots;
};

/* payload: copied; NULL: floats travel as they are. */
enum dt_status dt_executor_open(const struct dt_algorithm *algorithm, struct dt_wire *wire,
                                float *data, size_t n_elems, int n_slots,
                                const struct dt_payload *payload, struct dt_executor *out);
/* When nothing is under way, or what is will never go on. A zeroed one is fine. */
void dt_executor_close(struct dt_executor *executor);

/* Every sum takes one when it begins, in the same order on all ranks: stochastic rounding is a
 * function of it. */
uint64_t dt_executor_draw(struct dt_executor *executor);

/* Begins to sum elements [begin, end). The slot's last sum must be done. */
enum dt_status dt_executor_start(struct dt_executor *executor, int slot, uint64_t draw,
                                 size_t begin, size_t end);
/* Advances every sum under way as far as possible, the highest slot first, because the next forward
 * pass needs its weights first. done: the slot's sum is. */
enum dt_status dt_executor_progress(struct dt_executor *executor, int slot, bool *done);
/* The receive buffer for `rank`; a message stays there until the next one. */
float *dt_executor_incoming(const struct dt_executor *executor, int rank);
/* Advances one sum to the end of its round at most, for callers that inspect each round. */
enum dt_status dt_executor_step(struct dt_executor *executor, int slot, bool *ended);

#endif
