/* The strategies; a program passes them as rows with the other rows of dist/ that it links:
 *
 *   pipeline/pipeline.c         each rank has some of the blocks: `pipeline`
 *   deterministic.c             adds gradients as integers: the same bits at any number of ranks
 *   alone.c                     each rank steps with its own gradients (`distributed.average` off)
 *   priority.c                  mirrored weights in the order "priority"
 *   allreduce.c                 averages gradients over all ranks; every rank takes the same step:
 *                               mirrored weights
 *   servers/parameter_server.c  servers hold the weights: `parameter_server`, `central`
 *
 * all_entries.c has the rows of a program that links all of them. */
#ifndef DT_DIST_STRATEGY_STRATEGIES_H
#define DT_DIST_STRATEGY_STRATEGIES_H

#include "dist/strategy/strategy.h"

struct dt_mirrored;
struct dt_summary_entry;
struct dt_codec_ops;
struct dt_roles;

struct dt_strategy_entry {
    bool (*serves)(const struct dt_dist_spec *dist);
    /* dt_strategy_check. NULL: it can always serve. */
    enum dt_status (*check)(const struct dt_strategy_spec *spec, const char **key);
    /* The strategy steps parts of the weights by themselves, so that no rank has the norm of the
     * whole gradient: how the error ends if the update needs it. NULL: every update will do. */
    const char *needs_elementwise;
    /* Sets n_workers, n_servers, first_server and whole. NULL: every rank is a worker. */
    void (*roles)(const struct dt_dist_spec *dist, int size, struct dt_roles *out);
    enum dt_status (*open)(const struct dt_strategy_spec *spec, struct dt_strategy **out);
};

/* Compression, for a program that links it (compression.h). */
struct dt_compression_ops {
    /* Checks that the allreduce can add encoded gradients: dt_strategy_check of mirrored weights.
     */
    enum dt_status (*check)(const struct dt_strategy_spec *spec, const char **key);
    /* The caller frees its codec. Every rank calls it; `all`: every rank has one. */
    enum dt_status (*open)(const struct dt_strategy_spec *spec, const struct dt_codec **out,
                           bool *all);
    /* Zeros between the parameters in elements [begin, end) of an arena. */
    enum dt_status (*clear_gaps)(const struct dt_strategy_spec *spec, float *arena, size_t begin,
                                 size_t end);
};

/* The rows that a program links. */
struct dt_dist_entries {
    const struct dt_strategy_entry *const
        *strategies; /* NULL ends them; the first that serves opens */
    struct dt_allreduce_entries allreduce;
    const struct dt_codec_ops *const *codecs;     /* of dt_codec_open */
    const struct dt_compression_ops *compression; /* NULL: it sends floats as they are */
    const struct dt_summary_entry *const *facts;  /* NULL: it reports nothing; NULL ends them */
    /* dt_host_step_open (mirrored.h); NULL: every rank takes its own steps. Every rank calls it,
     * with its allreduce open. */
    enum dt_status (*host_step_open)(struct dt_mirrored *mirrored);
};

extern const struct dt_dist_entries dt_all_entries;

/* The first of the program's rows that serves; NULL: none does. */
const struct dt_strategy_entry *dt_strategy_entry_of(const struct dt_dist_spec *dist);

/* Local. DT_CONFIG: the strategy cannot serve. A spec without a backend is a configuration alone,
 * of which *key becomes the key that is wrong. dt_strategy_open has checked the rest. */
enum dt_status dt_strategy_check(const struct dt_strategy_spec *spec, const char **key);

/* Every rank calls it. The weights are zeros. A failed open owes nothing. DT_STALLED, or what this
 * rank alone may have: the caller has ranks agree (dt_world_agree); *out NULL with DT_OK: another
 * rank has failed. */
enum dt_status dt_strategy_open(const struct dt_strategy_spec *spec, struct dt_strategy **out);

#endif
