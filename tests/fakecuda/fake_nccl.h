/* Faults of NCCL on this rank; all zero: none. They apply to communicators opened while they are
 * set. */
#ifndef DT_TESTS_FAKECUDA_FAKE_NCCL_H
#define DT_TESTS_FAKECUDA_FAKE_NCCL_H

#include <stdbool.h>

struct fake_nccl_options {
    bool init_fails;     /* the start fails */
    bool init_hangs;     /* the start never ends, on this rank only */
    bool abort_hangs;    /* ncclCommAbort never returns */
    bool finalize_hangs; /* the ranks never agree on the end */
    int error_at;        /* NCCL loses a peer in the n-th collective, from 1 */
    int error_code;      /* the error it then returns, of ncclResult_t; 0: ncclRemoteError */
    int hang_at;         /* the n-th collective never ends, on this rank */
    int launch_hangs_at; /* the n-th collective of a recorded graph never gets into it */
};

#ifdef __cplusplus
extern "C" {
#endif

extern struct fake_nccl_options fake_nccl_options;

#ifdef __cplusplus
}
#endif

#endif
