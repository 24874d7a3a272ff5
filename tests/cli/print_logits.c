/* Prints a checkpoint's outputs for test samples, for another runtime to compare with.
 *
 * usage: print_logits CHECKPOINT N [labels]: to stdout, as floats, the first N test samples (N, C,
 * H, W), then the outputs, and then their labels */
#include "cli/commands/eval.h"
#include "model/network.h"
#include "tests/lib/check.h"
#include "train/evaluate.h"

static void put_samples(const struct dt_samples *s)
{
    const size_t n = s->n * dt_shape_elems(s->shape);
    for (size_t i = 0; i < n; i++) {
        const float value = s->pixels != NULL ? (float)s->pixels[i] * s->scale : s->values[i];
        CHECK(fwrite(&value, sizeof value, 1, stdout) == 1);
    }
}

static void put_logits(struct dt_evaluator *e, int n_outputs)
{
    const struct dt_backend_ops *ops = e->network->backend->ops;
    const struct dt_batch batch = dt_loader_batch(&e->set.loader, 0, 0);
    const struct dt_pass pass = {.batch = &batch};
    const size_t n = (size_t)batch.n * (size_t)n_outputs;
    float *logits = calloc(n, sizeof *logits);
    CHECK(logits != NULL && (size_t)batch.n == e->set.data.samples.n);
    CHECK_OK(dt_network_gather(e->network, e->set.samples, &batch));
    CHECK_OK(dt_network_forward(e->network, &pass));
    CHECK_OK(ops->copy_out(e->network->backend, logits, dt_network_logits(e->network),
                           n * sizeof *logits));
    CHECK(fwrite(logits, sizeof *logits, n, stdout) == n);
    free(logits);
}

int main(int argc, char **argv)
{
    struct dt_world alone = {.size = 1, .local_size = 1};
    struct dt_inference inference;
    struct dt_evaluator evaluator;
    CHECK(argc == 3 || argc == 4);
    const int n = atoi(argv[2]);
    CHECK_OK(dt_inference_open(&alone, &(struct dt_trained){.file = argv[1]}, 1, n, &inference));
    inference.config.data.n_test = (size_t)n;
    CHECK_OK(dt_evaluator_open(&alone, &inference.config.data, inference.network, &evaluator));
    put_samples(&evaluator.set.data.samples);
    put_logits(&evaluator, inference.model.n_outputs);
    for (size_t i = 0; argc == 4 && i < evaluator.set.data.samples.n; i++) {
        const float label = evaluator.set.data.samples.labels[i];
        CHECK(fwrite(&label, sizeof label, 1, stdout) == 1);
    }
    dt_evaluator_close(&evaluator);
    dt_inference_close(&inference);
    return 0;
}
