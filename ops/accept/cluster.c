/* What the ranks can do together: the job's launch, the doctor, an example with known numbers,
 * exact sums, a training and its checkpoint. */
#include <stdio.h>
#include <string.h>

#include "cli/commands/eval.h"
#include "dist/allreduce/formula.h"
#include "dist/ranks/wire.h"
#include "dist/strategy/strategy.h"
#include "lab/gradtape.h"
#include "ops/accept/accept.h"
#include "ops/measure.h"
#include "train/hooks/hooks.h"
#include "train/save/saver.h"
#include "train/trainer.h"

enum dt_status dt_accept_launch(struct dt_acceptance *a, struct dt_finding *row)
{
    const int n = a->world->size, n_each = dt_probe_on_host(a->ranks, n, 0);
    *row = dt_check_run(DT_CHECK_versions, a->ranks, n);
    if (row->verdict == DT_VERDICT_FAIL) {
        return DT_OK;
    }
    char versions[200];
    snprintf(versions, sizeof versions, "%.199s", row->text);
    *row = dt_find(DT_VERDICT_PASS, NULL, "%d rank%s on each host, %s", n_each,
                   n_each == 1 ? "" : "s", versions);
    for (int r = 0; r < n; r++) {
        const int n_here = dt_probe_on_host(a->ranks, n, r);
        if (n_here != n_each) {
            dt_accept_fail(a, row, r, true, "%s has %d rank%s, %s has %d", a->ranks[r].host, n_here,
                           n_here == 1 ? "" : "s", a->ranks[0].host, n_each);
            snprintf(row->hint, sizeof row->hint,
                     "start as many on each: mpirun -ppn, srun --ntasks-per-node");
        }
    }
    return DT_OK;
}

/* The first problem; without one, the number of findings of each kind, with the warnings as hint.
 */
enum dt_status dt_accept_doctor(struct dt_acceptance *a, struct dt_finding *row)
{
    static struct dt_finding all[DT_N_CHECKS]; /* large */
    dt_checks_run(a->ranks, a->world->size, all);
    const int n_failed = dt_findings_count(all, DT_N_CHECKS, DT_VERDICT_FAIL),
              n_skipped = dt_findings_count(all, DT_N_CHECKS, DT_VERDICT_SKIPPED);
    a->n_warnings = dt_findings_count(all, DT_N_CHECKS, DT_VERDICT_WARN);
    *row = dt_find(n_failed > 0 ? DT_VERDICT_FAIL : DT_VERDICT_PASS, NULL,
                   "%d passed, %d not checked, %d warning%s",
                   DT_N_CHECKS - n_failed - n_skipped - a->n_warnings, n_skipped, a->n_warnings,
                   a->n_warnings == 1 ? "" : "s");
    for (size_t i = 0, at = 0; i < DT_N_CHECKS; i++) {
        const struct dt_finding *f = &all[i];
        if (f->verdict == DT_VERDICT_FAIL) {
            *row = dt_find(DT_VERDICT_FAIL, f->hint, "%s: %.300s", f->name, f->text);
            return DT_OK;
        }
        if (f->verdict == DT_VERDICT_WARN && at < sizeof row->hint) {
            at += (size_t)snprintf(row->hint + at, sizeof row->hint - at,
                                   "%swarning: %s: %.300s (%.180s)", at > 0 ? "; " : "", f->name,
                                   f->text, f->hint);
        }
    }
    return DT_OK;
}

enum dt_status dt_accept_example(struct dt_acceptance *a, struct dt_finding *row)
{
    const int n = a->world->size;
    struct dt_tape *tapes, mine;
    struct dt_golden all = {0};
    DT_TRY(dt_tape_run(a->world, &mine));
    DT_TRY(dt_accept_gather(a, &mine, sizeof mine, "the example's numbers", (void **)&tapes));
    for (int r = 0; r < n; r++) {
        struct dt_golden golden = {0};
        dt_tape_check(&tapes[r], r, n, &golden);
        dt_tape_check(&tapes[r], r, n, &all);
        a->cells[r].failed = golden.differs;
    }
    *row = all.differs ? dt_find(DT_VERDICT_FAIL, NULL, "%s", all.difference)
                       : dt_find(DT_VERDICT_PASS, NULL,
                                 "all %d numbers reproduced, to the last bit", all.n);
    return DT_OK;
}

/* ---- sums of integers, which do not depend on the order of addition, by every allreduce
 * implementation: in host memory and, if the training uses GPUs, in theirs */

#define N_ELEMS 100003 /* no number of ranks divides it */

/* Fails the ranks with wrong sums. */
static enum dt_status judge_sums(struct dt_acceptance *a, enum dt_allreduce_type type,
                                 size_t n_wrong, struct dt_finding *row)
{
    double *all, sum = 0;
    const double mine = (double)n_wrong;
    DT_TRY(dt_accept_gather(a, &mine, sizeof mine, "wrong sums", (void **)&all));
    for (int r = 0; r < a->world->size; r++) {
        a->cells[r].failed |= all[r] > 0;
        sum += all[r];
    }
    if (sum > 0) {
        *row = dt_find(DT_VERDICT_FAIL, NULL, "%s: %.0f of %d sums are wrong on some rank",
                       dt_allreduce_names[type], sum, N_ELEMS);
    }
    return DT_OK;
}

static enum dt_status try_impl(struct dt_acceptance *a, enum dt_allreduce_type type,
                               struct dt_backend *backend, float *host, struct dt_finding *row)
{
    struct dt_measure_sum sum = {.backend = backend, .host = host};
    const struct dt_allreduce_spec spec = {
        .rows = dt_all_entries.allreduce,
        .type = type,
        .comm = a->world->comm,
        .backend = backend != NULL ? backend : &dt_program_memory,
        .device_open = type == DT_ALLREDUCE_NCCL ? a->device.allreduce_open : NULL,
        .n_elems = N_ELEMS,
        .n_slots = 1};
    size_t n_wrong = 0;
    DT_TRY(dt_world_agree(a->world, dt_allreduce_open(&spec, &sum.allreduce)));
    enum dt_status s =
        dt_measure_sum_check(&sum, N_ELEMS, (unsigned)type + 1, "a sum that is checked", &n_wrong);
    s = s == DT_OK ? judge_sums(a, type, n_wrong, row) : s;
    if (s != DT_STALLED) { /* other ranks may still use it */
        dt_allreduce_close(sum.allreduce);
    }
    return s;
}

static bool is_here(const struct dt_acceptance *a, enum dt_allreduce_type type)
{
    return type == DT_ALLREDUCE_NCCL     ? a->device.allreduce_open != NULL
           : type == DT_ALLREDUCE_STAGED ? a->device.module != NULL && a->world->size > 1
                                         : type != DT_ALLREDUCE_AUTO;
}

static enum dt_status try_all(struct dt_acceptance *a, struct dt_backend *backend,
                              struct dt_finding *row)
{
    int n_impls = 0;
    float *host;
    DT_TRY(dt_accept_alloc(a, N_ELEMS, sizeof *host, "sums", (void **)&host));
    for (int type = 0; type < DT_N_ALLREDUCE_TYPES && row->verdict != DT_VERDICT_FAIL; type++) {
        if (is_here(a, type)) {
            DT_TRY(try_impl(a, type, dt_allreduce_is_for_gpus(type) ? backend : NULL, host, row));
            n_impls++;
        }
    }
    if (row->verdict != DT_VERDICT_FAIL) {
        *row = dt_find(DT_VERDICT_PASS, NULL, "%d implementations%s%s, %d floats each, all exact",
                       n_impls, is_here(a, DT_ALLREDUCE_NCCL) ? ", nccl" : "",
                       is_here(a, DT_ALLREDUCE_STAGED) ? ", staged" : "", N_ELEMS);
    }
    return DT_OK;
}

enum dt_status dt_accept_sums(struct dt_acceptance *a, struct dt_finding *row)
{
    struct dt_backend *backend = NULL;
    if (a->device.module != NULL) {
        DT_TRY(dt_world_agree(a->world, dt_accept_backend_open(a, &backend)));
    }
    const enum dt_status s = try_all(a, backend, row);
    if (backend != NULL && s != DT_STALLED) {
        backend->ops->close(backend);
    }
    return s;
}

/* ---- a training of a few seconds on generated images, with the choice of `auto` (GPUs and NCCL if
 * every rank has one), comparing the replicas after each step */

#define LEAST_ACCURACY 0.95

/* The training's results, from its events. Rank 0's. */
struct results {
    struct dt_acceptance *acceptance;
    double n_correct, n_samples, steps;
    char gradients[32];
};

/* A dt_emitter.emit. */
static enum dt_status on_event(void *context, struct dt_event *event)
{
    struct results *results = context;
    struct dt_acceptance *a = results->acceptance;
    if (event->kind == DT_EVENT_END) {
        results->n_correct = event->end->test.n_correct;
        results->n_samples = event->end->test.n_samples;
        results->steps = (double)event->end->steps;
        snprintf(results->gradients, sizeof results->gradients, "%s", event->end->allreduce);
        snprintf(a->checkpoint, sizeof a->checkpoint, "%s", event->end->checkpoint);
    }
    return DT_OK;
}

enum dt_status dt_accept_training(struct dt_acceptance *a, struct dt_finding *row)
{
    struct results results = {.acceptance = a};
    struct dt_folder_saver saver = {.saver = {.ops = &dt_folder_saver_ops},
                                    .run_dir = a->folder.path};
    const struct dt_train_options options = {.format = &dt_config_json,
                                             .parts = &dt_all_parts,
                                             .saver = &saver.saver,
                                             .hooks = {dt_hooks_open, a->faults}};
    DT_TRY(dt_train(a->world, &a->config, &options, &(struct dt_emitter){on_event, &results}));
    DT_TRY(dt_comm_broadcast(a->world->comm, &results.n_correct, 3 * sizeof results.n_correct, 0,
                             "result of the training"));
    DT_TRY(dt_comm_broadcast(a->world->comm, a->checkpoint, sizeof a->checkpoint, 0,
                             "name of the checkpoint"));
    const double accuracy = results.n_correct / results.n_samples;
    const bool enough = accuracy >= LEAST_ACCURACY;
    a->trained = true;
    *row = dt_find(enough ? DT_VERDICT_PASS : DT_VERDICT_FAIL, NULL,
                   "%.2f %% right after %.0f steps%s, replicas equal; sums by %s", 100 * accuracy,
                   results.steps, enough ? "" : " (95 % are wanted)", results.gradients);
    return DT_OK;
}

/* The folder of a training that the user has not named is removed at the end: then its name says
 * nothing. */
enum dt_status dt_accept_checkpoint(struct dt_acceptance *a, struct dt_finding *row)
{
    struct dt_inference inference;
    const struct dt_trained from = {.file = a->checkpoint};
    if (!a->trained) {
        *row = dt_find(DT_VERDICT_FAIL, NULL, "no checkpoint: the training failed");
        return DT_OK;
    }
    DT_TRY(dt_inference_open(a->world, &from, 1, 1, &inference));
    dt_inference_close(&inference);
    *row = dt_find(DT_VERDICT_PASS, NULL, "every rank has read %.300s",
                   dt_args_has(a->args, DT_OPTION_RUN) ? a->checkpoint
                                                       : "the checkpoint of the training");
    return DT_OK;
}

/* ---- on each host one rank freezes for a while: it does nothing and gives no sign of life. The
 * host's first rank waits for it with a limit of a second, and must name it by then. Then the
 * frozen rank continues. */

#define LIMIT_S 1.0
#define LATE_S 3.0         /* seconds over the limit that count as too late */
#define FREEZE_MOST_S 30.0 /* then it thaws by itself */
#define TAG 0x4652

/* A rank's result, sent to the others. */
struct witness {
    bool asked; /* it had to name a rank of its host */
    int frozen; /* the frozen rank */
    bool named; /* it named that one */
    double waited_s;
    char text[200]; /* the error text */
};

struct freeze {
    struct dt_comm *comm;
    struct dt_wire *wire;
    int first, last; /* ranks of this host: the one that names, and the frozen one */
};

/* The message's; static because it may arrive when no rank waits for it any more. */
static char thaw_byte;

/* Waits for at most FREEZE_MOST_S. A request of the communicator would show signs of life. */
static enum dt_status wait_quietly(struct freeze *f, struct dt_wire_request *request)
{
    bool done = false;
    for (const double end_s = dt_clock_s() + FREEZE_MOST_S; !done && dt_clock_s() < end_s;) {
        dt_sleep_ms(5);
        DT_TRY(dt_wire_test(f->wire, request, &done));
    }
    return DT_OK;
}

/* Lets the short limit pass, then continues the wait with the usual one. */
static enum dt_status watch(struct freeze *f, struct dt_request *request, struct witness *out)
{
    char name[32];
    const double usual_s = dt_comm_set_timeout(f->comm, LIMIT_S), begin_s = dt_clock_s();
    const enum dt_status s = dt_comm_wait(f->comm, request);
    dt_comm_set_timeout(f->comm, usual_s);
    out->waited_s = dt_clock_s() - begin_s;
    if (s != DT_OK && s != DT_STALLED) {
        return s;
    }
    snprintf(name, sizeof name, ": rank %d ", f->last);
    snprintf(out->text, sizeof out->text, "%s",
             s == DT_OK ? "it noticed nothing" : dt_error_text());
    out->named = s == DT_STALLED && strstr(out->text, name) != NULL;
    dt_error_clear();
    return DT_OK;
}

static enum dt_status take_part(struct freeze *f, struct witness *out)
{
    struct dt_request request;
    struct dt_wire_request thaw;
    int32_t nothing = 0;
    const int rank = f->comm->rank;
    const bool alone = f->first == f->last;
    dt_comm_phase(f->comm, "doing nothing, to be named");
    if (rank == f->last && !alone) {
        DT_TRY(dt_wire_receive(f->wire, f->first, TAG, &thaw_byte, 1, &thaw));
        DT_TRY(wait_quietly(f, &thaw));
    }
    DT_TRY(dt_comm_allreduce_start(f->comm, &nothing, 1, DT_TYPE_I32, DT_REDUCE_SUM,
                                   "wait for a frozen rank", &request));
    if (rank == f->first && !alone) {
        *out = (struct witness){.asked = true, .frozen = f->last};
        DT_TRY(watch(f, &request, out));
        DT_TRY(dt_wire_send(f->wire, f->last, TAG, &thaw_byte, 1, &thaw));
        DT_TRY(wait_quietly(f, &thaw));
    }
    return dt_comm_wait(f->comm, &request);
}

static void judge_frozen(struct dt_acceptance *a, const struct witness *all, struct dt_finding *row)
{
    double most_s = 0;
    int n = 0;
    for (int r = 0; r < a->world->size; r++) {
        const struct witness *w = &all[r];
        n += w->asked;
        most_s = w->asked ? fmax(most_s, w->waited_s) : most_s;
        if (w->asked && (!w->named || w->waited_s > LIMIT_S + LATE_S)) {
            dt_accept_fail(a, row, r, false,
                           "rank %d (%s) did not name rank %d within %.0f s; after %.1f s: %s", r,
                           a->ranks[r].host, w->frozen, LIMIT_S, w->waited_s, w->text);
        }
    }
    if (row->verdict != DT_VERDICT_FAIL && n > 0) {
        *row = dt_find(DT_VERDICT_PASS, NULL, "frozen rank identified within %.1f s on %d host%s",
                       most_s, n, n == 1 ? "" : "s");
    } else if (row->verdict != DT_VERDICT_FAIL) {
        *row = dt_find(DT_VERDICT_SKIPPED, NULL,
                       "not tried: no host has two ranks, one of which could watch the other");
    }
}

/* The last rank of this host. */
static int last_of_host(const struct dt_comm *comm)
{
    int last = comm->rank;
    for (int r = last + 1; r < comm->size && comm->host_roots != NULL; r++) {
        last = comm->host_roots[r] == comm->host_root ? r : last;
    }
    return last;
}

/* Freezes a rank in a world of more than one. */
static enum dt_status try_freeze(struct dt_acceptance *a, struct witness *out)
{
    struct dt_comm *comm = a->world->comm;
    struct freeze f = {.comm = comm, .first = comm->host_root, .last = last_of_host(comm)};
    DT_TRY(dt_world_agree(a->world, dt_wire_open_mpi(comm, &f.wire)));
    const enum dt_status s = take_part(&f, out);
    if (s != DT_STALLED) { /* a message may still be on its way */
        dt_wire_close(f.wire);
    }
    return s;
}

enum dt_status dt_accept_frozen(struct dt_acceptance *a, struct dt_finding *row)
{
    struct witness *all, mine;
    memset(&mine, 0, sizeof mine);
    DT_TRY(a->world->size > 1 ? try_freeze(a, &mine) : DT_OK);
    DT_TRY(dt_accept_gather(a, &mine, sizeof mine, "what ranks noticed", (void **)&all));
    judge_frozen(a, all, row);
    return DT_OK;
}
