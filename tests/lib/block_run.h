/* One block on the reference or the cpu backend, forward and backward: what it is given, and what
 * comes of it, both in the reference's order, C H W; the cpu backend has H W C until a flatten. */
#ifndef DT_TESTS_BLOCK_RUN_H
#define DT_TESTS_BLOCK_RUN_H

#include "tests/lib/guarded.h"

#include "model/backend.h"

struct block_case {
    const struct dt_model *model;
    int block, capacity;
    struct dt_pass pass;
    struct buffer params, grads, x, dy;                       /* grads: what is there before */
    bool want_dx, over_x;                                     /* over_x: dx takes the place of x */
    enum { BLOCK_ALL, BLOCK_TRAINING, BLOCK_FORWARD } passes; /* all: an evaluation first */
    int n_first; /* samples of the first of two parts; 0 or all of them: one part */
};

struct block_results {
    struct buffer y, eval_y, grads, dx;
};

static inline void block_case_close(struct block_case *c)
{
    BUFFERS_CLOSE(&c->params, &c->grads, &c->x, &c->dy);
}

static inline void block_results_close(struct block_results *r)
{
    BUFFERS_CLOSE(&r->y, &r->eval_y, &r->grads, &r->dx);
}

struct block_memory {
    float *params, *x, *y, *grads, *dy, *dx;
};

/* Samples [first, first + n) of the pass. */
static inline void block_part(struct dt_backend *backend, struct dt_block_state *state,
                              const struct block_case *c, int first, int n, bool backward,
                              struct block_memory at)
{
    const struct dt_block *b = &c->model->blocks[c->block];
    const struct dt_batch *whole = c->pass.batch;
    const struct dt_batch batch = {
        .n = n, .rows = whole->rows + first, .ids = whole->ids + first, .epoch = whole->epoch};
    const size_t in = (size_t)first * dt_shape_elems(b->in),
                 out = (size_t)first * dt_shape_elems(b->out);
    struct dt_pass pass = c->pass;
    pass.batch = &batch;
    pass.first = first;
    pass.accumulate = pass.accumulate || first > 0;
    pass.more = first + n < whole->n;
    if (backward) {
        CHECK_OK(backend->ops->block_backward(state, at.params, at.grads, at.x + in, at.y + out,
                                              at.dy + out, c->want_dx ? at.dx + in : NULL, &pass));
    } else {
        CHECK_OK(backend->ops->block_forward(state, at.params, at.x + in, at.y + out, &pass));
    }
}

static inline void block_passes(struct dt_backend *backend, struct dt_block_state *state,
                                const struct block_case *c, struct block_memory at)
{
    const int n = c->pass.batch->n, n_first = c->n_first > 0 ? c->n_first : n;
    for (int backward = 0; backward < (c->passes == BLOCK_FORWARD ? 1 : 2); backward++) {
        block_part(backend, state, c, 0, n_first, backward, at);
        if (n_first < n) {
            block_part(backend, state, c, n_first, n - n_first, backward, at);
        }
    }
}

static inline struct block_results block_run(const struct dt_backend_ops *ops,
                                             struct dt_backend_options options,
                                             const struct block_case *c)
{
    const struct dt_block *b = &c->model->blocks[c->block];
    const bool hwc = ops == &dt_cpu_backend, over_x = c->over_x && c->want_dx;
    struct dt_backend *backend;
    struct dt_block_state *state;
    CHECK_OK(ops->open(&options, &backend));
    CHECK_OK(ops->block_open(backend, c->model, c->block, c->capacity, &state));
    struct buffer x = hwc ? turned(&c->x, b->in, true) : copy_of(&c->x), x_before = copy_of(&x),
                  dy = hwc ? turned(&c->dy, b->out, true) : copy_of(&c->dy),
                  params = copy_of(&c->params), dx = buffer_open(x.n),
                  y = buffer_open((size_t)c->pass.batch->n * dt_shape_elems(b->out)),
                  eval_y = buffer_open(y.n);
    struct block_results out = {.grads = copy_of(&c->grads)};
    struct dt_pass eval = c->pass;
    eval.training = false;
    if (c->passes == BLOCK_ALL) {
        CHECK_OK(ops->block_forward(state, params.data, x.data, eval_y.data, &eval));
    }
    block_passes(backend, state, c,
                 (struct block_memory){params.data, x.data, y.data, out.grads.data, dy.data,
                                       over_x ? x.data : dx.data});
    CHECK(over_x || memcmp(x.data, x_before.data, x.n * sizeof(float)) == 0);
    CHECK(memcmp(params.data, c->params.data, params.n * sizeof(float)) == 0);
    out.y = hwc ? turned(&y, b->out, false) : copy_of(&y);
    out.eval_y = hwc ? turned(&eval_y, b->out, false) : copy_of(&eval_y);
    out.dx = hwc ? turned(over_x ? &x : &dx, b->in, false) : copy_of(over_x ? &x : &dx);
    BUFFERS_CLOSE(&x, &x_before, &dy, &params, &dx, &y, &eval_y);
    ops->block_close(state);
    ops->close(backend);
    return out;
}

static inline struct block_results block_on_ref(const struct block_case *c)
{
    return block_run(&dt_ref_backend, (struct dt_backend_options){.n_threads = 1}, c);
}

#endif
