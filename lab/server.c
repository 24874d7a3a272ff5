/* Parameter servers compared with an allreduce, on four ranks: traffic of the busiest rank,
 * equality of weights, and staleness of gradients without waiting. */
#include <stdio.h>

#include "base/bytes.h"
#include "cli/sinks/fields.h"
#include "cli/text.h"
#include "dist/strategy/facts/facts.h"
#include "lab/distributed.h"
#include "lab/golden.h"
#include "report/page/drawing.h"
#include "report/page/layout.h"

#define DT_SERVER_WAYS 5

#define RATE 0.01
#define MAX_STALENESS 4

enum { RING, MASTER, CENTRAL, SYNC, ASYNC };

static const struct dt_optimizer_spec adam = {
    .type = DT_OPTIMIZER_ADAM, .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8};

static const struct {
    const char *name, *meaning;
    const char *formula; /* for the floats that the busiest rank sends per step */
    struct dt_dist_spec dist;
    const char *strategy; /* NULL: allreduce */
} ways[DT_SERVER_WAYS] = {
    [RING] = {"ring",
              "an allreduce: all ranks work and send as much",
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
               "rank 3 steps with each worker's at once",
               "(n - 1) N",
               {.servers = 1, .mode = DT_SERVER_MODE_ASYNC, .max_staleness = MAX_STALENESS},
               "parameter_server"},
};

/* The results of a way to train. */
struct dt_server_way {
    struct dt_lab_outcome outcome;
    double busiest,
        expected; /* bytes per step of the rank that sends most: counted, and by the formula */
};

struct dt_server_lesson {
    size_t n_elems; /* N: floats of all gradients */
    struct dt_server_way ways[DT_SERVER_WAYS];
    struct dt_golden golden;
};

/* ---- the page */

/* A bar for the bytes that each rank sends; the longest of all ways is as wide as the picture. */
static void draw_ranks(FILE *out, const struct dt_server_way *way, double most)
{
    char names[DT_LAB_RANKS][16], texts[DT_LAB_RANKS][DT_BYTES_TEXT_SIZE];
    struct dt_bar bars[DT_LAB_RANKS];
    for (int rank = 0; rank < DT_LAB_RANKS; rank++) {
        const double sent = way->outcome.sent[rank];
        snprintf(names[rank], sizeof names[rank], "rank %d", rank);
        bars[rank] = (struct dt_bar){names[rank], sent > 0.9 * most ? "d1" : "d0",
                                     dt_bytes_text(sent, texts[rank]), sent};
    }
    dt_bars_draw(out, "what each rank sends a step", 60, most, DT_LAB_RANKS, bars);
}

static void put_table(FILE *out, const struct dt_server_lesson *l)
{
    char bytes[DT_BYTES_TEXT_SIZE];
    dt_table_begin(out, "way|workers|busiest rank sends|bytes a step|accuracy");
    for (int i = 0; i < DT_SERVER_WAYS; i++) {
        const struct dt_server_way *way = &l->ways[i];
        dt_table_row(out, "%s|%d|%s|%s|%.1f %%", ways[i].name, way->outcome.n_workers,
                     ways[i].formula, dt_bytes_text(way->busiest, bytes),
                     100 * way->outcome.accuracy);
    }
    dt_table_end(out);
}

/* A dt_page_fn. */
static void put_body(FILE *out, const void *context)
{
    const struct dt_server_lesson *l = context;
    const struct dt_staleness *staleness = &l->ways[DT_SERVER_WAYS - 1].outcome.staleness;
    double most = 1;
    for (int i = 0; i < DT_SERVER_WAYS; i++) {
        most = l->ways[i].busiest > most ? l->ways[i].busiest : most;
    }
    fprintf(out,
            "<h1>Who carries the gradients?</h1>\n<p>%d ranks, %zu gradients: what each rank sends "
            "in a step, counted.</p>\n"
            "<div class=\"cards\">\n",
            DT_LAB_RANKS, l->n_elems);
    for (int i = 0; i < DT_SERVER_WAYS; i++) {
        dt_card_begin(out, ways[i].name, "%s", ways[i].meaning);
        draw_ranks(out, &l->ways[i], most);
        dt_card_end(out);
    }
    dt_card_begin(out, "Stale gradients",
                  "Async: how many steps others had taken since the worker read the weights. "
                  "With an allreduce, or a server that waits, none.");
    dt_histogram_draw(out, "staleness in steps", dt_staleness_n_bins(staleness), staleness->counts);
    fputs("</div></div>\n", out);
    put_table(out, l);
}

/* ---- the runs */

static enum dt_status run(struct dt_world *world, struct dt_server_lesson *l)
{
    struct dt_lab_images images;
    enum dt_status s = dt_world_agree(world, dt_lab_images_open(DT_LAB_N_TEST, 1, &images));
    for (int way = 0; s == DT_OK && way < DT_SERVER_WAYS; way++) {
        const struct dt_lab_distributed training = {.dist = ways[way].dist,
                                                    .strategy = ways[way].strategy,
                                                    .optimizer = adam,
                                                    .rate = RATE};
        s = dt_lab_distributed_run(world, &images, &training, &l->ways[way].outcome);
    }
    dt_lab_images_close(&images);
    l->n_elems = l->ways[RING].outcome.n_gradients;
    return s;
}

/* ---- expected results */

static void compare(struct dt_server_lesson *l)
{
    const double n = DT_LAB_RANKS, all = (double)l->n_elems * sizeof(float);
    for (int i = 0; i < DT_SERVER_WAYS; i++) {
        struct dt_server_way *way = &l->ways[i];
        way->expected = (i == RING ? 2 * (n - 1) / n : n - 1) * all;
        for (int rank = 0; rank < DT_LAB_RANKS; rank++) {
            way->busiest =
                way->outcome.sent[rank] > way->busiest ? way->outcome.sent[rank] : way->busiest;
        }
    }
}

static void check(struct dt_server_lesson *l)
{
    const int n_pushers = DT_LAB_RANKS - 1;
    for (int i = 0; i < DT_SERVER_WAYS;
         i++) { /* an allreduce's buckets include the gaps between tensors, a few floats */
        dt_golden_number(&l->golden, l->ways[i].busiest, l->ways[i].expected,
                         0.001 * l->ways[i].expected,
                         "%s: bytes that the busiest rank sends a step", ways[i].name);
    }
    dt_golden_fact(&l->golden,
                   l->ways[CENTRAL].outcome.hashes[0] == l->ways[MASTER].outcome.hashes[0],
                   "central has the weights of master and workers, to the bit");
    dt_golden_number(&l->golden, dt_staleness_n_bins(&l->ways[SYNC].outcome.staleness), 0, 0,
                     "sync: gradients that are stale");
    dt_golden_fact(&l->golden,
                   dt_staleness_n_bins(&l->ways[ASYNC].outcome.staleness) - 1 <=
                       (n_pushers - 1) * (2 * MAX_STALENESS + 1),
                   "async: no gradient is staler than two workers can make it");
    for (int i = 0; i < DT_SERVER_WAYS; i++) {
        dt_golden_fact(&l->golden, l->ways[i].outcome.accuracy > 0.7, "%s learns", ways[i].name);
    }
}

/* ---- the text */

static void print_lesson(const struct dt_server_lesson *l)
{
    char count[32], bytes[DT_BYTES_TEXT_SIZE];
    printf("Who carries the gradients? %d ranks, %s of them (N), batch %d, %d epochs:\n\n",
           DT_LAB_RANKS, dt_count_text((double)l->n_elems, count, sizeof count),
           DT_LAB_GLOBAL_BATCH, DT_LAB_N_EPOCHS);
    printf("%-19s %-16s %12s %7s %9s\n", "", "busiest sends", "bytes a step", "workers",
           "accuracy");
    for (int i = 0; i < DT_SERVER_WAYS; i++) {
        const struct dt_server_way *way = &l->ways[i];
        printf("%-19s %-16s %12s %7d %7.1f %%\n", ways[i].name, ways[i].formula,
               dt_bytes_text(way->busiest, bytes), way->outcome.n_workers,
               100 * way->outcome.accuracy);
    }
    puts("\nA ring's ranks all send as much, hardly more with more ranks. A server sends\n"
         "each worker all weights, so its link is the narrow place: n - 1 times N, and\n"
         "as much comes in. Several servers share that among them.\n");
    dt_staleness_print(stdout, &l->ways[ASYNC].outcome.staleness);
    puts("\nWithout waiting, others have stepped since a worker read the weights: its\n"
         "gradients are so many steps old. Where all wait, none is old.\n");
}

static enum dt_status lab_server(struct dt_world *world, const struct dt_args *args)
{
    static struct dt_server_lesson lesson;
    enum dt_status s = DT_OK;
    DT_TRY(dt_lab_need_ranks(world, "server", DT_LAB_RANKS));
    DT_TRY(run(world, &lesson));
    if (world->rank == 0) {
        compare(&lesson);
        check(&lesson);
        print_lesson(&lesson);
        s = dt_golden_tell(&lesson.golden, args, "Servers", put_body, &lesson);
    }
    return dt_world_agree(world, s);
}

const struct dt_command dt_command_lab_server = {
    .word = "lab server",
    .meaning = "what does a parameter server cost and buy?",
    .minutes = 10,
    .usage = "mpirun -np 4 dtrain lab server [--html FILE]",
    .examples = "  mpirun -np 4 dtrain lab server\n",
    .more = "Trains on four ranks by a ring, a master, central storage, a synchronous and an "
            "asynchronous parameter server, and prints the bytes that each rank sends per step, "
            "which weights are equal, and how stale gradients are.",
    .options = {[DT_OPTION_HTML] = {DT_TAKEN}},
    .together = lab_server,
};
