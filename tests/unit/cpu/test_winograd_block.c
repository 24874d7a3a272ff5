/* A block that goes by Winograd's method, with an image among others that is not for it: what is
 * not finite or too large is left to the direct kernel, image by image, on every instruction set of
 * this machine. */
#include "tests/lib/block_run.h"
#include "tests/lib/layers.h"
#include "tests/unit/cpu/winograd_problem.h"

enum { BATCH = 5, POISONED = 2 };

/* One block, and a pass over random images. */
static struct block_case case_of(const struct dt_model_spec *spec)
{
    static struct dt_model model;
    static const uint32_t ids[BATCH] = {4, 9, 2, 70000, 1};
    static const struct dt_batch batch = {.n = BATCH, .rows = ids, .ids = ids};
    CHECK_OK(dt_model_lower(spec, &model));
    const struct dt_block *b = &model.blocks[0];
    return (struct block_case){.model = &model,
                               .capacity = 128, /* four images to a slice, and one */
                               .passes = BLOCK_TRAINING,
                               .pass = {.batch = &batch, .training = true, .seed = 3},
                               .params = buffer_uniform(model.arena_elems, 0.1f),
                               .grads = buffer_open(model.arena_elems),
                               .x = buffer_uniform(BATCH * dt_shape_elems(b->in), 1),
                               .dy = buffer_uniform(BATCH * dt_shape_elems(b->out), 1),
                               .want_dx = true};
}

static struct block_case pooled_case(void)
{
    const struct dt_model_spec spec = {
        .input = {20, 10, 11},
        .n_layers = 4,
        .layers = {CONV(24, 3, 1, VALID, RELU), MAX_POOL(2, 2), DROPOUT(0.25), LAYER(FLATTEN)}};
    struct dt_winograd w = winograd_shape(20, 24, 10, 11, false);
    dt_winograd_plan(&w, kernels->vector);
    CHECK(w.used); /* or this checks nothing */
    return case_of(&spec);
}

/* Its gradients go by Winograd's method too. */
static struct block_case gradient_case(void)
{
    const struct dt_model_spec spec = {
        .input = {20, 10, 11},
        .n_layers = 3,
        .layers = {CONV(24, 3, 1, VALID, NONE), CONV(1, 1, 1, VALID, NONE), LAYER(FLATTEN)}};
    struct dt_winograd_gradient plan = {.w = winograd_shape(20, 24, 10, 11, false)};
    dt_winograd_plan_gradient(&plan, 4, kernels->vector);
    CHECK(plan.w.used); /* or this checks nothing */
    return case_of(&spec);
}

static struct block_results on_cpu(const struct block_case *c)
{
    return block_run(&dt_cpu_backend, (struct dt_backend_options){.n_threads = 1}, c);
}

/* The poisoned image is as in the reference, others as they are without it. */
static void check_poisoned_part(size_t n_image, const struct buffer *actual,
                                const struct buffer *expected, const struct buffer *clean)
{
    for (size_t j = 0; j < actual->n; j++) {
        const float a = actual->data[j], e = expected->data[j];
        CHECK(j / n_image == POISONED
                  ? a == e || (isnan(a) && isnan(e)) || fabsf(a - e) <= 1e-5f * (1 + fabsf(e))
                  : a == clean->data[j]);
    }
}

/* Some number of an image, among these, is not finite or too large. */
static void check_poisoned(const struct block_case *c, const struct buffer *numbers)
{
    static const float poison[] = {NAN, INFINITY, -INFINITY, 3e38f, -3e38f};
    const size_t n_image = numbers->n / BATCH;
    struct block_results clean = on_cpu(c);
    for (size_t i = 0; i < 5 * 4; i++) {
        float *at = &numbers->data[POISONED * n_image + draw((uint32_t)n_image)], before = *at;
        *at = poison[i % 5];
        struct block_results expected = block_on_ref(c), actual = on_cpu(c);
        check_poisoned_part(c->dy.n / BATCH, &actual.y, &expected.y, &clean.y);
        check_poisoned_part(c->x.n / BATCH, &actual.dx, &expected.dx, &clean.dx);
        *at = before;
        block_results_close(&expected);
        block_results_close(&actual);
    }
    block_results_close(&clean);
}

static void check_poisoned_images(bool blank)
{
    struct block_case c = pooled_case();
    for (size_t i = 0; i < c.x.n && blank; i++) {
        c.x.data[i] = (float)(i / 110 % 3); /* of each channel another */
    }
    check_poisoned(&c, &c.x);
    block_case_close(&c);
}

/* With an image among dense ones whose gradient is sparse: `sparse`, or none. */
static void check_gradients(int sparse)
{
    struct block_case c = gradient_case();
    for (size_t i = 0; i < c.dy.n; i++) {
        c.dy.data[i] = (int)(i / (c.dy.n / BATCH)) == sparse && i % 50 != 0 ? 0 : c.dy.data[i];
    }
    struct block_results expected = block_on_ref(&c), actual = on_cpu(&c);
    snprintf(case_text, sizeof case_text, "image %d sparse", sparse);
    compare(kernels->isa, "dx", &actual.dx, &expected.dx);
    allowed_error = 5e-5; /* of sums of 360 products, the largest about 20 */
    compare(kernels->isa, "grads", &actual.grads, &expected.grads);
    allowed_error = 1e-5;
    block_results_close(&expected);
    block_results_close(&actual);
    block_case_close(&c);
}

static void check_all(void)
{
    check_poisoned_images(false);
    check_poisoned_images(true);
    for (int sparse = -1; sparse < BATCH; sparse++) {
        check_gradients(sparse);
    }
    struct block_case c = gradient_case();
    check_poisoned(&c, &c.dy);
    block_case_close(&c);
}

int main(void)
{
    on_every_isa(check_all);
    return 0;
}
