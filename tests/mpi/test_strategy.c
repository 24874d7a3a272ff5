/* The distributed optimizer: ranks stay equal to the bit, and equal to one process that has all the
 * samples. */
#include "model/network.h"
#include "tests/lib/classifier.h"
#include "tests/lib/codec_of.h"

#include "dist/allreduce/formula.h"
#include "dist/launch/job.h"
#include "dist/ranks/comm_private.h"
#include "dist/strategy/mirrored.h"

/* Between parameters there are zeros, whatever compression makes of these. */
static void check_gaps(const struct rig *rig)
{
    for (int i = 0; i < rig->model.n_params; i++) {
        const struct dt_param *p = &rig->model.params[i];
        for (size_t k = p->offset + p->n_elems; k % DT_PARAM_ALIGN != 0; k++) {
            CHECK(rig->network->params[k] == 0);
        }
    }
}

/* The gaps between gradients are not sent: compression puts numbers there, which would
 * otherwise grow from step to step. */
static void test_gap_is_not_sent(struct dt_comm *comm)
{
    struct rig rig;
    struct rig_spec spec = classifier_on(&dt_cpu_backend);
    uint32_t rows[N_SAMPLES];
    spec.dist.compression = (struct dt_compression_spec){.type = DT_COMPRESSION_ONEBIT};
    rig_open(&rig, &spec, comm, &samples);
    init(&rig, 1);
    const struct dt_param *p = &rig.model.params[0];
    CHECK((p->offset + p->n_elems) % DT_PARAM_ALIGN != 0);
    rig.network->grads[p->offset + p->n_elems] = 1e9f;
    rig_step(&rig, rows, part_of(comm, 0, rows), N_SAMPLES, 0.01);
    for (size_t i = 0; i < rig.model.arena_elems; i++) {
        CHECK(fabsf(rig.strategy->allreduce->total[i]) < 1e6f);
    }
    rig_close(&rig);
}

enum { BIG_ARENA = 1 << 15, MAX_FLOATS = 3 * BIG_ARENA };

/* Weights and optimizer state after a few steps, for which the ranks of a host step together, or
 * each by itself: started apart, made equal by the broadcast, equal to the bit after every step. */
static bool run_steps(struct rig_spec spec, bool together, struct dt_comm *comm, float *numbers)
{
    struct rig rig;
    struct dt_replica_check check;
    spec.shared_step = together;
    rig_open(&rig, &spec, comm, &samples);
    const bool taken_together = dt_mirrored_of(rig.strategy)->host_step != NULL;
    init(&rig, 1 + (uint64_t)comm->rank);
    if (spec.dist.broadcast) {
        CHECK_OK(dt_strategy_broadcast(rig.strategy));
    }
    CHECK_OK(dt_replica_check_open(comm, &rig.model, &check));
    train(&rig, comm, N_STEPS, spec.dist.broadcast ? &check : NULL);
    check_gaps(&rig);
    CHECK_INT(rig.strategy->optimizer.n_steps, N_STEPS);
    CHECK(rig.model.arena_elems <= BIG_ARENA);
    memset(numbers, 0, MAX_FLOATS * sizeof *numbers);
    memcpy(numbers, rig.network->params, rig.model.arena_elems * sizeof *numbers);
    for (int i = 0; i < rig.strategy->optimizer.n_states; i++) {
        memcpy(numbers + (i + 1) * BIG_ARENA, rig.strategy->optimizer.states[i],
               rig.model.arena_elems * sizeof *numbers);
    }
    dt_replica_check_close(&check);
    rig_close(&rig);
    return taken_together;
}

#define MAX_ARENA 1024

static void test_equal_replicas(const struct dt_backend_ops *backend, enum dt_allreduce_type type,
                                struct dt_comm *comm, struct dt_comm *self)
{
    static float first[MAX_FLOATS], other[MAX_FLOATS], alone[MAX_FLOATS];
    struct rig_spec spec = classifier_on(backend);
    spec.dist.allreduce = type;
    run_steps(spec, false, comm, first);
    CHECK(first[0] != 0);
    /* Neither overlap nor buckets change a bit: sums in shared memory have one order, and MPI's too
     * for all sizes as small as these.
     */
    for (int variant = 0; variant < 2; variant++) {
        spec.dist.overlap = variant == 1;
        spec.dist.bucket_bytes = variant == 1 ? 1 << 20 : 0;
        run_steps(spec, false, comm, other);
        CHECK(memcmp(first, other, sizeof first) == 0);
    }
    run_steps(spec, false, self, alone);
    for (int i = 0; i < MAX_ARENA; i++) {
        CHECK_NEAR(first[i], alone[i], 2e-5);
    }
}

/* Compressed, replicas stay equal whatever is lost, by every allreduce that may; what loses nothing
 * has the bits of none. */
static void test_compressed(struct dt_comm *comm)
{
    static float weights[MAX_FLOATS], dense[MAX_FLOATS];
    struct rig_spec spec = classifier_on(&dt_cpu_backend);
    for (int type = DT_COMPRESSION_FP16; type < DT_N_COMPRESSION_TYPES; type++) {
        for (int allreduce = 0; allreduce < DT_N_ALLREDUCE_TYPES; allreduce++) {
            spec.dist.allreduce = allreduce;
            spec.dist.bucket_bytes = allreduce % 2 == 0 ? 0 : 1 << 20;
            spec.dist.compression =
                (struct dt_compression_spec){.type = type,
                                             .ratio = 0.05,
                                             .error_feedback = allreduce % 2 == 0,
                                             .rounding = DT_ROUNDING_STOCHASTIC};
            spec.dist.across = type % 2 == 0 ? DT_ALLREDUCE_ALL_TO_ALL - DT_ALLREDUCE_RING : 0;
            const struct dt_codec codec = codec_of(&spec.dist.compression, NULL);
            if (dt_allreduce_compresses(&dt_all_entries.allreduce, allreduce, spec.dist.across,
                                        &codec)) {
                run_steps(spec, false, comm, weights);
                CHECK(weights[0] != 0);
            }
        }
    }
    for (int feedback = 0; feedback < 2; feedback++) {
        spec.dist.allreduce = DT_ALLREDUCE_ALL_TO_ALL;
        spec.dist.compression = (struct dt_compression_spec){.type = DT_COMPRESSION_NONE};
        run_steps(spec, false, comm, dense);
        spec.dist.compression = (struct dt_compression_spec){
            .type = DT_COMPRESSION_TOPK, .ratio = 1, .error_feedback = feedback != 0};
        run_steps(spec, false, comm, weights);
        CHECK(memcmp(weights, dense, sizeof dense) == 0);
    }
}

/* Ranks of a host that step together have the bits of ranks that step each by itself, with every
 * rule, in weights and in state. */
static void test_together(const struct dt_backend_ops *backend, struct dt_comm *comm)
{
    static float together[MAX_FLOATS], apart[MAX_FLOATS];
    const struct dt_optimizer_spec rules[] = {
        {.type = DT_OPTIMIZER_SGD, .weight_decay = 0.01},
        {.type = DT_OPTIMIZER_SGD, .momentum = 0.9, .nesterov = true},
        {.type = DT_OPTIMIZER_ADAM,
         .beta1 = 0.9,
         .beta2 = 0.999,
         .epsilon = 1e-8,
         .weight_decay = 0.01},
        {.type = DT_OPTIMIZER_ADAMW,
         .beta1 = 0.8,
         .beta2 = 0.99,
         .epsilon = 1e-6,
         .weight_decay = 0.1},
    };
    struct rig_spec spec = classifier_on(backend);
    spec.units[0] = 250; /* several pieces */
    spec.units[1] = 100;
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++) {
        spec.optimizer = rules[i];
        spec.dist.overlap = i % 2 == 0;
        spec.dist.bucket_bytes = i < 2 ? 0 : 1 << 20;
        CHECK((int)run_steps(spec, true, comm, together) == (comm->n_hosts == 1 && comm->size > 1));
        CHECK(!run_steps(spec, false, comm, apart));
        CHECK(together[0] != 0 && memcmp(together, apart, sizeof together) == 0);
    }
}

/* ---- by priority */

/* A step may begin before the last one's weights are there; the bits are the same, in weights and
 * in state. */
static void test_by_priority(struct dt_comm *comm)
{
    static float before[MAX_FLOATS], now[MAX_FLOATS];
    struct rig_spec spec = classifier_on(&dt_cpu_backend);
    spec.units[0] = 250;
    spec.units[1] = 100;
    for (int type = 0; type < DT_N_ALLREDUCE_TYPES; type++) {
        const bool one_order =
            type == DT_ALLREDUCE_MPI || (type <= DT_ALLREDUCE_SHARED_MEMORY && comm->n_hosts > 1);
        spec.dist.allreduce = type;
        for (int i = 0; i < (type == DT_ALLREDUCE_AUTO ? 4 : 1) && !one_order &&
                        !dt_allreduce_is_for_gpus(type);
             i++) {
            const int variant = (type + i) % 4;
            spec.dist.order = DT_ORDER_BACKWARD;
            spec.dist.overlap = variant != 3;
            spec.dist.bucket_bytes = variant == 1 ? 1 << 14 : 0;
            run_steps(spec, variant != 2, comm, before);
            spec.dist.order = DT_ORDER_PRIORITY;
            const bool together = run_steps(spec, variant != 2, comm, now);
            CHECK(!together || comm->n_hosts == 1);
            CHECK(before[0] != 0 && memcmp(before, now, sizeof now) == 0);
        }
    }
}

/* The order of events: f0 is the first block forward, b0 backward, u an update. */
static char events[128];

static enum dt_status note_span(struct dt_trace *trace, const struct dt_span *span)
{
    const size_t n = strlen(events);
    (void)trace;
    if (span->kind == DT_SPAN_UPDATE) {
        snprintf(events + n, sizeof events - n, " u");
    } else if (span->kind == DT_SPAN_FORWARD || span->kind == DT_SPAN_BACKWARD) {
        snprintf(events + n, sizeof events - n, " %c%d", span->kind == DT_SPAN_FORWARD ? 'f' : 'b',
                 span->block);
    }
    return DT_OK;
}

static enum dt_status note_nothing(struct dt_trace *trace, const struct dt_span *span)
{
    (void)trace;
    (void)span;
    return DT_OK;
}

/* Each block's weights are stepped just before it goes forward; the last step's, when somebody
 * wants them all. */
static void test_events(struct dt_comm *comm, enum dt_order order, const char *expected)
{
    struct rig rig;
    struct dt_trace trace = {.begin = note_span, .end = note_nothing};
    struct rig_spec spec = classifier_on(&dt_ref_backend);
    spec.dist.allreduce = DT_ALLREDUCE_RING;
    spec.dist.order = order;
    events[0] = '\0';
    rig_open(&rig, &spec, comm, &samples);
    init(&rig, 1);
    rig.trace = rig.strategy->optimizer.trace = &trace;
    train(&rig, comm, 2, NULL);
    CHECK_TEXT(events, expected);
    rig_close(&rig);
}

static void check_refused(struct dt_comm *comm, enum dt_allreduce_type type, double clip_norm,
                          bool host_memory, const char *text)
{
    struct rig rig;
    struct rig_spec spec = classifier_on(&dt_ref_backend);
    rig_open(&rig, &spec, comm, &samples); /* for its model and backend */
    struct dt_strategy_spec refused = rig.strategy->spec;
    struct dt_strategy *strategy;
    struct dt_backend backend = *rig.backend;
    backend.host_memory = host_memory;
    refused.backend = &backend;
    refused.dist.order = DT_ORDER_PRIORITY;
    refused.dist.allreduce = type;
    refused.optimizer.clip_norm = clip_norm;
    CHECK_FAILS(dt_strategy_open(&refused, &strategy), DT_CONFIG, text);
    rig_close(&rig);
}

static void test_priority_refused(struct dt_comm *comm)
{
    check_refused(comm, DT_ALLREDUCE_AUTO, 1, true,
                  "train.optimizer.clip_norm needs all gradients before a step");
    check_refused(comm, DT_ALLREDUCE_RING, 0, false,
                  "distributed.order \"priority\" steps in host memory");
    if (comm->size > 1) {
        check_refused(comm, DT_ALLREDUCE_MPI, 0, true, "MPI adds in one order");
    }
    if (comm->n_hosts > 1) {
        check_refused(comm, DT_ALLREDUCE_SHARED_MEMORY, 0, true, "MPI adds in one order");
    }
}

/* Where a step needs more than its piece of the gradient, or replicas may differ, each rank steps
 * by itself. */
static void test_not_together(struct dt_comm *comm)
{
    static float numbers[MAX_FLOATS];
    struct rig_spec clipping = classifier_on(&dt_cpu_backend), unlike = clipping,
                    messages = clipping;
    clipping.optimizer.clip_norm = 0.5;
    unlike.dist.broadcast = false;
    messages.dist.allreduce = DT_ALLREDUCE_MPI;
    CHECK(!run_steps(clipping, true, comm, numbers));
    CHECK(!run_steps(unlike, true, comm, numbers));
    CHECK(!run_steps(messages, true, comm, numbers));
}

/* One rank that does not want to is enough. */
static void test_agreement(struct dt_comm *comm)
{
    struct rig rig;
    struct rig_spec spec = classifier_on(&dt_cpu_backend);
    spec.shared_step = comm->rank != comm->size - 1;
    rig_open(&rig, &spec, comm, &samples);
    CHECK(dt_mirrored_of(rig.strategy)->host_step == NULL);
    rig_close(&rig);
}

/* A linear model whose output gradients are given whole numbers: every sum is exact, so every world
 * size ends with the same bits.
 */
static void run_whole_numbers(const struct dt_backend_ops *backend, enum dt_allreduce_type type,
                              struct dt_comm *comm, float *weights)
{
    const struct rig_spec spec = {
        .backend = backend,
        .n_inputs = N_INPUTS,
        .units = {N_CLASSES},
        .loss = DT_LOSS_SOFTMAX_CROSS_ENTROPY,
        .optimizer = {.type = DT_OPTIMIZER_SGD},
        .dist = {.allreduce = type, .average = true, .broadcast = true, .overlap = true}};
    struct rig rig;
    rig_open(&rig, &spec, comm, &samples);
    CHECK((rig.strategy->allreduce->shared != NULL) ==
          (type == DT_ALLREDUCE_AUTO && comm->n_hosts < comm->size));
    CHECK_OK(dt_strategy_broadcast(rig.strategy));
    for (int step = 0; step < N_STEPS; step++) {
        uint32_t rows[N_SAMPLES];
        const struct dt_batch batch = {.n = part_of(comm, step, rows), .rows = rows, .ids = rows};
        struct dt_pass pass = {.batch = &batch, .training = true};
        CHECK_OK(dt_network_gather(rig.network, rig.bound, &batch));
        CHECK_OK(dt_network_forward(rig.network, &pass));
        for (int i = 0; i < batch.n * N_CLASSES; i++) {
            dt_network_dlogits(rig.network)[i] =
                (float)((int)(rows[i / N_CLASSES] * 3 + (uint32_t)(i % N_CLASSES)) % 7 - 3 + step);
        }
        const struct dt_update update =
            dt_strategy_next_update(rig.strategy, 0.125, N_SAMPLES, (size_t)batch.n);
        struct dt_strategy_step under_way = dt_strategy_start(rig.strategy, &update);
        CHECK_OK(dt_strategy_backward(&under_way, rig.network, &pass));
        CHECK_OK(dt_strategy_finish(&under_way));
    }
    memcpy(weights, rig.network->params, rig.model.arena_elems * sizeof(float));
    rig_close(&rig);
}

static void test_invariance(const struct dt_backend_ops *backend, enum dt_allreduce_type type,
                            struct dt_comm *comm, struct dt_comm *self)
{
    static float together[MAX_ARENA], alone[MAX_ARENA];
    run_whole_numbers(backend, type, comm, together);
    run_whole_numbers(backend, type, self, alone);
    CHECK(together[0] != 0);
    CHECK(memcmp(together, alone, sizeof together) == 0);
}

/* Without averaging there is no message at all, and each rank does what it would do alone. */
static void test_average_off(struct dt_comm *comm, struct dt_comm *self)
{
    struct rig_spec spec = classifier_on(&dt_ref_backend);
    spec.dist.average = false;
    struct rig mine, alone;
    uint32_t rows[N_SAMPLES];
    rig_open(&mine, &spec, comm, &samples);
    rig_open(&alone, &spec, self, &samples);
    init(&mine, 1);
    init(&alone, 1);
    const uint64_t n_before = comm->private->n_started;
    for (int step = 0; step < N_STEPS; step++) {
        const int n = part_of(comm, step, rows);
        rig_step(&mine, rows, n, N_SAMPLES - step, 0.01);
        rig_step(&alone, rows, n, 999, 0.01);
    }
    CHECK_INT(comm->private->n_started, n_before);
    CHECK(memcmp(mine.network->params, alone.network->params,
                 mine.model.arena_elems * sizeof(float)) == 0);
    rig_close(&mine);
    rig_close(&alone);
}

/* The broadcast takes optimizer state and step count along: a rank with another past continues
 * exactly as rank 0. */
static void test_broadcast_of_state(struct dt_comm *comm)
{
    struct rig rig;
    struct dt_replica_check check;
    struct rig_spec spec = classifier_on(&dt_ref_backend);
    spec.dist.average = false;
    rig_open(&rig, &spec, comm, &samples);
    CHECK_OK(dt_replica_check_open(comm, &rig.model, &check));
    init(&rig, 1 + (uint64_t)comm->rank);
    train(&rig, comm, 2 + comm->rank, NULL); /* pasts of different length */
    if (comm->size > 1) {
        CHECK_FAILS(dt_replica_check_run(&check, rig.network), DT_INTERNAL, "");
    }
    CHECK_OK(dt_strategy_broadcast(rig.strategy));
    CHECK_INT(rig.strategy->optimizer.n_steps, 2);
    const uint32_t rows[3] = {4, 5, 6};
    rig_step(
        &rig, rows, 3, 3,
        0.01); /* the same samples everywhere: only a different state could make a difference */
    CHECK_OK(dt_replica_check_run(&check, rig.network));
    dt_replica_check_close(&check);
    rig_close(&rig);
}

/* Tensors are hashed piece by piece: the last weight of a large one counts. */
static void test_last_weight_is_compared(struct dt_comm *comm)
{
    struct rig rig;
    struct dt_replica_check check;
    char before[DT_DIGEST_SIZE], after[DT_DIGEST_SIZE];
    struct rig_spec spec = classifier_on(&dt_cpu_backend);
    spec.units[0] = 12000;
    rig_open(&rig, &spec, comm, &samples);
    CHECK_OK(dt_replica_check_open(comm, &rig.model, &check));
    init(&rig, 1);
    const struct dt_param *p = &rig.model.params[0];
    CHECK(p->n_elems > 1 << 16);
    CHECK_OK(dt_replica_check_run(&check, rig.network));
    CHECK_OK(dt_replica_check_digest(&check, rig.network, before));
    rig.network->params[p->offset + p->n_elems - 1] += comm->rank == 0 ? 1 : 0;
    CHECK_OK(dt_replica_check_digest(&check, rig.network, after));
    CHECK((strcmp(before, after) == 0) == (comm->rank != 0));
    if (comm->size > 1) {
        CHECK_FAILS(dt_replica_check_run(&check, rig.network), DT_INTERNAL, "");
    }
    dt_replica_check_close(&check);
    rig_close(&rig);
}

int main(void)
{
    struct dt_world world;
    struct dt_comm *self;
    CHECK_OK(dt_world_open(&world));
    CHECK_OK(dt_comm_open_self(&self));
    make_samples();
    static const struct dt_backend_ops *const backends[] = {&dt_ref_backend, &dt_cpu_backend};
    for (int b = 0; b < 2; b++) {
        test_equal_replicas(backends[b], DT_ALLREDUCE_AUTO, world.comm, self);
        test_equal_replicas(backends[b], DT_ALLREDUCE_MPI, world.comm, self);
        test_invariance(backends[b], DT_ALLREDUCE_AUTO, world.comm, self);
        test_invariance(backends[b], DT_ALLREDUCE_MPI, world.comm, self);
        test_together(backends[b], world.comm);
    }
    test_by_priority(world.comm);
    test_events(world.comm, DT_ORDER_BACKWARD, " f0 f1 f2 b2 b1 b0 u u u f0 f1 f2 b2 b1 b0 u u u");
    test_events(world.comm, DT_ORDER_PRIORITY, " f0 f1 f2 b2 b1 b0 u f0 u f1 u f2 b2 b1 b0 u u u");
    test_priority_refused(world.comm);
    test_compressed(world.comm);
    test_gap_is_not_sent(world.comm);
    test_not_together(world.comm);
    test_agreement(world.comm);
    test_average_off(world.comm, self);
    test_broadcast_of_state(world.comm);
    test_last_weight_is_compared(world.comm);
    dt_comm_close(self);
    dt_world_exit(&world, DT_OK, true);
}
