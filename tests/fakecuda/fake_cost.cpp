/* Estimates what work on fake CUDA would cost a GPU: nodes of a graph and its longest chain, and
 * the bytes that each work item touches. Bytes are counted by page: while an item runs, device
 * memory is inaccessible, and the first read and the first write of each page fault and are
 * counted. So each item pays once for what it reads and once for what it writes, as if it found
 * nothing in a cache and lost nothing from one; workspaces of the libraries count only as far as
 * the fake touches them. */
#include "tests/fakecuda/fake_runtime.h"

#include <sys/mman.h>
#include <ucontext.h>

#include <set>

namespace fake {

static struct fake_graph last_graph;
static bool counting;
static std::vector<fake_work> works; /* counted so far */
static std::set<std::string> names;  /* of work items, which no longer exist when a test asks */
static fake_work *current;           /* the running one */
static constexpr uintptr_t page_bytes = 4096;

void measure_graph(const std::vector<node> &nodes)
{
    std::vector<int> depths;
    last_graph = {(int)nodes.size(), 0};
    for (const node &node : nodes) { /* it runs after all its predecessors */
        int depth = 0;
        for (const size_t before : node.after) {
            depth = std::max(depth, depths[before]);
        }
        depths.push_back(depth + 1);
        last_graph.longest_chain = std::max(last_graph.longest_chain, depth + 1);
    }
}

static void protect_all(int protection)
{
    for (const auto &[address, memory] : memories) {
        if (memory.is == DEVICE && memory.device == exposed) {
            mprotect(memory.pages(), memory.pages_bytes(), protection);
        }
    }
}

void begin_counting(const char *name)
{
    if (counting) {
        works.push_back({names.insert(name).first->c_str(), 0, 0});
        current = &works.back();
        protect_all(PROT_NONE);
    }
}

void end_counting()
{
    if (counting) {
        current = nullptr;
        protect_all(PROT_READ | PROT_WRITE);
    }
}

#ifdef __x86_64__
static bool is_write(const void *context)
{
    return (((const ucontext_t *)context)->uc_mcontext.gregs[REG_ERR] & 2) != 0;
}

bool count_touch(const void *pointer, const void *context)
{
    const memory *found = memory_at(pointer);
    if (current == nullptr || found == nullptr || found->is != DEVICE || found->device != exposed) {
        return false;
    }
    const uintptr_t page = (uintptr_t)pointer / page_bytes * page_bytes,
                    first = (uintptr_t)found->begin;
    const uintptr_t begin = std::max(page, first),
                    end = std::min(page + page_bytes, first + found->n_bytes);
    const bool write = is_write(context);
    if (page < (uintptr_t)found->pages() || begin >= end) {
        return false;
    }
    (write ? current->n_written : current->n_read) += (long)(end - begin);
    return mprotect((void *)page, page_bytes, write ? PROT_READ | PROT_WRITE : PROT_READ) == 0;
}

const bool can_count = true;
#else
bool count_touch(const void *, const void *)
{
    return false;
}

const bool can_count = false;
#endif

} // namespace fake

using namespace fake;

struct fake_graph fake_last_graph(void)
{
    return last_graph;
}

int fake_count_bytes(void)
{
    counting = can_count;
    works.clear();
    return can_count;
}

int fake_counted(const struct fake_work **out)
{
    counting = false;
    works.erase(std::remove_if(works.begin(), works.end(),
                               [](const fake_work &w) { return w.n_read + w.n_written == 0; }),
                works.end());
    *out = works.data();
    return (int)works.size();
}
