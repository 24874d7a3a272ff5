/* Which server holds which tensor: each tensor whole on one server, the largest first, each on the
 * one that holds least so far, so that servers hold about as much. (Graham 1969's "largest
 * processing time first".) */
#ifndef DT_DIST_STRATEGY_PIPELINE_PLACEMENT_H
#define DT_DIST_STRATEGY_PIPELINE_PLACEMENT_H

#include "model/block.h"

/* Neighbours in the arena that one server holds, of one block: what travels as one message. */
struct dt_piece {
    size_t begin, end; /* of the arena, in floats */
    int server;
};

struct dt_placement {
    int server_of[DT_MAX_PARAMS]; /* of the model's parameters */
    int n_pieces;
    struct dt_piece pieces[DT_MAX_PARAMS]; /* front to back */
};

void dt_placement_make(const struct dt_model *model, int n_servers, struct dt_placement *out);

#endif
