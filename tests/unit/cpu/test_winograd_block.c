/* A block that goes by Winograd's method, with an image among others that is not for it: what is
 * not finite or too large is left to the direct kernel, image by image, on every instruction set of
 * this machine. */
#include "tests/lib/guarded.h"

#include "cpu/isa.h"
#include "cpu/kernels/kernels.h"
#include "model/backend.h"

static const struct dt_cpu_kernels *kernels;

enum { BATCH = 5, POISONED = 2 };

struct step {
    struct buffer y, dx, grads;
};

static struct step block_step(const struct dt_backend_ops *ops, const struct dt_model *model,
                              const struct buffer *params, const struct buffer *x,
                              const struct buffer *dy)
{
    static const uint32_t ids[BATCH] = {4, 9, 2, 70000, 1};
    const struct dt_batch batch = {.n = BATCH, .rows = ids, .ids = ids};
    const struct dt_pass pass = {.batch = &batch, .training = true, .seed = 3};
    const struct dt_block *b = &model->blocks[0];
    const struct dt_backend_options options = {
        .n_threads = 1, .deterministic = true}; /* four images to a slice, and one */
    struct buffer in = ops == &dt_cpu_backend ? turned(x, b->in, true) : copy_of(x),
                  back = ops == &dt_cpu_backend ? turned(dy, b->out, true) : copy_of(dy),
                  y = buffer_open(BATCH * dt_shape_elems(b->out)), d_in = buffer_open(x->n),
                  grads = buffer_open(model->arena_elems);
    struct dt_backend *backend;
    struct dt_block_state *state;
    CHECK_INT(ops->open(&options, &backend), DT_OK);
    CHECK_INT(ops->block_open(backend, model, 0, BATCH, &state), DT_OK);
    CHECK_INT(ops->block_forward(state, params->data, in.data, y.data, &pass), DT_OK);
    CHECK_INT(ops->block_backward(state, params->data, grads.data, in.data, y.data, back.data,
                                  d_in.data, &pass),
              DT_OK);
    ops->block_close(state);
    ops->close(backend);
    const struct step step = {.y = y,
                              .dx = ops == &dt_cpu_backend ? turned(&d_in, b->in, false)
                                                           : copy_of(&d_in),
                              .grads = grads};
    buffer_close(&in, "x");
    buffer_close(&back, "dy");
    buffer_close(&d_in, "dx");
    return step;
}

static void close_step(struct step *step)
{
    buffer_close(&step->y, "y");
    buffer_close(&step->dx, "dx");
    buffer_close(&step->grads, "grads");
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

static void check_poisoned(bool blank)
{
    static const float poison[] = {NAN, INFINITY, -INFINITY, 3e38f, -3e38f};
    static struct dt_model model;
    struct dt_model_spec spec = {.input = {20, 10, 11},
                                 .n_layers = 4,
                                 .layers = {{.type = DT_LAYER_CONV2D,
                                             .size = 24,
                                             .kernel = 3,
                                             .stride = 1,
                                             .activation = DT_ACTIVATION_RELU},
                                            {.type = DT_LAYER_MAX_POOL2D, .size = 2, .stride = 2},
                                            {.type = DT_LAYER_DROPOUT, .rate = 0.25},
                                            {.type = DT_LAYER_FLATTEN}}};
    struct dt_winograd w = {.c = 20, .h = 10, .w = 11, .k = 24, .out_h = 8, .out_w = 9};
    dt_winograd_plan(&w, kernels->vector);
    CHECK(w.used); /* or this checks nothing */
    CHECK_INT(dt_model_lower(&spec, &model), DT_OK);
    const size_t n_x = 20 * 10 * 11, n_y = 24 * 4 * 4;
    struct buffer params = buffer_uniform(model.arena_elems, 0.1f),
                  x = buffer_uniform(BATCH * n_x, 1), dy = buffer_uniform(BATCH * n_y, 1);
    for (size_t i = 0; i < x.n && blank; i++) {
        x.data[i] = (float)(i / 110 % 3); /* of each channel another */
    }
    struct step clean = block_step(&dt_cpu_backend, &model, &params, &x, &dy);
    for (size_t i = 0; i < 5 * 4; i++) {
        float *at = &x.data[POISONED * n_x + draw((uint32_t)n_x)], before = *at;
        *at = poison[i % 5];
        struct step expected = block_step(&dt_ref_backend, &model, &params, &x, &dy),
                    actual = block_step(&dt_cpu_backend, &model, &params, &x, &dy);
        check_poisoned_part(n_y, &actual.y, &expected.y, &clean.y);
        check_poisoned_part(n_x, &actual.dx, &expected.dx, &clean.dx);
        *at = before;
        close_step(&expected);
        close_step(&actual);
    }
    close_step(&clean);
    buffer_close(&params, "params");
    buffer_close(&x, "x");
    buffer_close(&dy, "dy");
}

/* A block whose gradients go by Winograd's method too. */
static void lower_gradient_block(struct dt_model *model)
{
    const struct dt_model_spec spec = {
        .input = {20, 10, 11},
        .n_layers = 3,
        .layers = {{.type = DT_LAYER_CONV2D, .size = 24, .kernel = 3, .stride = 1},
                   {.type = DT_LAYER_CONV2D, .size = 1, .kernel = 1, .stride = 1},
                   {.type = DT_LAYER_FLATTEN}}};
    struct dt_winograd_gradient plan = {
        .w = {.c = 20, .h = 10, .w = 11, .k = 24, .out_h = 8, .out_w = 9}};
    dt_winograd_plan_gradient(&plan, 4, kernels->vector);
    CHECK(plan.w.used); /* or this checks nothing */
    CHECK_INT(dt_model_lower(&spec, model), DT_OK);
}

/* With an image among dense ones whose gradient is sparse: `sparse`, or none. */
static void check_gradients(int sparse)
{
    static struct dt_model model;
    lower_gradient_block(&model);
    const size_t n_y = 24 * 8 * 9;
    struct buffer params = buffer_uniform(model.arena_elems, 0.1f),
                  x = buffer_uniform((size_t)(BATCH * 20 * 10 * 11), 1),
                  dy = buffer_uniform(BATCH * n_y, 1);
    for (size_t i = 0; i < dy.n; i++) {
        dy.data[i] = (int)(i / n_y) == sparse && i % 50 != 0 ? 0 : dy.data[i];
    }
    struct step expected = block_step(&dt_ref_backend, &model, &params, &x, &dy),
                actual = block_step(&dt_cpu_backend, &model, &params, &x, &dy);
    snprintf(case_text, sizeof case_text, "image %d sparse", sparse);
    compare(kernels->isa, "dx", &actual.dx, &expected.dx);
    allowed_error = 5e-5; /* of sums of 360 products, the largest about 20 */
    compare(kernels->isa, "grads", &actual.grads, &expected.grads);
    allowed_error = 1e-5;
    buffer_close(&params, "params");
    buffer_close(&x, "x");
    buffer_close(&dy, "dy");
    close_step(&expected);
    close_step(&actual);
}

/* An image's gradient that is not finite or too large. */
static void check_poisoned_gradient(void)
{
    static const float poison[] = {NAN, INFINITY, -INFINITY, 3e38f, -3e38f};
    static struct dt_model model;
    lower_gradient_block(&model);
    const size_t n_x = 20 * 10 * 11, n_y = 24 * 8 * 9;
    struct buffer params = buffer_uniform(model.arena_elems, 0.1f),
                  x = buffer_uniform(BATCH * n_x, 1), dy = buffer_uniform(BATCH * n_y, 1);
    struct step clean = block_step(&dt_cpu_backend, &model, &params, &x, &dy);
    for (size_t i = 0; i < 5 * 4; i++) {
        float *at = &dy.data[POISONED * n_y + draw((uint32_t)n_y)], before = *at;
        *at = poison[i % 5];
        struct step expected = block_step(&dt_ref_backend, &model, &params, &x, &dy),
                    actual = block_step(&dt_cpu_backend, &model, &params, &x, &dy);
        check_poisoned_part(n_x, &actual.dx, &expected.dx, &clean.dx);
        *at = before;
        close_step(&expected);
        close_step(&actual);
    }
    close_step(&clean);
    buffer_close(&params, "params");
    buffer_close(&x, "x");
    buffer_close(&dy, "dy");
}

int main(void)
{
    const char *isas[DT_CPU_MAX_ISAS];
    const int n_isas = dt_cpu_isa_list(isas);
    for (int i = 0; i < n_isas; i++) {
        setenv("DTRAIN_ISA", isas[i], 1);
        CHECK_INT(dt_cpu_isa_choose(&kernels), DT_OK);
        check_poisoned(false);
        check_poisoned(true);
        for (int sparse = -1; sparse < BATCH; sparse++) {
            check_gradients(sparse);
        }
        check_poisoned_gradient();
    }
    return 0;
}
