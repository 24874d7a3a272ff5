/* The predictor of `dtrain bench scaling`: by hand where a formula exists, and Horovod's published
 * efficiencies at 512 GPUs from public figures (docs/scaling.md has every source). Exact: no clock.
 */
#include "ops/bench/scaling_model.h"
#include "tests/lib/check.h"

#define MB ((size_t)1 << 20)

static struct dt_scale_job job;

/* One batch, one bucket that is final at the end of a step, a rank per host. */
static void set_job(double samples, double step_s, size_t n_elems)
{
    job = (struct dt_scale_job){.n_batches = 1,
                                .batches = {{samples, step_s}},
                                .n_buckets = 1,
                                .buckets = {{n_elems, 1}},
                                .overlap = 1,
                                .n_at_once = 1,
                                .slowdown = 1,
                                .crowding = 1,
                                .message = 1,
                                .message_shared = 1,
                                .costs = {.ranks_per_host = 1, .between = {1e-5, 1e-9}}};
}

static struct dt_scale_step step_of(const char *algorithm, int n_ranks, double samples)
{
    const struct dt_scale_allreduce allreduce = {.algorithm = dt_algorithm_find(algorithm)};
    double seconds[DT_SCALE_MAX_BUCKETS];
    CHECK_OK(dt_scale_sums(&job, &allreduce, n_ranks, seconds));
    return dt_scale_step(&job, seconds, n_ranks, samples);
}

#define NEAR(a, b) CHECK(fabs((a) - (b)) <= 1e-12 * fabs(1.0 * (b)) + 1e-18)

/* Without overlap a ring adds 2 (n - 1) alpha + 2 (n - 1) / n beta bytes. */
static void test_ring(void)
{
    const size_t n_elems = 1024 * 1024;
    set_job(64, 0.1, n_elems);
    for (int n = 2; n <= 1024; n *= 2) {
        const double sum_s = 2 * (n - 1) * (1e-5 + 1e-9 * (double)(4 * n_elems) / n);
        const struct dt_scale_step step = step_of("ring", n, 64);
        CHECK(fabs(step.sum_s - sum_s) < 1e-9 * sum_s);
        CHECK(fabs(step.step_s - 0.1 - sum_s) < 1e-9);
    }
    const struct dt_scale_step two = step_of("recursive_doubling", 2, 64);
    NEAR(two.sum_s, 1e-5 + 1e-9 * (double)(4 * n_elems));
}

/* A network that takes no time has the efficiency 1, also where ranks share hosts. */
static void test_ideal(void)
{
    set_job(64, 0.1, 1000);
    job.costs = (struct dt_costs){.ranks_per_host = 4};
    job.n_at_once = 4;
    for (int n = 1; n <= 256; n *= 4) {
        NEAR(step_of("halving_doubling", n, 64).step_s, 0.1);
        NEAR(step_of("ring", n, 16).step_s, 0.025); /* strong: a fourth of the batch */
    }
}

static void test_compute(void)
{
    set_job(8, 0.03, 1000);
    job.n_batches = 3;
    job.batches[1].samples = 16;
    job.batches[1].seconds = 0.05;
    job.batches[2].samples = 64;
    job.batches[2].seconds = 0.2;
    NEAR(dt_scale_compute_s(&job, 64), 0.2);
    NEAR(dt_scale_compute_s(&job, 16), 0.05);
    NEAR(dt_scale_compute_s(&job, 12), 0.04);
    NEAR(dt_scale_compute_s(&job, 4), 0.02); /* 0.01 whatever the samples */
    NEAR(dt_scale_compute_s(&job, 128), 0.4);
    job.batches[1].seconds = 0.09; /* noise: by the line less than nothing would be left */
    NEAR(dt_scale_compute_s(&job, 4), 0.015);
}

/* Four ranks on two cores, which two ranks' use of memory slows down by a tenth. */
static void test_shared_cores(void)
{
    set_job(64, 0.1, 1000);
    job.costs = (struct dt_costs){.ranks_per_host = 4, .within = {1e-4, 0}};
    job.n_at_once = 2;
    job.slowdown = 1.1;
    NEAR(dt_scale_share(&job, 1), 1);
    NEAR(dt_scale_share(&job, 2), 1.1);
    NEAR(dt_scale_share(&job, 4), 2.2);
    NEAR(dt_scale_share(&job, 64), 2.2);
    NEAR(step_of("ring", 2, 64).step_s, 0.11 + 2e-4);
    NEAR(step_of("ring", 4, 64).step_s, 0.22 + 2 * 6e-4); /* messages wait for cores, too */
    job.message = 2;
    job.message_shared = 5;
    NEAR(step_of("ring", 2, 64).step_s, 0.11 + 2 * 2e-4);
    NEAR(step_of("ring", 3, 64).sum_s, 1.5 * 3.5 * 4e-4);
    NEAR(step_of("ring", 4, 64).step_s, 0.22 + 2 * 5 * 6e-4);
    job.buckets[0].ready = 0; /* sharing cores, they hide nothing; else all is hidden */
    NEAR(step_of("ring", 2, 64).step_s, 0.11);
    NEAR(step_of("ring", 4, 64).step_s, 0.22 + 2 * 5 * 6e-4);
    job.crowding = 1.05;
    NEAR(dt_scale_share(&job, 2), 1.1);
    NEAR(dt_scale_share(&job, 3), 1.1 * 1.5 * 1.025);
    NEAR(dt_scale_share(&job, 4), 2.2 * 1.05);
}

static void test_in_memory(void)
{
    const struct dt_scale_allreduce allreduce = {.algorithm = dt_algorithm_find("ring"),
                                                 .in_memory = true};
    double seconds[1];
    set_job(64, 0.1, 1000);
    job.costs =
        (struct dt_costs){.ranks_per_host = 4, .within = {1e-5, 1e-9}, .between = {1e-3, 1e-8}};
    job.n_at_once = 2;
    CHECK_OK(dt_scale_sums(&job, &allreduce, 1, seconds));
    NEAR(seconds[0], 0);
    CHECK_OK(dt_scale_sums(&job, &allreduce, 2, seconds));
    NEAR(seconds[0], 1e-5 + 4e-6);
    CHECK_OK(dt_scale_sums(&job, &allreduce, 4, seconds));
    NEAR(seconds[0], 2 * (1e-5 + 4e-6));
    CHECK_OK(dt_scale_sums(&job, &allreduce, 8, seconds)); /* and a ring of two hosts */
    NEAR(seconds[0], 2 * (1e-5 + 4e-6) + 2 * (1e-3 + 1e-8 * 2000));
}

/* Two buckets of 0.04 s each: the first is final in the middle of 0.1 s, the second at its end. */
static void test_overlap(void)
{
    static const double seconds[] = {0.04, 0.04}, long_ones[] = {0.2, 0.04};
    set_job(64, 0.1, 1000);
    job.n_buckets = 2;
    job.buckets[0] = (struct dt_scale_bucket){1000, 0.5};
    job.buckets[1] = (struct dt_scale_bucket){1000, 1};
    NEAR(dt_scale_step(&job, seconds, 2, 64).wait_s, 0.04);
    NEAR(dt_scale_step(&job, long_ones, 2, 64).wait_s, 0.05 + 0.2 + 0.04 - 0.1);
    job.overlap = 0.5;
    NEAR(dt_scale_step(&job, seconds, 2, 64).wait_s, 0.06);
    job.overlap = 0;
    NEAR(dt_scale_step(&job, seconds, 2, 64).wait_s, 0.08);
}

/* What a step was made of is found again. */
static void test_fit(void)
{
    const struct dt_scale_allreduce allreduce = {.algorithm = dt_algorithm_find("ring")};
    double seconds[2];
    set_job(64, 0.1, 1000);
    job.n_buckets = 2;
    job.buckets[0] = (struct dt_scale_bucket){250000, 0.5};
    job.buckets[1] = (struct dt_scale_bucket){250000, 1};
    job.costs = (struct dt_costs){.ranks_per_host = 2, .within = {1e-4, 1e-9}, .gamma_s = 1e-10};
    job.n_at_once = 2;
    struct dt_scale_job truth = job;
    truth.message = 3;
    truth.overlap = 0.25;
    CHECK_OK(dt_scale_sums(&truth, &allreduce, 2, seconds));
    const double with_s = dt_scale_step(&truth, seconds, 2, 64).wait_s,
                 apart_s = seconds[0] + seconds[1];
    CHECK_OK(dt_scale_fit(&job, &allreduce, 64, apart_s, with_s));
    CHECK(fabs(job.message - 3) < 1e-9 && fabs(job.overlap - 0.25) < 1e-9);
    CHECK_OK(dt_scale_fit(&job, &allreduce, 64, -1, 1)); /* noise */
    NEAR(job.message, 0);
}

/* ---- Horovod at 512 GPUs */

/* Where a model's parameters are: of `share` of the backward pass, which begins with the last
 * layer.
 */
struct part {
    double parameters, share;
};

struct published {
    const char *model;
    double images_per_s; /* one P100, 64 images a step */
    double efficiency;   /* published */
    int n_parts;
    struct part parts[2];
};

#define FORWARD \
    (1.0 / 3) /* of a step: a backward pass is two products for each of the forward one's */
#define FUSION_ELEMS (64 * MB / 4)

/* Buckets of Horovod's fusion buffer, as the backward pass fills them. */
static void fill_buckets(const struct published *p)
{
    double begin = 0;
    job.n_buckets = 0;
    for (int i = 0; i < p->n_parts; i++) {
        const struct part *part = &p->parts[i];
        for (double done = 0; done < part->parameters;) {
            const double n = fmin((double)FUSION_ELEMS, part->parameters - done);
            done += n;
            job.buckets[job.n_buckets].n_elems = (size_t)n;
            job.buckets[job.n_buckets++].ready =
                FORWARD + (1 - FORWARD) * (begin + part->share * done / part->parameters);
        }
        begin += part->share;
    }
}

static void test_horovod(void)
{
    static const struct published rows[] = {
        {"Inception V3", 142, 0.90, 1, {{23.8e6, 1}}},
        {"ResNet-101", 103.55, 0.90, 1, {{44.5e6, 1}}},
        {"VGG-16", 154, 0.68, 2, {{123.64e6, 0.01}, {14.71e6, 0.99}}},
    };
    struct dt_scale_network ethernet;
    CHECK_OK(dt_scale_network_find("25gbe", &ethernet));
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        set_job(64, 64 / rows[i].images_per_s, 1);
        fill_buckets(&rows[i]);
        job.costs = (struct dt_costs){
            .ranks_per_host = 4, .between = ethernet.cost, .within = {5.7e-6, 1 / 12e9}};
        job.n_at_once = 4;
        const struct dt_scale_step step = step_of("ring", 512, 64);
        const double efficiency = step.compute_s / step.step_s;
        printf(
            "%-12s sums %.0f ms, step %.0f ms, of one GPU %.0f ms: efficiency %.1f %%, published "
            "%.0f %%\n",
            rows[i].model, 1e3 * step.sum_s, 1e3 * step.step_s, 1e3 * step.compute_s,
            100 * efficiency, 100 * rows[i].efficiency);
        CHECK(fabs(efficiency / rows[i].efficiency - 1) < 0.10);
    }
}

int main(void)
{
    test_ring();
    test_ideal();
    test_compute();
    test_shared_cores();
    test_in_memory();
    test_overlap();
    test_fit();
    test_horovod();
    return 0;
}
