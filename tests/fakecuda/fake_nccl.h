/* What a test of the communicator over NCCL wants to go wrong on this rank; all zero: nothing. Of
 * the communicators that are opened while it is set. */
#ifndef DT_TESTS_FAKECUDA_FAKE_NCCL_H
#define DT_TESTS_FAKECUDA_FAKE_NCCL_H

#include <stdbool.h>

struct fake_nccl_options {
    bool init_fails;     /* the start ends with an error */
    bool init_hangs;     /* the start never ends; only that of this rank */
    bool abort_hangs;    /* ncclCommAbort never returns */
    bool finalize_hangs; /* the end is never agreed on */
    int error_at;        /* NCCL loses a peer in the n-th collective, from 1 */
    int error_code;      /* of ncclResult_t, that it then gives; 0: ncclRemoteError */
    int hang_at;         /* the n-th collective never ends, on this rank */
    int launch_hangs_at; /* the n-th collective of a graph that is recorded never gets into it */
};

#ifdef __cplusplus
extern "C" {
#endif

extern struct fake_nccl_options fake_nccl_options;

#ifdef __cplusplus
}
#endif

#endif
