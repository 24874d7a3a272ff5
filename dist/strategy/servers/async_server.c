/* Servers that do not wait for all workers: each worker's gradients are a step of their own, taken
 * when they come, with weights that may have moved on since the worker read them; by how many steps
 * is their staleness. A worker that is more than max_staleness steps ahead of the slowest waits for
 * its answer (stale-synchronous parallel: Ho et al. 2013, "More effective distributed ML via a
 * stale synchronous parallel parameter server", NIPS).
 *
 * Workers together take as many times more steps as there are workers, so the rate is divided by
 * their number; gradients are means over about one worker's samples. */
#include <math.h>
#include <string.h>

#include "dist/strategy/servers/parameter_server.h"

void dt_async_expect(struct dt_parameter_server *self, int n_steps)
{
    DT_ASSERT(n_steps >= 1 && self->base.optimizer.n_steps >= 1);
    const uint64_t version =
        (self->base.optimizer.n_steps - 1) *
        (uint64_t)self->roles.n_workers; /* all pushes before the step that begins */
    const bool first = self->n_expected == 0;
    for (int i = 0; i < self->placement.n_pieces; i++) {
        self->version[i] = version;
        for (int w = 0; w < self->roles.n_workers; w++) {
            dt_server_link_of(self, i, w)->n_pushed = 0;
        }
    }
    self->n_expected = (uint64_t)n_steps;
    self->n_begun = 0;
    if (first) {
        dt_async_all_have_pulled(self);
    }
}

void dt_async_all_have_pulled(struct dt_parameter_server *self)
{
    for (int i = 0; i < self->placement.n_pieces; i++) {
        for (int w = 0; w < self->roles.n_workers; w++) {
            dt_server_link_of(self, i, w)->pulled = self->version[i];
        }
    }
}

static uint64_t fewest_pushed(const struct dt_parameter_server *self, int piece)
{
    uint64_t fewest = UINT64_MAX;
    for (int w = 0; w < self->roles.n_workers; w++) {
        const uint64_t n = dt_server_link_of(self, piece, w)->n_pushed;
        fewest = n < fewest ? n : fewest;
    }
    DT_ASSERT(fewest <= self->n_expected);
    return fewest;
}

/* The update of this step with one worker's gradients. */
static struct dt_update own_update(const struct dt_parameter_server *self, uint64_t version)
{
    DT_ASSERT(self->base.spec.dist.mode == DT_SERVER_MODE_ASYNC);
    const struct dt_optimizer_spec *spec = &self->base.spec.optimizer;
    struct dt_update update = self->step->update;
    const double t = (double)(version + 1);
    update.lr /= (float)self->roles.n_workers;
    update.grad_scale *= (float)self->roles.n_workers;
    update.bias_correction1 = (float)(1.0 - pow(spec->beta1, t));
    update.bias_correction2 = (float)(1.0 - pow(spec->beta2, t));
    return update;
}

static void note_staleness(struct dt_parameter_server *self, uint64_t staleness)
{
    const uint64_t last = DT_STALENESS_BINS - 1;
    self->staleness.counts[staleness < last ? staleness : last]++;
}

static enum dt_status take_push(struct dt_parameter_server *self, int piece, int worker)
{
    const struct dt_piece *p = &self->placement.pieces[piece];
    struct dt_server_link *link = dt_server_link_of(self, piece, worker);
    struct dt_strategy_step step = {.strategy = &self->base,
                                    .update = own_update(self, self->version[piece])};
    const float *message =
        self->incoming + (size_t)worker * self->base.spec.model->arena_elems + p->begin;
    DT_ASSERT(link->state == DT_LINK_RECEIVING && link->pulled <= self->version[piece]);
    note_staleness(self, self->version[piece] - link->pulled);
    dt_codec_decode(&self->feedback.codec, message, p->begin, p->end - p->begin,
                    self->sums + p->begin);
    DT_TRY(dt_strategy_step_range(&step, p->begin, p->end, self->sums + p->begin));
    self->version[piece]++;
    link->n_pushed++;
    link->state = DT_LINK_HELD;
    return DT_OK;
}

static enum dt_status answer(struct dt_parameter_server *self, int piece, int worker)
{
    const struct dt_piece *p = &self->placement.pieces[piece];
    struct dt_server_link *link = dt_server_link_of(self, piece, worker);
    DT_ASSERT(link->state == DT_LINK_HELD && link->pulled < self->version[piece]);
    float *weights =
        self->outgoing + (size_t)worker * self->base.spec.model->arena_elems + p->begin;
    memcpy(weights, self->base.memory.params + p->begin, dt_server_piece_bytes(p));
    link->pulled = self->version[piece];
    link->state = DT_LINK_SENDING;
    return dt_wire_send(self->wire, worker, dt_server_tag(piece, DT_TAG_WEIGHTS), weights,
                        dt_server_piece_bytes(p), &link->weights);
}

static enum dt_status listen(struct dt_parameter_server *self, int piece, int worker)
{
    const struct dt_piece *p = &self->placement.pieces[piece];
    struct dt_server_link *link = dt_server_link_of(self, piece, worker);
    float *to = self->incoming + (size_t)worker * self->base.spec.model->arena_elems + p->begin;
    DT_ASSERT(link->state == DT_LINK_IDLE && link->n_pushed < self->n_expected);
    link->state = DT_LINK_RECEIVING;
    return dt_wire_receive(self->wire, worker, dt_server_tag(piece, DT_TAG_GRADIENTS), to,
                           dt_server_push_bytes(&self->feedback.codec, self->width, p),
                           &link->gradients);
}

/* One state further, if it may. */
static enum dt_status advance(struct dt_parameter_server *self, int piece, int worker)
{
    struct dt_server_link *link = dt_server_link_of(self, piece, worker);
    const uint64_t bound = (uint64_t)self->base.spec.dist.max_staleness;
    bool done;
    switch (link->state) {
    case DT_LINK_IDLE:
        return link->n_pushed < self->n_expected ? listen(self, piece, worker) : DT_OK;
    case DT_LINK_RECEIVING:
        DT_TRY(dt_wire_test(self->wire, &link->gradients, &done));
        return done ? take_push(self, piece, worker) : DT_OK;
    case DT_LINK_HELD:
        return link->n_pushed - fewest_pushed(self, piece) <= bound ? answer(self, piece, worker)
                                                                    : DT_OK;
    case DT_LINK_SENDING:
        DT_TRY(dt_wire_test(self->wire, &link->weights, &done));
        link->state = done ? DT_LINK_IDLE : link->state;
        return DT_OK;
    }
    return DT_OK;
}

enum dt_status dt_async_serve(struct dt_parameter_server *self, int piece, bool *done)
{
    DT_ASSERT(dt_server_holds(self, piece) && self->n_begun <= self->n_expected);
    *done = true;
    for (int w = 0; w < self->roles.n_workers; w++) {
        const struct dt_server_link *link = dt_server_link_of(self, piece, w);
        DT_TRY(advance(self, piece, w));
        const bool answered = link->state == DT_LINK_IDLE || link->state == DT_LINK_RECEIVING;
        *done = *done &&
                (link->n_pushed > self->n_begun || (link->n_pushed == self->n_begun && answered));
    }
    return DT_OK;
}
