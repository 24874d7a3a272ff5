/* MPICH 4.0 never gives its core away while it waits: with more ranks than cores, each message then
 * takes as long as the kernel lets a rank spin, and a start of four ranks on two cores ten times as
 * long as one of two. This library, preloaded into the ranks of tests (CMakeLists.txt), yields
 * wherever UCX, which MPICH asks for messages, had none. With another MPI it does nothing. */
#include <dlfcn.h>
#include <sched.h>

unsigned ucp_worker_progress(void *worker);

unsigned ucp_worker_progress(void *worker)
{
    static unsigned (*progress)(void *);
    if (progress == NULL) {
        *(void **)&progress = dlsym(RTLD_NEXT, "ucp_worker_progress");
    }
    const unsigned n_events = progress(worker);
    if (n_events == 0) {
        sched_yield();
    }
    return n_events;
}
