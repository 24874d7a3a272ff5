/* Runs an algorithm's moves over a wire, a little further at each call and without ever waiting, so
 * that gradients travel while the backward pass computes. Nothing is allocated after opening.
 *
 * What it sends may be encoded: sums in floats, each rank's own copy rounded as its message was, so
 * that all end with the same bits. A gathering algorithm's messages are then of whole ranges, which
 * everybody decodes and adds in one order; any other's are sums, which takes a codec whose numbers
 * can be (codec.h, `summable`). Error feedback is for what this rank brings along; what sums lose
 * on their way is lost.
 *
 * Several ranges of one array may be under way at once, each in a slot of its own, whose number is
 * the messages' tag: the same range in the same slot on every rank. A round ends when its messages
 * have come and gone; then what came is added. */
#ifndef DT_DIST_ALLREDUCE_EXECUTOR_H
#define DT_DIST_ALLREDUCE_EXECUTOR_H

#include "dist/allreduce/algorithm.h"
#include "dist/compression/compression.h"
#include "dist/ranks/wire.h"

/* The sum that is under way in a slot. */
struct dt_execution {
    size_t begin, end; /* of the array */
    bool active;
    int round, n_rounds;
    bool begun;                       /* its messages are on their way */
    int n_moves;                      /* of this round */
    struct dt_move *moves;            /* DT_MAX_MOVES(size) of them */
    struct dt_wire_request *requests; /* one for each */
};

struct dt_executor {
    const struct dt_algorithm *algorithm;
    struct dt_wire *wire; /* borrowed */
    float *data;          /* borrowed; the array that is summed in place */
    size_t n_elems;
    struct dt_encoding encoding;        /* of what is sent */
    struct dt_error_feedback *feedback; /* around it; NULL: the floats themselves are sent */
    /* As long as it: what has come, an encoding where its first float belongs. One for each rank if
     * the algorithm gathers, this rank's own the input; else, if it encodes, a second one for what
     * is sent. */
    float *incoming;
    int n_slots;
    struct dt_execution *slots;
};

enum dt_status dt_executor_open(const struct dt_algorithm *algorithm, struct dt_wire *wire,
                                float *data, size_t n_elems, int n_slots,
                                struct dt_encoding encoding, struct dt_executor *out);
/* When nothing is under way, or never to be moved on again. A zeroed one is fine. */
void dt_executor_close(struct dt_executor *executor);

/* The draw of a sum that begins (error_feedback.h). */
uint64_t dt_executor_draw(struct dt_executor *executor);

/* Begins to sum elements [begin, end), encoded by such a draw. The slot's
 * last sum must be done. */
enum dt_status dt_executor_start(struct dt_executor *executor, int slot, uint64_t draw,
                                 size_t begin, size_t end);
/* Moves everything that is under way on as far as it goes at once, the highest slot first, because
 * the next forward pass needs its weights first; says whether the slot's sum is done. */
enum dt_status dt_executor_progress(struct dt_executor *executor, int slot, bool *done);
/* As long as the array: where that which is to be added comes from a rank, and stays until
 * something else does. */
float *dt_executor_incoming(const struct dt_executor *executor, int rank);
/* The same, but at most to the end of the round under way, and says whether that ended: for who
 * looks at every round. */
enum dt_status dt_executor_step(struct dt_executor *executor, int slot, bool *ended);

#endif
