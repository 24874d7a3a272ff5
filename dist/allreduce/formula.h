/* What is known of an allreduce before it runs: its meaning, the compressions that go with it, and
 * its traffic, by the textbooks' formula and counted move by move. */
#ifndef DT_DIST_ALLREDUCE_FORMULA_H
#define DT_DIST_ALLREDUCE_FORMULA_H

#include "dist/allreduce/allreduce.h"
#include "dist/allreduce/executor.h"

const char *dt_allreduce_meaning(enum dt_allreduce_type type); /* in a few words */
bool dt_allreduce_is_for_gpus(enum dt_allreduce_type type);    /* and for them alone */

/* Compression applies to what the executor sends: sums of encoded numbers by any algorithm,
 * encodings that cannot be added by one that gathers. across: of struct dt_allreduce_spec; what
 * ranks of a host add in shared memory then is not encoded. auto becomes the best of these; all
 * others, and no compression, stay what they are. */
bool dt_allreduce_compresses(const struct dt_allreduce_entries *rows, enum dt_allreduce_type type,
                             int across, const struct dt_codec *codec);
enum dt_allreduce_type dt_allreduce_for_compression(enum dt_allreduce_type type,
                                                    const struct dt_codec *codec);

extern const struct dt_payload_ops dt_encoded_payload; /* compressed.c */

/* The traffic of one rank, counted move by move; with `host_roots`, each rank's host, only the
 * traffic to other hosts. moves: room for DT_MAX_MOVES(size). */
struct dt_traffic dt_algorithm_traffic(const struct dt_algorithm *algorithm, int rank, int size,
                                       size_t n_elems, const int *host_roots,
                                       struct dt_move *moves);

/* Into how many slices a range of so many elements is cut for its way between the hosts of a
 * communicator, on all ranks alike; the k-th rank of every host carries slice k, which begins at
 * dt_piece_begin. */
int dt_allreduce_n_slices(const struct dt_comm *comm, size_t n_elems);

/* The traffic of all ranks together for a sum of n_elems elements, by the algorithm's formula. */
struct dt_traffic dt_allreduce_formula(const struct dt_allreduce *allreduce, size_t n_elems);

#endif
