/* Runs kernels on the CPU: the threads of a block are fibers, which switch at barriers. Without
 * barriers, one fiber runs one thread after the other, so that such kernels cost no more than
 * loops. */
#include "tests/fakecuda/fake_kernel.h"
#include "tests/fakecuda/fake_runtime.h"

#include <sys/mman.h>
#include <ucontext.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#endif

dim3 threadIdx, blockIdx, blockDim, gridDim;

/* All shared memory of the program, from the linker; absent if there is none. */
extern "C" char __start_fake_shared[] __attribute__((weak)),
    __stop_fake_shared[] __attribute__((weak));

namespace {

constexpr size_t page_bytes = 4096, stack_bytes = 256 * 1024;

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
std::vector<std::unique_ptr<fiber>> fibers;
std::vector<fiber *> idle, waiting;
fiber *current;

const char *kernel_name;
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

dim3 thread_at(unsigned i)
{
    return dim3(i % blockDim.x, i / blockDim.x % blockDim.y, i / blockDim.x / blockDim.y);
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
            threadIdx = thread_at(backwards ? n_threads - 1 - i : i);
            (*thread_work)();
        }
        idle.push_back(current);
        go(&current->place, &scheduler, scheduler_stack);
    }
}

/* Each stack has a guard page below it. */
fiber *new_fiber()
{
    fibers.push_back(std::make_unique<fiber>());
    fiber *fiber = fibers.back().get();
    void *map = mmap(nullptr, page_bytes + stack_bytes, PROT_NONE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED ||
        mprotect((char *)map + page_bytes, stack_bytes, PROT_READ | PROT_WRITE) != 0) {
        fake_die("no memory for the stack of a thread");
    }
    fiber->stack = {(char *)map + page_bytes, stack_bytes};
    ucontext_t *context = &fiber->place.context;
    getcontext(context);
    context->uc_stack.ss_sp = (char *)map + page_bytes;
    context->uc_stack.ss_size = stack_bytes;
    makecontext(context, run_threads, 0);
    return fiber;
}

fiber *take_idle()
{
    if (idle.empty()) {
        return new_fiber();
    }
    fiber *fiber = idle.back();
    idle.pop_back();
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
        if (fiber->line != line) {
            fake_die("\"%s\": threads of one block wait at different barriers, lines %d and %d",
                     kernel_name, line, fiber->line);
        }
    }
    if (waiting.size() != n_threads) {
        fake_die("\"%s\": %zu of %u threads wait at the barrier in line %d, the others have ended",
                 kernel_name, waiting.size(), n_threads, line);
    }
}

void run_block()
{
    memset(__start_fake_shared, 0xff, (size_t)(__stop_fake_shared - __start_fake_shared));
    n_begun = 0;
    while (n_begun < n_threads) {
        resume(take_idle());
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

void run_grid(const char *name, dim3 blocks, dim3 threads, const std::function<void()> &thread)
{
    kernel_name = name;
    thread_work = &thread;
    gridDim = blocks;
    blockDim = threads;
    n_threads = threads.x * threads.y * threads.z;
    backwards = !backwards;
    const size_t n_blocks = (size_t)blocks.x * blocks.y * blocks.z;
    for (size_t i = 0; i < n_blocks; i++) {
        const size_t block = backwards ? n_blocks - 1 - i : i;
        blockIdx = dim3((unsigned)(block % blocks.x), (unsigned)(block / blocks.x % blocks.y),
                        (unsigned)(block / blocks.x / blocks.y));
        run_block();
    }
}

bool can_run(dim3 blocks, dim3 threads)
{
    const size_t in_block = (size_t)threads.x * threads.y * threads.z;
    return blocks.x >= 1 && blocks.x <= 0x7fffffff && blocks.y >= 1 && blocks.y <= 65535 &&
           blocks.z >= 1 && blocks.z <= 65535 && in_block >= 1 && in_block <= 1024 &&
           threads.z <= 64;
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
        if (fake_is_device(pointer, 0)) {
            const fake::memory *found = fake::memory_at(pointer);
            fake_moves((size_t)(found->begin + found->n_bytes - (const char *)pointer));
        } else if (!fake_is_pinned(pointer, 0) &&
                   mincore((void *)(word / page_bytes * page_bytes), 1, &there) == 0) {
            fake_die("an argument of a kernel points to the host's memory: %p", pointer);
        }
    }
}

cudaError_t fake_launch(const char *name, dim3 blocks, dim3 threads, cudaStream_t stream,
                        std::function<void()> thread)
{
    return can_run(blocks, threads)
               ? fake_enqueue(stream, name, [=] { run_grid(name, blocks, threads, thread); })
               : cudaErrorInvalidConfiguration;
}
