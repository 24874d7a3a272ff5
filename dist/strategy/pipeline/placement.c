#include "dist/strategy/pipeline/placement.h"

/* The largest parameter that has no server yet; the first of several. */
static int largest_left(const struct dt_model *model, const struct dt_placement *placement)
{
    int largest = DT_NO_PARAM;
    for (int i = 0; i < model->n_params; i++) {
        const bool left = placement->server_of[i] < 0;
        if (left &&
            (largest == DT_NO_PARAM || model->params[i].n_elems > model->params[largest].n_elems)) {
            largest = i;
        }
    }
    return largest;
}

static void choose_servers(const struct dt_model *model, int n_servers, struct dt_placement *out)
{
    size_t held[DT_MAX_PARAMS] = {
        0}; /* by each server; there is no use for more servers than parameters */
    const int n_used = n_servers < DT_MAX_PARAMS ? n_servers : DT_MAX_PARAMS;
    for (int i = 0; i < model->n_params; i++) {
        out->server_of[i] = -1;
    }
    for (int i = largest_left(model, out); i != DT_NO_PARAM; i = largest_left(model, out)) {
        int least = 0;
        for (int s = 1; s < n_used; s++) {
            least = held[s] < held[least] ? s : least;
        }
        out->server_of[i] = least;
        DT_ASSERT(least < n_servers);
        held[least] += model->params[i].n_elems;
    }
}

static void add_param(const struct dt_model *model, int param, bool joins, struct dt_placement *out)
{
    const struct dt_param *p = &model->params[param];
    struct dt_piece *last = &out->pieces[out->n_pieces - 1];
    DT_ASSERT(out->n_pieces == 0 || last->end <= p->offset);
    DT_ASSERT(out->server_of[param] >= 0 && out->n_pieces < DT_MAX_PARAMS + joins);
    if (joins && last->server == out->server_of[param]) {
        last->end = p->offset + p->n_elems;
    } else {
        out->pieces[out->n_pieces++] = (struct dt_piece){
            .begin = p->offset, .end = p->offset + p->n_elems, .server = out->server_of[param]};
    }
}

static void add_block(const struct dt_model *model, const struct dt_block *block,
                      struct dt_placement *out)
{
    int first = block->weight, second = block->bias;
    if (first == DT_NO_PARAM) {
        return;
    }
    if (second != DT_NO_PARAM && model->params[second].offset < model->params[first].offset) {
        first = block->bias;
        second = block->weight;
    }
    DT_ASSERT(model->params[first].offset == block->grad_begin);
    add_param(model, first, false, out);
    if (second != DT_NO_PARAM) {
        add_param(model, second, true, out);
    }
}

void dt_placement_make(const struct dt_model *model, int n_servers, struct dt_placement *out)
{
    *out = (struct dt_placement){.n_pieces = 0};
    choose_servers(model, n_servers, out);
    for (int b = model->n_blocks - 1; b >= 0; b--) { /* the arena's order */
        add_block(model, &model->blocks[b], out);
    }
}
