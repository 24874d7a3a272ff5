/* Shared by parameter_server.c (the workers' side, and servers that wait for all workers) and
 * async_server.c (servers that do not wait). The strategy itself: strategy.h. */
#ifndef DT_DIST_STRATEGY_SERVERS_PARAMETER_SERVER_H
#define DT_DIST_STRATEGY_SERVERS_PARAMETER_SERVER_H

#include "base/arithmetic.h"
#include "dist/compression/error_feedback.h"
#include "dist/strategy/micro_batches.h"
#include "dist/strategy/pipeline/placement.h"
#include "dist/strategy/roles.h"
#include "dist/strategy/summary/summary.h"

/* A worker's link to a server that does not wait. */
enum dt_link_state { DT_LINK_IDLE, DT_LINK_RECEIVING, DT_LINK_HELD, DT_LINK_SENDING };

/* Messages about one piece between a server and one worker. */
struct dt_server_link {
    struct dt_wire_request gradients, weights;
    /* async, the server's end: */
    enum dt_link_state state;
    uint64_t n_pushed; /* of the group of steps */
    uint64_t pulled;   /* the version that the worker has */
};

struct dt_parameter_server {
    struct dt_strategy base;
    struct dt_roles roles;
    struct dt_placement placement;
    struct dt_wire *wire; /* NULL: there is one rank */
    struct dt_wire *
        shares_wire; /* the same for what servers give out outside of steps, which does not count */
    struct dt_server_link *links;   /* (n_pieces, n_workers); a worker uses its own column alone */
    struct dt_wire_request *shares; /* (n_pieces, size): on shares_wire */
    struct dt_error_feedback feedback; /* worker: around the codec of what it sends */
    size_t width; /* floats of an element of a gradient on its way: 1, or its digits */
    struct dt_micro_batches leaves; /* worker, deterministic */
    float *digits;   /* worker, deterministic: (width * arena); NULL: gradients are floats */
    float *encoded;  /* worker: (arena), as it sends it; NULL: gradients are sent as they are */
    float *incoming; /* server: (n_workers, width * arena), gradients of the others, encoded, each
                        piece in its place */
    float *sums;     /* server: (width * arena); of a step that is taken, the gradients' sums where
                        their piece begins */
    /* of the step under way */
    size_t n_ready; /* floats whose gradients are final */
    bool stepped[DT_MAX_PARAMS];
    int n_pushed;          /* pieces that this worker has sent */
    enum dt_status failed; /* what a poll ran into; the wait returns it */
    struct dt_strategy_step *step;
    /* async, a server: */
    float *outgoing; /* (n_workers, arena): weights on their way, while those here change */
    uint64_t version[DT_MAX_PARAMS]; /* of each piece: steps that it has taken */
    uint64_t n_expected, n_begun;    /* steps of the group, of each worker */
    struct dt_staleness staleness;
};

enum { DT_TAG_GRADIENTS, DT_TAG_WEIGHTS, DT_TAG_SHARE, DT_N_TAGS };

static inline struct dt_parameter_server *dt_server_of(struct dt_strategy *strategy)
{
    return (struct dt_parameter_server *)strategy;
}

static inline int dt_server_tag(int piece, int kind)
{
    DT_ASSERT(piece >= 0 && kind >= 0 && kind < DT_N_TAGS);
    return piece * DT_N_TAGS + kind;
}

/* The rank of the server that has the piece. */
static inline int dt_server_holder(const struct dt_parameter_server *self, int piece)
{
    DT_ASSERT(piece >= 0 && piece < self->placement.n_pieces);
    return self->roles.first_server + self->placement.pieces[piece].server;
}

/* True if this rank is the piece's server. */
static inline bool dt_server_holds(const struct dt_parameter_server *self, int piece)
{
    return self->roles.server == self->placement.pieces[piece].server;
}

static inline struct dt_server_link *dt_server_link_of(const struct dt_parameter_server *self,
                                                       int piece, int worker)
{
    DT_ASSERT(piece < self->placement.n_pieces && worker < self->roles.n_workers);
    return &self->links[piece * self->roles.n_workers + worker];
}

static inline size_t dt_server_piece_bytes(const struct dt_piece *piece)
{
    return (piece->end - piece->begin) * sizeof(float);
}

static inline size_t dt_server_width(const struct dt_dist_spec *dist, int n_workers)
{
    return dist->deterministic ? (size_t)dt_fixed_n_digits(n_workers) : 1;
}

/* The floats of a worker's gradients on their way: digits come in whole groups. */
static inline size_t dt_server_n_floats(size_t width, const struct dt_piece *piece)
{
    const size_t n = piece->end - piece->begin;
    return width == 1 ? n : width * dt_round_up(n, DT_FIXED_GROUP);
}

/* Their bytes. */
static inline size_t dt_server_push_bytes(const struct dt_codec *codec, size_t width,
                                          const struct dt_piece *piece)
{
    return dt_codec_bytes(codec, piece->begin, dt_server_n_floats(width, piece));
}

/* A server that steps with each worker's gradients by themselves, as they come. The next n_steps
 * steps follow without an agreement of all ranks between them; workers have the weights of now if
 * `fresh`. */
void dt_async_expect(struct dt_parameter_server *self, int n_steps);
void dt_async_all_have_pulled(
    struct dt_parameter_server *self); /* all workers have the weights of now */
/* Moves a piece on. *done: all workers have pushed it in the steps begun so far, and have their
 * answers. */
enum dt_status dt_async_serve(struct dt_parameter_server *self, int piece, bool *done);

#endif
