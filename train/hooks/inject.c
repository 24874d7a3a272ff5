#include "train/hooks/inject.h"

#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/rng.h"
#include "dist/strategy/summary/summary.h"
#include "model/network.h"
#include "train/events.h"
#include "train/rank_checks.h"
#include "train/trainer.h"

/* X(constant, name, what its value is) */
#define KEY_LIST(X)                            \
    X(RANK, "rank", "a rank's number")         \
    X(STEP, "step", "a step's number, from 1") \
    X(STEPS, "steps", "FIRST-LAST")            \
    X(MS, "ms", "1 to 60000 milliseconds")     \
    X(TENSOR, "tensor", "a tensor's name")
#define KEY_ENUM(constant, name, value) KEY_##constant,
enum key { KEY_LIST(KEY_ENUM) N_KEYS };

static const struct {
    const char *name, *value;
} keys[] = {
#define KEY_ROW(constant, name, value) {name, value},
    KEY_LIST(KEY_ROW)};

#define MAX_DIGITS 9
#define MAX_MS 60000

static const struct kind {
    const char *name;
    unsigned needs, may;
    const char *example;
} kinds[] = {
#define HAS(key) (1u << KEY_##key)
#define KIND_ROW(constant, name, needs, may, example, meaning) {name, needs, may, example},
    DT_FAULT_LIST(KIND_ROW)};
#define N_KINDS ((int)(sizeof kinds / sizeof kinds[0]))

/* ---- what is given */

static enum dt_status unknown_kind(const char *text)
{
    char names[128] = "";
    for (int i = 0; i < N_KINDS; i++) {
        const size_t n = strlen(names);
        snprintf(names + n, sizeof names - n, "%s%s", i > 0 ? ", " : "", kinds[i].name);
    }
    return dt_error(DT_USAGE, "--inject %.100s: unknown fault (one of %s, as in %s)", text, names,
                    kinds[0].example);
}

/* `what` is wrong with the key, n characters. */
static enum dt_status wrong(const struct dt_fault *fault, const char *key, size_t n,
                            const char *what)
{
    DT_ASSERT((int)fault->kind < N_KINDS);
    return dt_error(DT_USAGE, "--inject %.100s: '%.*s' %s (write it as in %s)", fault->text,
                    (int)(n < 60 ? n : 60), key, what, kinds[fault->kind].example);
}

/* A whole number of n characters, low to high. */
static bool read_number(const char *text, size_t n, uint64_t low, uint64_t high, uint64_t *out)
{
    *out = 0;
    for (size_t i = 0; i < n && n <= MAX_DIGITS; i++) {
        if (text[i] < '0' || text[i] > '9') {
            return false;
        }
        *out = 10 * *out + (uint64_t)(text[i] - '0');
    }
    return n >= 1 && n <= MAX_DIGITS && *out >= low && *out <= high;
}

static bool read_steps(const char *value, size_t n, struct dt_fault *out)
{
    const char *dash = memchr(value, '-', n);
    const size_t n_first = dash != NULL ? (size_t)(dash - value) : 0;
    return dash != NULL && read_number(value, n_first, 1, UINT64_MAX, &out->first_step) &&
           read_number(dash + 1, n - n_first - 1, out->first_step, UINT64_MAX, &out->last_step);
}

static enum dt_status read_value(enum key key, const char *value, size_t n, struct dt_fault *out)
{
    uint64_t number = 0;
    bool right = false;
    switch (key) {
    case KEY_RANK:
        right = read_number(value, n, 0, INT32_MAX, &number);
        out->rank = (int)number;
        break;
    case KEY_STEP:
        right = read_number(value, n, 1, UINT64_MAX, &out->first_step);
        out->last_step = out->first_step;
        break;
    case KEY_STEPS:
        right = read_steps(value, n, out);
        break;
    case KEY_MS:
        right = read_number(value, n, 1, MAX_MS, &number);
        out->ms = (unsigned)number;
        break;
    case KEY_TENSOR:
        right = n > 0 && n < sizeof out->tensor;
        snprintf(out->tensor, sizeof out->tensor, "%.*s", (int)(right ? n : 0), value);
        break;
    case N_KEYS:
        break;
    }
    return right ? DT_OK
                 : dt_error(DT_USAGE, "--inject %.100s: %s is not %s (write it as in %s)",
                            out->text, keys[key].name, keys[key].value, kinds[out->kind].example);
}

static enum key find_key(const char *text, size_t n)
{
    int key = 0;
    while (key < N_KEYS &&
           !(strlen(keys[key].name) == n && strncmp(keys[key].name, text, n) == 0)) {
        key++;
    }
    return (enum key)key;
}

/* One `key=value`, n characters. */
static enum dt_status read_pair(const char *text, size_t n, unsigned *given, struct dt_fault *out)
{
    const struct kind *kind = &kinds[out->kind];
    const char *equals = memchr(text, '=', n);
    const size_t n_key = equals != NULL ? (size_t)(equals - text) : n;
    const enum key key = find_key(text, n_key);
    if (key == N_KEYS || ((kind->needs | kind->may) & (1u << key)) == 0) {
        return wrong(out, text, n_key, "is no key of this fault");
    }
    if ((*given & (1u << key)) != 0) {
        return wrong(out, text, n_key, "is given twice");
    }
    *given |= 1u << key;
    return equals != NULL ? read_value(key, equals + 1, n - n_key - 1, out)
                          : wrong(out, text, n_key, "has no value");
}

static enum dt_status parse(const char *text, struct dt_fault *out)
{
    const size_t n_name = strcspn(text, ":");
    unsigned given = 0;
    int k = 0;
    while (k < N_KINDS &&
           !(strlen(kinds[k].name) == n_name && strncmp(kinds[k].name, text, n_name) == 0)) {
        k++;
    }
    if (k == N_KINDS) {
        return unknown_kind(text);
    }
    *out = (struct dt_fault){.kind = (enum dt_fault_kind)k,
                             .rank = DT_FAULT_EVERY_RANK,
                             .first_step = 1,
                             .last_step = UINT64_MAX,
                             .text = text};
    const char *pair = text + n_name;
    while (*pair != '\0') { /* at the colon, then at a comma */
        const size_t n = strcspn(pair + 1, ",");
        DT_TRY(read_pair(pair + 1, n, &given, out));
        pair += 1 + n;
    }
    for (int key = 0; key < N_KEYS; key++) {
        if ((kinds[k].needs & ~given & (1u << key)) != 0) {
            return wrong(out, keys[key].name, strlen(keys[key].name), "is missing");
        }
    }
    return DT_OK;
}

enum dt_status dt_faults_parse(const char *const *texts, int n, struct dt_faults *out)
{
    out->n = 0;
    if (n > DT_MAX_FAULTS) {
        return dt_error(DT_USAGE, "--inject is given %d times (keep to %d)", n, DT_MAX_FAULTS);
    }
    for (int i = 0; i < n; i++) {
        DT_TRY(parse(texts[i], &out->faults[i]));
        out->n++;
    }
    return DT_OK;
}

/* ---- whether it can be */

static const struct dt_param *find_tensor(const struct dt_model *model, const char *name)
{
    int i = 0;
    while (i < model->n_params && strcmp(model->params[i].name, name) != 0) {
        i++;
    }
    return i < model->n_params ? &model->params[i] : NULL;
}

static enum dt_status check_drop(const struct dt_trainer *t, const struct dt_fault *fault)
{
    struct dt_strategy_summary averaging;
    dt_strategy_summary(t->strategy, &averaging);
    if (!averaging.traffic.known || averaging.traffic.messages == 0) {
        return dt_error(DT_CONFIG,
                        "--inject %s: %s sends no messages that can be lost (set "
                        "distributed.allreduce=ring, or take several ranks)",
                        fault->text, averaging.allreduce);
    }
    return DT_OK;
}

/* The same verdict on every rank. */
static enum dt_status check_fault(const struct dt_trainer *t, const struct dt_fault *fault)
{
    if (fault->rank >= t->world->size) {
        return dt_error(DT_CONFIG, "--inject %s: there is no rank %d (ranks are 0 to %d)",
                        fault->text, fault->rank, t->world->size - 1);
    }
    if ((fault->kind == DT_FAULT_NAN || fault->kind == DT_FAULT_FLIP) &&
        dt_strategy_splits(t->strategy)) {
        return dt_error(
            DT_CONFIG,
            "--inject %s: no rank has the whole network (use a strategy that does not split it)",
            fault->text);
    }
    if (fault->kind == DT_FAULT_NAN && fault->rank >= t->roles.n_workers) {
        return dt_error(DT_CONFIG,
                        "--inject %s: rank %d is a server and has no gradient of its own (name a "
                        "rank below %d)",
                        fault->text, fault->rank, t->roles.n_workers);
    }
    if (fault->kind == DT_FAULT_FLIP && find_tensor(&t->model, fault->tensor) == NULL) {
        return dt_error(DT_CONFIG, "--inject %s: the model has no tensor '%s' (it has %s ... %s)",
                        fault->text, fault->tensor, t->model.params[0].name,
                        t->model.params[t->model.n_params - 1].name);
    }
    return fault->kind == DT_FAULT_DROP ? check_drop(t, fault) : DT_OK;
}

static enum dt_status check_faults(const struct dt_trainer *t, const struct dt_faults *faults)
{
    if (t->driver.ops->on_device) {
        return dt_error(
            DT_CONFIG,
            "--inject %s: the GPU takes steps on its own, recorded (set cuda.graph=false)",
            faults->faults[0].text);
    }
    for (int i = 0; i < faults->n; i++) {
        DT_TRY(check_fault(t, &faults->faults[i]));
    }
    return DT_OK;
}

/* ---- what it does */

static bool is_now(const struct dt_fault *fault, int rank, uint64_t first, uint64_t last)
{
    DT_ASSERT(first >= 1 && first <= last && fault->first_step <= fault->last_step);
    return (fault->rank == DT_FAULT_EVERY_RANK || fault->rank == rank) &&
           fault->first_step <= last && first <= fault->last_step;
}

/* 0 to ms. */
static unsigned draw_ms(unsigned ms, uint64_t seed, int rank, uint64_t step)
{
    DT_ASSERT(ms >= 1 && ms <= MAX_MS);
    const struct dt_rng4 words = dt_rng_words(seed, DT_RNG_JITTER, 0, (uint32_t)(step >> 32),
                                              (uint32_t)step, (uint32_t)rank);
    return (unsigned)(dt_rng_uniform(words.v[0]) * (float)(ms + 1));
}

unsigned dt_fault_delay_ms(const struct dt_fault *fault, uint64_t seed, int rank, uint64_t step)
{
    if (!is_now(fault, rank, step, step)) {
        return 0;
    }
    const unsigned jitter =
        fault->kind == DT_FAULT_JITTER ? draw_ms(fault->ms, seed, rank, step) : 0;
    return fault->kind == DT_FAULT_SLOW ? fault->ms : jitter;
}

/* As from a file server that is gone. */
static void read_forever(void)
{
    int ends[2];
    char byte;
    while (pipe2(ends, O_CLOEXEC) == 0 && read(ends[0], &byte, 1) != 0) { /* a signal ends a read */
        close(ends[0]);
        close(ends[1]);
    }
}

struct inject {
    struct dt_hook hook; /* first */
    const struct dt_faults *faults;
    bool poisoned; /* this step's gradients become NaN */
};

static void begin_fault(struct inject *inject, struct dt_trainer *t, const struct dt_fault *fault,
                        uint64_t step)
{
    switch (fault->kind) {
    case DT_FAULT_SLOW:
    case DT_FAULT_JITTER:
        dt_sleep_ms(dt_fault_delay_ms(fault, (uint64_t)t->config.seed, t->world->rank, step));
        break;
    case DT_FAULT_KILL:
        raise(SIGKILL);
        break;
    case DT_FAULT_STOP:
        raise(SIGSTOP);
        break;
    case DT_FAULT_STALL:
        read_forever();
        break;
    case DT_FAULT_NAN:
        inject->poisoned = true;
        break;
    case DT_FAULT_DROP:
        dt_comm_cut(t->world->comm);
        break;
    case DT_FAULT_FLIP: /* at its end */
        break;
    }
}

static enum dt_status tell_start(struct dt_hook *hook, struct dt_trainer *t,
                                 struct dt_run_event *start)
{
    (void)t;
    start->faults = ((struct inject *)hook)->faults;
    return DT_OK;
}

static enum dt_status begin_step(struct dt_hook *hook, struct dt_trainer *t, uint64_t first,
                                 uint64_t last)
{
    struct inject *inject = (struct inject *)hook;
    inject->poisoned = false;
    for (int i = 0; i < inject->faults->n; i++) {
        const struct dt_fault *fault = &inject->faults->faults[i];
        if (is_now(fault, t->world->rank, first, last)) {
            begin_fault(inject, t, fault, first);
        }
        if (fault->kind == DT_FAULT_NAN && fault->first_step <= last) { /* every rank knows it */
            t->nan_injected = true;
        }
    }
    return DT_OK;
}

static enum dt_status poison(struct dt_hook *hook, struct dt_trainer *t)
{
    const float value = NAN;
    return ((struct inject *)hook)->poisoned
               ? t->backend->ops->copy_in(t->backend, dt_network_dlogits(t->network), &value,
                                          sizeof value)
               : DT_OK;
}

/* The lowest bit of the tensor's first weight. */
static enum dt_status flip(struct dt_trainer *t, const char *tensor)
{
    DT_ASSERT(find_tensor(&t->model, tensor) != NULL);
    float *weight = t->network->params + find_tensor(&t->model, tensor)->offset;
    uint32_t bits;
    DT_TRY(t->backend->ops->copy_out(t->backend, &bits, weight, sizeof bits));
    bits ^= 1u;
    return t->backend->ops->copy_in(t->backend, weight, &bits, sizeof bits);
}

static enum dt_status end_steps(struct dt_hook *hook, struct dt_trainer *t, uint64_t first,
                                uint64_t last)
{
    const struct dt_faults *faults = ((struct inject *)hook)->faults;
    for (int i = 0; i < faults->n; i++) {
        const struct dt_fault *fault = &faults->faults[i];
        if (fault->kind == DT_FAULT_FLIP && fault->first_step <= last &&
            first <= fault->last_step) {
            DT_TRY(dt_strategy_share_weights(t->strategy)); /* all ranks: the flip is not to be lost
                                                               in a step that is under way */
            DT_TRY(is_now(fault, t->world->rank, first, last) ? flip(t, fault->tensor) : DT_OK);
        }
    }
    return DT_OK;
}

static const struct dt_hook_ops inject_ops = {
    .run_begin = tell_start, .step_begin = begin_step, .after_loss = poison, .step_end = end_steps};

enum dt_status dt_inject_open(struct dt_trainer *t, const struct dt_faults *faults)
{
    char all[DT_MAX_FAULTS * 128] = "";
    struct inject *inject;
    const int n_faults = faults != NULL ? faults->n : 0;
    for (int i = 0; i < n_faults; i++) {
        const size_t n = strlen(all);
        snprintf(all + n, sizeof all - n, " %s", faults->faults[i].text);
    }
    DT_TRY(dt_ranks_same(t->world, "--inject", all));
    if (n_faults == 0) {
        return DT_OK;
    }
    DT_TRY(dt_world_agree(t->world, check_faults(t, faults)));
    DT_TRY(dt_hook_open(t, &inject_ops, sizeof *inject, "the faults", (void **)&inject));
    inject->faults = faults;
    return DT_OK;
}
