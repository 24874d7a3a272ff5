#include "train/hook.h"

#include <stdlib.h>

#include "train/trainer.h"

void dt_hook_add(struct dt_trainer *t, struct dt_hook *hook)
{
    DT_ASSERT(hook->ops != NULL && hook->next == NULL);
    struct dt_hook **end = &t->hooks;
    while (*end != NULL) {
        end = &(*end)->next;
    }
    *end = hook;
}

enum dt_status dt_hook_open(struct dt_trainer *t, const struct dt_hook_ops *ops, size_t n_bytes,
                            const char *what, void **out)
{
    DT_ASSERT(n_bytes >= sizeof(struct dt_hook));
    DT_TRY(dt_world_alloc(t->world, 1, n_bytes, what, out));
    struct dt_hook *hook = *out;
    hook->ops = ops;
    dt_hook_add(t, hook);
    return DT_OK;
}

void dt_hooks_close(struct dt_trainer *t)
{
    for (struct dt_hook *w = t->hooks, *next; w != NULL; w = next) {
        next = w->next;
        if (w->ops->close != NULL) {
            w->ops->close(w);
        } else {
            free(w);
        }
    }
    t->hooks = NULL;
}

#define TRY_EACH(slot, ...)                                                  \
    for (struct dt_hook *w = t->hooks; w != NULL; w = w->next) {             \
        DT_TRY(w->ops->slot != NULL ? w->ops->slot(w, __VA_ARGS__) : DT_OK); \
    }                                                                        \
    return DT_OK

enum dt_status dt_hooks_run_begin(struct dt_trainer *t, struct dt_run_event *start)
{
    TRY_EACH(run_begin, t, start);
}

enum dt_status dt_hooks_run_begun(struct dt_trainer *t)
{
    TRY_EACH(run_begun, t);
}

enum dt_status dt_hooks_step_begin(struct dt_trainer *t, uint64_t first, uint64_t last)
{
    DT_ASSERT(first >= 1 && first <= last);
    TRY_EACH(step_begin, t, first, last);
}

enum dt_status dt_hooks_after_loss(struct dt_trainer *t)
{
    TRY_EACH(after_loss, t);
}

enum dt_status dt_hooks_step_end(struct dt_trainer *t, uint64_t first, uint64_t last)
{
    DT_ASSERT(first >= 1 && first <= last && last == t->state.step);
    TRY_EACH(step_end, t, first, last);
}

enum dt_status dt_hooks_epoch_end(struct dt_trainer *t, struct dt_epoch_event *epoch)
{
    TRY_EACH(epoch_end, t, epoch);
}

enum dt_status dt_hooks_run_end(struct dt_trainer *t, enum dt_status status,
                                struct dt_end_event *end)
{
    TRY_EACH(run_end, t, status, end);
}
