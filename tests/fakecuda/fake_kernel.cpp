/* Runs kernels on the CPU: the threads of a block are fibers, which switch at barriers. Without
 * barriers, one fiber runs one thread after the other, so that such kernels cost no more than
 * loops. */
#include "tests/fakecuda/fake_kernel.h"
#include "tests/fakecuda/fake_runtime.h"

#include <sys/mman.h>
#include <ucontext.h>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#endif

dim3 threadIdx, blockIdx, blockDim, gridDim;

/* All shared memory of the program, from the linker; absent if there is none. */
extern "C" char __start_fake_shared[] __attribute__((weak)),
    __stop_fake_shared[] __attribute__((weak));

namespace {

using fake::page_bytes;

constexpr size_t stack_bytes = 256 * 1024;

struct stack {
    const void *bottom;
    size_t n_bytes;
};

/* A point of execution to resume. */
struct place {
    ucontext_t context; /* for the first time */
    void *left_at[5];   /* later: without the system calls of swapcontext, which cost more than most
                           kernels */
    bool left;
};

struct fiber {
    struct place place;
    struct stack stack;
    int line; /* of the barrier where its thread waits */
};

struct place scheduler;
struct stack scheduler_stack;
std::deque<fiber> fibers; /* which stay in place */
std::vector<fiber *> idle, waiting;
fiber *current;

const std::function<void()> *thread_work;
unsigned n_threads, n_begun; /* of the running block */
bool backwards;

/* Without the address sanitizer's own care for jumps, which clears its notes of a whole stack each
 * time. */
#define SWITCHES __attribute__((no_sanitize("address", "undefined"), noinline))

[[noreturn]] SWITCHES void enter(struct place *to)
{
    if (to->left) {
        __builtin_longjmp(to->left_at, 1);
    }
    setcontext(&to->context);
    fake_die("no way to the stack of a thread");
}

/* Switches from one stack to another; returns when something switches back to `from`. */
SWITCHES void go(struct place *from, struct place *to, const struct stack &stack)
{
#ifdef __SANITIZE_ADDRESS__
    void *frames;
    __sanitizer_start_switch_fiber(&frames, stack.bottom, stack.n_bytes);
#else
    (void)stack;
#endif
    from->left = true;
    if (__builtin_setjmp(from->left_at) == 0) {
        enter(to);
    }
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_finish_switch_fiber(frames, nullptr, nullptr);
#endif
}

/* The i-th of all these, along x first. */
dim3 nth(unsigned i, const dim3 &all)
{
    return dim3(i % all.x, i / all.x % all.y, i / all.x / all.y);
}

/* A fiber's main loop. */
void run_threads()
{
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_finish_switch_fiber(nullptr, &scheduler_stack.bottom, &scheduler_stack.n_bytes);
#endif
    for (;;) {
        while (n_begun < n_threads) {
            const unsigned i = n_begun++;
            threadIdx = nth(backwards ? n_threads - 1 - i : i, blockDim);
            (*thread_work)();
        }
        idle.push_back(current);
        go(&current->place, &scheduler, scheduler_stack);
    }
}

/* An idle one, else a new one, whose stack has a guard page below it. */
fiber *take_fiber()
{
    if (!idle.empty()) {
        fiber *fiber = idle.back();
        idle.pop_back();
        return fiber;
    }
    getcontext(&fibers.emplace_back().place.context);
    fiber *fiber = &fibers.back();
    void *map = mmap(nullptr, page_bytes + stack_bytes, PROT_NONE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    char *bottom = (char *)map + page_bytes;
    FAKE_CHECK(map != MAP_FAILED && mprotect(bottom, stack_bytes, PROT_READ | PROT_WRITE) == 0,
               "no memory for the stack of a thread");
    fiber->stack = {bottom, stack_bytes};
    fiber->place.context.uc_stack = {bottom, 0, stack_bytes};
    makecontext(&fiber->place.context, run_threads, 0);
    return fiber;
}

/* Runs a fiber until it waits or has no threads left. */
void resume(fiber *fiber)
{
    current = fiber;
    go(&scheduler, &fiber->place, fiber->stack);
}

/* Checks that all threads of the block are at the same barrier. */
void check_barrier()
{
    const int line = waiting[0]->line;
    for (const fiber *fiber : waiting) {
        FAKE_CHECK(fiber->line == line,
                   "\"%s\": threads of one block wait at different barriers, lines %d and %d",
                   fake::running, line, fiber->line);
    }
    FAKE_CHECK(waiting.size() == n_threads,
               "\"%s\": %zu of %u threads wait at the barrier in line %d, the others have ended",
               fake::running, waiting.size(), n_threads, line);
}

void run_block()
{
    memset(__start_fake_shared, 0xff, (size_t)(__stop_fake_shared - __start_fake_shared));
    n_begun = 0;
    while (n_begun < n_threads) {
        resume(take_fiber());
    }
    while (!waiting.empty()) {
        check_barrier();
        std::vector<fiber *> released;
        released.swap(waiting);
        std::reverse(released.begin(), released.end());
        for (fiber *fiber : released) {
            resume(fiber);
        }
    }
}

void run_grid(dim3 blocks, dim3 threads, const std::function<void()> &thread)
{
    thread_work = &thread;
    gridDim = blocks;
    blockDim = threads;
    n_threads = threads.x * threads.y * threads.z;
    backwards = !backwards;
    const unsigned n_blocks = blocks.x * blocks.y * blocks.z;
    for (unsigned i = 0; i < n_blocks; i++) {
        blockIdx = nth(backwards ? n_blocks - 1 - i : i, gridDim);
        run_block();
    }
}

/* There is a block (DT_LAUNCH). */
bool can_run(dim3 blocks, dim3 threads)
{
    const size_t in_block = (size_t)threads.x * threads.y * threads.z;
    return blocks.x <= 0x7fffffff && blocks.y <= 65535 && blocks.z <= 65535 && in_block >= 1 &&
           in_block <= 1024 && threads.z <= 64;
}

} // namespace

void fake_barrier(int line)
{
    fiber *self = current;
    const dim3 index = threadIdx;
    self->line = line;
    waiting.push_back(self);
    go(&self->place, &scheduler, scheduler_stack);
    threadIdx = index;
}

/* A program, its heap and its stacks lie above this address. The address sanitizer maps pages below
 * it, where pairs of small numbers look like pointers. */
static const uintptr_t least_host_address = (uintptr_t)1 << 44;

/* Numbers may look like addresses, but hardly like addresses of mapped pages. */
void fake_check_argument(const void *argument, size_t n_bytes)
{
    for (size_t at = 0; at + sizeof(void *) <= n_bytes; at += sizeof(void *)) {
        uintptr_t word;
        unsigned char there;
        memcpy(&word, (const char *)argument + at, sizeof word);
        if (word < least_host_address || word >> 47 != 0) {
            continue;
        }
        const void *pointer = (const void *)word;
        if (fake::lies_in(pointer, 0, fake::DEVICE)) {
            const fake::memory *found = fake::memory_at(pointer);
            fake::moves((size_t)(found->begin + found->n_bytes - (const char *)pointer));
        } else if (!fake::lies_in(pointer, 0, fake::PINNED) &&
                   mincore((void *)(word / page_bytes * page_bytes), 1, &there) == 0) {
            fake_die("an argument of a kernel points to the host's memory: %p", pointer);
        }
    }
}

cudaError_t fake_launch(const char *name, dim3 blocks, dim3 threads, cudaStream_t stream,
                        std::function<void()> thread)
{
    return can_run(blocks, threads)
               ? fake::enqueue(stream, name, [=] { run_grid(blocks, threads, thread); })
               : cudaErrorInvalidConfiguration;
}
