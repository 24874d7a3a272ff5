/* The order of a pipeline's micro-batches, stage by stage, on a clock on which every forward and
 * every backward pass takes one unit: each micro-batch once each way, in order; nothing waits for
 * ever; gpipe's and 1f1b's bubble is (p - 1) / (m + p - 1); and 1f1b has no more micro-batches
 * under way than there are stages from there on. And the cut into stages. */
#include "tests/lib/check.h"
#include "tests/lib/layers.h"

#include "dist/strategy/pipeline/pipeline_schedule.h"
#include "dist/strategy/pipeline/pipeline_stages.h"

#define MAX_STAGES 7
#define MAX_MICRO_BATCHES 13

/* When each pass of each stage ends; 0: it has not run. */
static int ends[MAX_STAGES][2][MAX_MICRO_BATCHES];

/* When what the pass needs is there; -1: not yet known. */
static int input_at(int stage, int n_stages, struct dt_pipeline_op op)
{
    const int k = op.micro_batch;
    if (op.backward && ends[stage][0][k] == 0) {
        return -1;
    }
    const bool own = op.backward ? stage == n_stages - 1 : stage == 0;
    const int end = own ? 0 : ends[op.backward ? stage + 1 : stage - 1][op.backward][k];
    return own || end > 0 ? end : -1;
}

static void check_order(enum dt_pipeline_schedule schedule, int stage, int n_stages, int m)
{
    int next[2] = {0, 0};
    for (int i = 0; i < 2 * m; i++) {
        const struct dt_pipeline_op op = dt_pipeline_op(schedule, stage, n_stages, m, i);
        CHECK_INT(op.micro_batch, next[op.backward]);
        next[op.backward]++;
        CHECK(next[1] <= next[0]);
        CHECK(schedule != DT_PIPELINE_1F1B || next[0] - next[1] <= n_stages - stage);
    }
    CHECK_INT(next[0], m);
    CHECK_INT(next[1], m);
}

/* How long a step takes. */
static int run(enum dt_pipeline_schedule schedule, int n_stages, int m)
{
    int at[MAX_STAGES] = {0}, clock[MAX_STAGES] = {0}, last = 0;
    bool moved = true;
    memset(ends, 0, sizeof ends);
    while (moved) {
        moved = false;
        for (int s = 0; s < n_stages; s++) {
            const struct dt_pipeline_op op =
                dt_pipeline_op(schedule, s, n_stages, m, at[s] < 2 * m ? at[s] : 0);
            const int input = at[s] < 2 * m ? input_at(s, n_stages, op) : -1;
            if (input >= 0) {
                clock[s] = (input > clock[s] ? input : clock[s]) + 1;
                ends[s][op.backward][op.micro_batch] = clock[s];
                last = clock[s] > last ? clock[s] : last;
                at[s]++;
                moved = true;
            }
        }
    }
    for (int s = 0; s < n_stages; s++) {
        CHECK_INT(at[s], 2 * m);
    }
    return last;
}

static void check_schedule(enum dt_pipeline_schedule schedule)
{
    for (int p = 1; p <= MAX_STAGES; p++) {
        for (int m = 1; m <= MAX_MICRO_BATCHES; m++) {
            for (int s = 0; s < p; s++) {
                check_order(schedule, s, p, m);
            }
            const int length = run(schedule, p, m);
            CHECK_INT(length, 2 * (m + p - 1));
            CHECK_NEAR(1 - 2.0 * m / length, dt_pipeline_bubble(p, m), 1e-12);
        }
    }
}

static void refuses_cut(const struct dt_model *model, int n_stages, const struct dt_texts *cut,
                        const char *text)
{
    struct dt_stages stages;
    CHECK_FAILS(dt_stages_make(model, n_stages, cut, &stages), DT_CONFIG, text);
}

/* The four blocks are fc1, fc2, fc3, fc4. */
static void check_cuts(const struct dt_model *model)
{
    struct dt_stages stages;
    dt_error_clear();
    CHECK_OK(dt_stages_make(model, 3, &(struct dt_texts){2, "fc2\0fc4"}, &stages));
    CHECK_INT(stages.stages[0].end, 1);
    CHECK_INT(stages.stages[1].begin, 1);
    CHECK_INT(stages.stages[1].end, 3);
    CHECK_INT(stages.stages[2].end, 4);
    CHECK(stages.stages[2].grad_begin == 0 && stages.stages[0].grad_end == model->arena_elems);
    refuses_cut(model, 2, &(struct dt_texts){2, "fc2\0fc4"},
                "cut names 2 blocks for the stages behind the first, but 2");
    refuses_cut(model, 2, &(struct dt_texts){1, "fc9"},
                "cut[0]: the model has no block \"fc9\" (its blocks are fc1, fc2,");
    refuses_cut(model, 3, &(struct dt_texts){2, "fc3\0fc2"},
                "cut[1]: \"fc2\" stands before \"fc3\"");
    refuses_cut(model, 3, &(struct dt_texts){2, "fc3\0fc3"},
                "cut[1]: no block is left for stage 1");
    refuses_cut(model, 2, &(struct dt_texts){1, "fc1"}, "cut[0]: no block is left for stage 0");
}

/* A stage with nothing to train: a dropout in front. */
static void check_idle_stage(void)
{
    struct dt_model_spec spec = {
        .input = {.c = 8, .h = 1, .w = 1}, .n_layers = 3, .loss = DT_LOSS_SOFTMAX_CROSS_ENTROPY};
    static struct dt_model model;
    struct dt_texts cut = {0};
    spec.layers[0] = (struct dt_layer_spec)DROPOUT(0.5);
    spec.layers[1] = (struct dt_layer_spec)DENSE(8, NONE);
    spec.layers[2] = (struct dt_layer_spec)DENSE(8, NONE);
    CHECK_OK(dt_model_lower(&spec, &model));
    CHECK(dt_texts_add(&cut, model.blocks[1].name));
    refuses_cut(&model, 2, &cut, "stage 0, from \"block1\" on, has no parameters");
}

/* Four dense layers, the last two with most work, and one without parameters between them. */
static void check_stages(void)
{
    struct dt_model_spec spec = {
        .input = {.c = 8, .h = 1, .w = 1}, .n_layers = 6, .loss = DT_LOSS_SOFTMAX_CROSS_ENTROPY};
    const int units[] = {8, 8, 64, 8};
    static struct dt_model model;
    struct dt_stages stages;
    const struct dt_texts even = {0};
    spec.layers[0] = (struct dt_layer_spec)LAYER(FLATTEN);
    for (int i = 0; i < 4; i++) {
        spec.layers[i < 2 ? i + 1 : i + 2] = (struct dt_layer_spec)DENSE(units[i], NONE);
    }
    spec.layers[3] = (struct dt_layer_spec)LAYER(RELU);
    CHECK_OK(dt_model_lower(&spec, &model));
    for (int n = 1; n <= 4; n++) {
        size_t end = model.arena_elems;
        CHECK_OK(dt_stages_make(&model, n, &even, &stages));
        CHECK_INT(stages.stages[0].begin, 0);
        CHECK_INT(stages.stages[n - 1].end, model.n_blocks);
        for (int s = 0; s < n; s++) {
            CHECK(s == 0 || stages.stages[s].begin == stages.stages[s - 1].end);
            CHECK(stages.stages[s].grad_begin < stages.stages[s].grad_end);
            CHECK(stages.stages[s].grad_end <= end);
            end = stages.stages[s].grad_begin;
        }
        CHECK_INT((int)end, 0);
    }
    CHECK_OK(dt_stages_make(&model, 2, &even, &stages)); /* the first three and the last */
    CHECK_NEAR(stages.stages[0].flops, 3 * (2 * 64 + 2 * 64 + 2 * 8 * 64), 1e-9);
    CHECK_INT(dt_stages_make(&model, 5, &even, &stages), DT_CONFIG);
    check_cuts(&model);
    check_idle_stage();
}

int main(void)
{
    check_schedule(DT_PIPELINE_GPIPE);
    check_schedule(DT_PIPELINE_1F1B);
    check_stages();
    return 0;
}
