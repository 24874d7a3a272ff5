/* A network that takes its batch in chunks does what one does that takes it at once: the same bits
 * on the cpu backend wherever the chunks end, with any number of threads, whatever outputs are made
 * again on the way back, and the same but for rounding on the reference. Also the empty batch, and
 * when gradients are reported final. */
#include "tests/lib/layers.h"
#include "tests/lib/session.h"
#include "tests/unit/cpu/made_samples.h"
#include "tests/unit/cpu/modes.h"

#include "model/network.h"

#define N_SAMPLES 41
#define CAPACITY 37 /* slices of 2 */

static const struct dt_model_spec specs[] = {
    {.input = {1, 12, 12},
     .n_layers = 8,
     .layers = {CONV(6, 3, 1, VALID, RELU), CONV(40, 3, 1, VALID, RELU), MAX_POOL(2, 2),
                DROPOUT(0.25), LAYER(FLATTEN), DENSE(30, RELU), DROPOUT(0.5), DENSE(10, NONE)}},
    {.input = {3, 11, 9},
     .n_layers = 7,
     .layers = {CONV(7, 4, 2, SAME, NONE), LAYER(TANH), AVG_POOL(2, 1), LAYER(SIGMOID),
                CONV(10, 3, 1, VALID, NONE), AVG_POOL(2, 2),
                LAYER(FLATTEN)}}, /* nothing after the spatial blocks */
    {.input = {1, 27, 27},
     .n_layers = 4,
     .layers = {CONV(8, 5, 2, SAME, RELU), CONV(40, 5, 2, SAME, NONE), LAYER(FLATTEN),
                DENSE(10, NONE)}},
    {.input = {30, 1, 1}, .n_layers = 1, .layers = {DENSE(10, NONE)}}, /* no spatial blocks */
};

struct run {
    const struct dt_model *model;
    const struct dt_backend_ops *ops;
    int chunk, n_threads, n; /* n: samples of the batch */
    bool accumulate;
    int n_recomputed; /* at most; leading blocks whose outputs are made again */
};

static const struct run *running;

/* The backend's own plan but for what the run says. */
static struct dt_network_plan plan(const struct dt_backend *backend, const struct dt_model *model,
                                   int capacity)
{
    struct dt_network_plan out = running->ops->plan(backend, model, capacity);
    const int n_most = model->n_spatial > 0 ? model->n_spatial - 1 : 0;
    out.chunk = running->chunk < capacity ? running->chunk : capacity;
    out.n_recomputed = running->n_recomputed < n_most ? running->n_recomputed : n_most;
    return out;
}

struct result {
    size_t n_grads;
    float *grads, *at_report; /* at_report: what each range held when it was reported */
    float logits[CAPACITY * 10];
};

struct reports {
    struct dt_network *net;
    struct result *result;
    size_t end;
};

static enum dt_status on_grad_ready(void *context, size_t begin, size_t end)
{
    struct reports *r = context;
    CHECK(begin == r->end && end > begin);
    memcpy(r->result->at_report + begin, r->net->grads + begin, (end - begin) * sizeof(float));
    r->end = end;
    return DT_OK;
}

/* One forward and one backward pass, on gradients that were 0.5 before. */
static void pass_over(const struct run *run, const struct session *session, struct result *out)
{
    struct dt_network *net = session->network;
    uint32_t rows[CAPACITY];
    const struct dt_batch batch = {.n = run->n, .rows = rows, .ids = rows, .epoch = 2};
    const struct dt_pass pass = {
        .batch = &batch, .training = true, .accumulate = run->accumulate, .seed = 11};
    struct reports reports = {.net = net, .result = out};
    for (uint32_t i = 0; i < CAPACITY; i++) {
        rows[i] = i * 7 % N_SAMPLES;
    }
    for (size_t i = 0; i < out->n_grads; i++) {
        net->grads[i] = 0.5f;
    }
    CHECK_OK(dt_network_gather(net, session->bound, &batch));
    CHECK_OK(dt_network_forward(net, &pass));
    CHECK_OK(dt_network_loss(net, session->bound, &pass));
    CHECK_OK(dt_network_backward(net, &pass, on_grad_ready, &reports));
    CHECK(reports.end > 0 && reports.end == run->model->blocks[0].grad_end);
    memcpy(out->grads, net->grads, out->n_grads * sizeof(float));
    memcpy(out->logits, dt_network_logits(net), (size_t)run->n * 10 * sizeof(float));
}

static struct result result_of(const struct run *run)
{
    const size_t n = run->model->arena_elems;
    struct dt_backend_ops ops = *run->ops;
    struct dt_backend *backend = backend_open(run->ops, run->n_threads);
    struct session session;
    const struct dt_samples samples = made_samples(N_SAMPLES, run->model->spec.input, 10);
    struct result out = {
        .n_grads = n, .grads = calloc(n, sizeof(float)), .at_report = calloc(n, sizeof(float))};
    CHECK(out.grads != NULL && out.at_report != NULL);
    running = run;
    ops.plan = plan;
    backend->ops = &ops;
    CHECK_OK(session_open(backend, run->model, &samples, CAPACITY, NULL, &session));
    dt_model_init(run->model, 5, session.network->params);
    pass_over(run, &session, &out);
    session_close(&session);
    return out;
}

static void close_result(struct result *r)
{
    free(r->grads);
    free(r->at_report);
}

static void compare(const struct run *run, const char *what, const float *a, const float *b,
                    size_t n, double tolerance)
{
    for (size_t i = 0; i < n; i++) {
        CHECK_MESSAGE(fabs((double)a[i] - (double)b[i]) <= tolerance,
                      "%s, %d blocks, %d samples in chunks of %d, %d made again, %d threads: "
                      "%s[%zu] is %.9g, not %.9g",
                      run->ops->name, run->model->n_blocks, run->n, run->chunk, run->n_recomputed,
                      run->n_threads, what, i, (double)b[i], (double)a[i]);
    }
}

/* The parameters' elements only: what lies between the tensors is nobody's. */
static void compare_grads(const struct run *run, const char *what, const float *a, const float *b,
                          double tolerance)
{
    for (int i = 0; i < run->model->n_params; i++) {
        const struct dt_param *param = &run->model->params[i];
        compare(run, what, a + param->offset, b + param->offset, param->n_elems, tolerance);
    }
}

/* Against the whole batch at once, with one thread. */
static void check_run(struct run run, const struct result *whole, double tolerance)
{
    struct result chunked = result_of(&run);
    compare_grads(&run, "grads", whole->grads, chunked.grads, tolerance);
    compare_grads(&run, "grads when reported", chunked.grads, chunked.at_report, 0);
    compare(&run, "logits", whole->logits, chunked.logits, (size_t)run.n * 10, 0);
    close_result(&chunked);
}

static void check_batch(const struct dt_model *model, int n, bool accumulate)
{
    static const int threads[] = {1, 3}, slices[] = {6, 18, 36}, any[] = {1, 3, 5, 36};
    const struct run cpu = {model, &dt_cpu_backend, CAPACITY, 1, n, accumulate, 0};
    const struct run ref = {model, &dt_ref_backend, CAPACITY, 1, n, accumulate, 0};
    struct result whole = result_of(&cpu), reference = result_of(&ref);
    compare_grads(&cpu, "grads", reference.grads, whole.grads, 1e-4);
    for (int i = 0; i < 6; i++) {
        check_run((struct run){model, &dt_cpu_backend, slices[i / 2], threads[i % 2], n, accumulate,
                               i % 3},
                  &whole, 0);
    }
    for (int i = 0; i < 4; i++) {
        check_run((struct run){model, &dt_cpu_backend, any[i], 2, n, accumulate, i % 2}, &whole,
                  1e-5);
        check_run((struct run){model, &dt_ref_backend, any[i], 1, n, accumulate, i % 2}, &reference,
                  1e-5);
    }
    for (int i = 0; n == 0 && i < model->n_params; i++) {
        CHECK(whole.grads[model->params[i].offset] == (accumulate ? 0.5f : 0.0f));
    }
    close_result(&whole);
    close_result(&reference);
}

static void check_all(void)
{
    static const int sizes[] = {CAPACITY, 36, 4, 1, 0};
    static struct dt_model model;
    for (size_t i = 0; i < sizeof specs / sizeof specs[0]; i++) {
        CHECK_OK(dt_model_lower(&specs[i], &model));
        for (int k = 0; k < 10; k++) {
            check_batch(&model, sizes[k / 2], k % 2 == 1);
        }
    }
}

int main(void)
{
    on_every_isa(check_all);
    return 0;
}
