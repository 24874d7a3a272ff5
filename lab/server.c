/* Parameter servers compared with an allreduce, on four ranks: the traffic of the busiest rank,
 * which weights are equal, and how stale gradients are where no worker waits. */
#include <math.h>

#include "cli/cli_text.h"
#include "cli/result.h"
#include "cli/sinks/fields.h"
#include "cli/terminal.h"
#include "lab/distributed.h"
#include "lab/golden.h"

#define RATE 0.01
#define MAX_STALENESS 4

enum { RING, MASTER, CENTRAL, SYNC, ASYNC, N_WAYS };

static const struct dt_optimizer_spec adam = {
    .type = DT_OPTIMIZER_ADAM, .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8};

static const struct {
    const char *name, *meaning;
    const char *formula; /* for the floats that the busiest rank sends per step */
    struct dt_dist_spec dist;
    const char *strategy; /* NULL: allreduce */
} ways[N_WAYS] = {
    [RING] = {"ring",
              "an allreduce in which all ranks send as much",
              "2 (n - 1) / n N",
              {.allreduce = DT_ALLREDUCE_RING}},
    [MASTER] = {"master and workers",
                "an allreduce by rank 0 alone",
                "(n - 1) N",
                {.allreduce = DT_ALLREDUCE_MASTER_WORKER}},
    [CENTRAL] = {"central", "rank 0 has the weights, and works too", "(n - 1) N",
                 .strategy = "central"},
    [SYNC] = {"server, sync",
              "rank 3 has the weights and waits for all",
              "(n - 1) N",
              {.servers = 1},
              "parameter_server"},
    [ASYNC] = {"server, async",
               "rank 3 applies each worker's gradient on arrival",
               "(n - 1) N",
               {.servers = 1, .mode = DT_SERVER_MODE_ASYNC, .max_staleness = MAX_STALENESS},
               "parameter_server"},
};

struct server_lesson {
    struct dt_lab_outcome outcomes[N_WAYS];
    struct dt_golden golden;
};

/* ---- the runs */

static enum dt_status run(struct dt_world *world, struct server_lesson *l)
{
    struct dt_lab_images images;
    enum dt_status s = dt_world_agree(world, dt_lab_images_open(DT_LAB_N_TEST, 1, &images));
    for (int way = 0; s == DT_OK && way < N_WAYS; way++) {
        const struct dt_lab_distributed training = {.dist = ways[way].dist,
                                                    .strategy = ways[way].strategy,
                                                    .optimizer = adam,
                                                    .rate = RATE};
        dt_lab_live(world, "%s, training %d of %d", ways[way].name, way + 1, N_WAYS);
        s = dt_lab_distributed_run(world, &images, &training, &l->outcomes[way]);
    }
    dt_lab_live(world, NULL);
    dt_lab_images_close(&images);
    return s;
}

/* ---- expected results */

/* The bytes per step of the rank that sends most. */
static double busiest(const struct dt_lab_outcome *outcome)
{
    double most = 0;
    for (int rank = 0; rank < DT_LAB_RANKS; rank++) {
        most = fmax(most, outcome->sent[rank]);
    }
    return most;
}

static void check(struct server_lesson *l)
{
    const int n = DT_LAB_RANKS, n_pushers = n - 1;
    const struct dt_lab_outcome *o = l->outcomes;
    for (int i = 0; i < N_WAYS; i++) {
        const double expected =
            (i == RING ? 2.0 * (n - 1) / n : n - 1) * (double)o[i].n_gradients * sizeof(float);
        /* an allreduce's buckets include the gaps between tensors, a few floats */
        dt_golden_number(&l->golden, busiest(&o[i]), expected, 0.001 * expected,
                         "%s: bytes that the busiest rank sends a step", ways[i].name);
        dt_golden_figure(&l->golden, o[i].accuracy > 0.7, "%s learns", ways[i].name);
    }
    dt_golden_figure(&l->golden, o[CENTRAL].hashes[0] == o[MASTER].hashes[0],
                     "central has the weights of master and workers, to the bit");
    dt_golden_number(&l->golden, dt_staleness_n_bins(&o[SYNC].staleness), 0, 0,
                     "sync: gradients that are stale");
    dt_golden_figure(&l->golden,
                     dt_staleness_n_bins(&o[ASYNC].staleness) - 1 <=
                         (n_pushers - 1) * (2 * MAX_STALENESS + 1),
                     "async: no gradient is staler than two workers can make it");
}

/* ---- the document */

static void add_ways(struct dt_doc *doc, const struct server_lesson *l)
{
    static const double x[DT_LAB_RANKS] = {0, 1, 2, 3};
    struct dt_part *facts = dt_doc_figures(doc, "Five ways to train on four ranks"),
                   *chart = dt_doc_series(doc, "What each rank sends in a step", "rank", "bytes"),
                   *table = dt_doc_table(doc, "The busiest rank",
                                         "way|sends|bytes a step::B|workers::0|accuracy:%:1");
    dt_doc_ticks(chart, DT_LAB_RANKS, (const char *const[]){"0", "1", "2", "3"});
    for (int i = 0; i < N_WAYS; i++) {
        const struct dt_lab_outcome *o = &l->outcomes[i];
        dt_doc_fact(facts, ways[i].name, "%s", ways[i].meaning);
        dt_doc_plot(chart, ways[i].name, DT_BARS, DT_LAB_RANKS, x, o->sent);
        dt_doc_row(table, dt_t(ways[i].name), dt_t(ways[i].formula), dt_n(busiest(o)),
                   dt_n(o->n_workers), dt_n(100 * o->accuracy));
    }
    dt_doc_caption(table, "N: %s gradients; n: %d ranks; %d epochs of batches of %d.",
                   dt_count_text((double)l->outcomes[RING].n_gradients, (char[32]){""}, 32),
                   DT_LAB_RANKS, DT_LAB_N_EPOCHS, DT_LAB_GLOBAL_BATCH);
}

static struct dt_doc *tell(const struct server_lesson *l)
{
    struct dt_doc *doc = dt_doc_open("lab server", "Who carries the gradients?");
    add_ways(doc, l);
    dt_doc_text(doc, "Each rank of a ring sends as much, hardly more with more ranks. A server "
                     "sends each worker all weights and receives as much, so its link is the "
                     "bottleneck: (n - 1) N. Several servers share that among them.");
    dt_lab_staleness(doc, &l->outcomes[ASYNC].staleness);
    dt_doc_text(doc, "If workers do not wait, other workers take steps between a worker's read of "
                     "the weights and its gradients: these are so many steps old. Where all wait, "
                     "no gradient is old.");
    return doc;
}

static enum dt_status lab_server(struct dt_world *world, const struct dt_args *args)
{
    static struct server_lesson lesson;
    enum dt_status s = DT_OK;
    DT_TRY(dt_lab_need_ranks(world, "server", DT_LAB_RANKS));
    DT_TRY(run(world, &lesson));
    if (world->rank == 0) {
        check(&lesson);
        s = dt_golden_show(&lesson.golden, args, tell(&lesson));
    }
    return dt_world_agree(world, s);
}

const struct dt_command dt_command_lab_server = {
    .word = "lab server",
    .meaning = "what does a parameter server cost and buy?",
    .minutes = 10,
    .usage = "mpirun -np 4 dtrain lab server" DT_RESULT_USAGE,
    .examples = "  mpirun -np 4 dtrain lab server\n",
    .more = "Trains on four ranks by a ring, a master, central storage, a synchronous and an "
            "asynchronous parameter server, and prints the bytes that each rank sends per step, "
            "which weights are equal, and how stale gradients are.",
    .options = {DT_RESULT_OPTIONS},
    .together = lab_server,
};
