#include "lab/distributed.h"

#include "base/clock.h"
#include "cli/sinks/fields.h"
#include "dist/strategy/roles.h"

/* A training in progress on this rank. */
struct run {
    const struct dt_lab_distributed *training;
    struct dt_roles roles;
    struct dt_loader loader;
    struct dt_lab_network net;
    double origin_s;
    struct dt_lab_span spans[DT_LAB_MAX_SPANS];
};

static void delay(const struct run *run, uint64_t i)
{
    const struct dt_faults *faults = run->training->faults;
    for (int k = 0; faults != NULL && k < faults->n; k++) {
        dt_sleep_ms(
            dt_fault_delay_ms(&faults->faults[k], DT_LAB_SEED, run->loader.shard.rank, i + 1));
    }
}

static double now(const struct run *run)
{
    return dt_clock_s() - run->origin_s;
}

static enum dt_status take_step(struct run *run, uint64_t i, struct dt_lab_span *span)
{
    const struct dt_shard *shard = &run->loader.shard;
    const uint64_t per_epoch = dt_shard_steps_per_epoch(shard), number = i % per_epoch;
    struct dt_batch batch = dt_loader_batch(&run->loader, (uint32_t)(i / per_epoch), number);
    batch.n = run->roles.works ? batch.n : 0;
    const struct dt_update update =
        dt_strategy_next_update(run->net.strategy, run->training->rate,
                                dt_shard_step_samples(shard, number), (size_t)batch.n);
    struct dt_strategy_step step = dt_strategy_start(run->net.strategy, &update);
    span->begin = now(run);
    if (run->roles.works) {
        delay(run, i);
        DT_TRY(dt_lab_pass(&run->net, &batch, false, &step));
    }
    span->ready = now(run);
    DT_TRY(dt_strategy_finish(&step));
    span->end = now(run);
    return DT_OK;
}

static enum dt_status train(struct dt_comm *comm, struct run *run, double *sent)
{
    const uint64_t per_epoch = dt_shard_steps_per_epoch(&run->loader.shard);
    const uint64_t n_steps =
        run->training->n_steps > 0 ? (uint64_t)run->training->n_steps : DT_LAB_N_EPOCHS * per_epoch;
    struct dt_strategy *strategy = run->net.strategy;
    struct dt_strategy_summary facts;
    run->origin_s = dt_clock_s();
    DT_TRY(dt_comm_barrier(comm, "the start of the steps"));
    strategy->n_expected = (int)n_steps;
    for (uint64_t i = 0; i < n_steps; i++) {
        struct dt_lab_span further;
        DT_TRY(take_step(run, i, i < DT_LAB_MAX_SPANS ? &run->spans[i] : &further));
    }
    dt_strategy_summary(strategy, &facts);
    *sent = (double)facts.sent.all.bytes / (double)n_steps;
    return dt_strategy_share_weights(strategy);
}

/* FNV-1a over the weights' bits. */
static uint64_t hash_weights(const struct dt_lab_network *net)
{
    const unsigned char *bytes = (const unsigned char *)net->network->params;
    uint64_t hash = 14695981039346656037u;
    for (size_t i = 0; i < net->model.arena_elems * sizeof(float); i++) {
        hash = (hash ^ bytes[i]) * 1099511628211u;
    }
    return hash;
}

static enum dt_status measure(struct dt_world *world, struct run *run,
                              const struct dt_samples *test, double sent,
                              struct dt_lab_outcome *out)
{
    struct dt_metrics metrics;
    const uint64_t hash = hash_weights(&run->net);
    DT_TRY(dt_world_agree(world, dt_lab_evaluate(&run->net, test, &metrics)));
    out->n_workers = run->roles.n_workers;
    out->n_gradients = run->net.model.n_parameters;
    out->n_floats = run->net.model.arena_elems;
    out->codec = *dt_codec_or_none(run->net.strategy->spec.codec);
    out->accuracy = metrics.n_correct / metrics.n_samples;
    DT_TRY(dt_strategy_staleness(run->net.strategy, &out->staleness));
    DT_TRY(dt_comm_allgather(world->comm, &hash, out->hashes, sizeof hash,
                             "the hashes of the weights"));
    DT_TRY(dt_comm_allgather(world->comm, run->spans, out->spans, sizeof run->spans,
                             "when each rank took its steps"));
    return dt_comm_allgather(world->comm, &sent, out->sent, sizeof sent, "what each rank sent");
}

static uint64_t seed_of(const struct dt_lab_distributed *training)
{
    return training->seed != 0 ? training->seed : DT_LAB_SEED;
}

static enum dt_status open_loader(struct dt_world *world, const struct dt_roles *roles,
                                  uint64_t seed, struct dt_loader *out)
{
    const struct dt_shard shard = {.mode = DT_SHARDING_GLOBAL,
                                   .seed = seed,
                                   .n_total = DT_LAB_N_TRAIN,
                                   .global_batch = DT_LAB_GLOBAL_BATCH,
                                   .rank = roles->works ? world->rank : 0,
                                   .size = roles->n_workers,
                                   .shuffle = true};
    return dt_world_agree(world, dt_loader_open(&shard, out));
}

enum dt_status dt_lab_distributed_run(struct dt_world *world, const struct dt_lab_images *images,
                                      const struct dt_lab_distributed *training,
                                      struct dt_lab_outcome *out)
{
    struct run run = {.training = training};
    struct dt_dist_spec dist = training->dist;
    const struct dt_lab_network_spec spec = {.model = &dt_lab_softmax_regression,
                                             .samples = &images->train.samples,
                                             .comm = world->comm,
                                             .dist = &dist,
                                             .optimizer = training->optimizer,
                                             .capacity = DT_LAB_GLOBAL_BATCH};
    double sent;
    enum dt_status s;
    dist.rows = &dt_all_entries;
    dist.strategy =
        dt_strategy_named(training->strategy != NULL ? training->strategy : "allreduce");
    dist.average = dist.broadcast = dist.overlap = true;
    dist.bucket_bytes = (size_t)1 << 30;
    DT_TRY(dt_roles_find(&dist, world->rank, world->size, &run.roles));
    DT_TRY(open_loader(world, &run.roles, seed_of(training), &run.loader));
    DT_TRY_GOTO(s, dt_world_agree(world, dt_lab_network_open(&spec, &run.net)), close_loader);
    dt_model_init(&run.net.model, seed_of(training), run.net.network->params);
    s = train(world->comm, &run, &sent);
    s = s == DT_OK ? measure(world, &run, &images->test.samples, sent, out) : s;
    dt_lab_network_close(&run.net);
close_loader:
    dt_loader_close(&run.loader);
    return s;
}

void dt_lab_staleness(struct dt_doc *doc, const struct dt_staleness *staleness)
{
    const int n = dt_staleness_n_bins(staleness);
    double x[DT_STALENESS_BINS], share[DT_STALENESS_BINS], all = 0;
    for (int i = 0; i < n; i++) {
        all += (double)staleness->counts[i];
    }
    for (int i = 0; i < n; i++) {
        x[i] = i;
        share[i] = 100 * (double)staleness->counts[i] / all;
    }
    struct dt_part *chart =
        dt_doc_series(doc, "Stale gradients", "staleness, steps", "gradients, %");
    dt_doc_caption(chart,
                   "How many steps others took since the worker read the weights: %.2f on "
                   "average, at most %d.",
                   dt_staleness_mean(staleness), n - 1);
    dt_doc_plot(chart, "server, async", DT_BARS, (size_t)n, x, share);
}
