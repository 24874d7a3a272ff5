/* The program's interface to a kind of device, such as a GPU, whose backend is a module, loaded
 * only if such a device is there (train/device.h), so that elsewhere the program starts as
 * fast and stays as small as without. cuda/ is one, libdtrain_cuda.so. The module has one exported
 * symbol, `dt_device_module`; errors go to the program's own dt_error. Callers ask these fields for
 * a device's abilities, never for its kind. */
#ifndef DT_MODEL_DEVICE_MODULE_H
#define DT_MODEL_DEVICE_MODULE_H

#include "base/permutation.h"
#include "model/backend.h"
#include "model/optimizer.h"

struct dt_allreduce; /* dist/allreduce/allreduce.h */
struct dt_allreduce_spec;

#define DT_DEVICE_MODULE_VERSION \
    7 /* a module of another version is refused, with its version in the text */
#define DT_DEVICE_MODULE_SYMBOL "dt_device_module"

struct dt_device_info {
    int index;                      /* its number in this process */
    char name[64];                  /* "NVIDIA H200" */
    char uuid[48];                  /* "GPU-xxxxxxxx-...": ranks with the same share it */
    size_t total_bytes, free_bytes; /* of its own memory; 0: it uses the host's */
};

struct dt_device_memory {
    size_t peak_bytes; /* the most that the backend has had allocated so far */
    size_t free_bytes,
        total_bytes; /* of the device now; its libraries and other processes take some too */
};

/* The inputs that differ from step to step: samples and learning rate. */
struct dt_step_input {
    struct dt_draw draw;
    struct dt_update update;
};

#define DT_MAX_RECORDED_STEPS 64 /* started by one call */

/* Makes the calls of one step: gather to update. `batch` has device memory for rows and ids;
 * update: its kind holds for all steps, but its numbers are read on the device. It must not wait
 * for the device. */
typedef enum dt_status (*dt_step_fn)(void *context, const struct dt_batch *batch,
                                     const struct dt_update *update);

/* Steps that a device takes on its own, recorded once; see cuda/step_graph.c for GPUs. */
struct dt_step_graph;
struct dt_step_graph_ops {
    /* For batches of up to `capacity` samples. allreduce: that of allreduce_open, if the steps use
     * it, or NULL; borrowed, as is `backend`. DT_UNAVAILABLE: this device cannot record steps. */
    enum dt_status (*open)(struct dt_backend *backend, struct dt_allreduce *allreduce, int capacity,
                           dt_step_fn step, void *context, struct dt_step_graph **out);
    void (*close)(struct dt_step_graph *graph); /* NULL is fine; before allreduce and backend */
    /* Starts n_steps steps, 1 .. DT_MAX_RECORDED_STEPS; `inputs` is the caller's again on return;
     * calls of `test` continue them. */
    enum dt_status (*start)(struct dt_step_graph *graph, const struct dt_step_input *inputs,
                            int n_steps);
    enum dt_status (*test)(struct dt_step_graph *graph,
                           int *n_done); /* number of finished steps; never waits */
    void (*take)(struct dt_step_graph *graph,
                 struct dt_metrics *out); /* (n_steps): each step's metrics, once all are done */
};

/* The library engine that runs an operation of a block. */
struct dt_device_engine {
    const char *operation; /* "gradient of the input" */
    int64_t number;        /* the library's number for it */
    int place;             /* in the library's list, from 1 */
    int n_timed;           /* it is the fastest of this many; 0: the first that works */
    double us;             /* of a run, when timed */
    size_t workspace_bytes;
};
#define DT_DEVICE_MAX_ENGINES 4 /* of a block */

struct dt_device_module {
    int version;
    const struct dt_backend_ops *backend;
    /* Chooses the device for the rank with this local rank: the only one, else the local_rank-th.
     * n_devices: number that this process sees. DT_UNAVAILABLE with the reason and the cure: no
     * driver, no device, fewer of them than local ranks, too old a device or driver. */
    enum dt_status (*probe)(int local_rank, struct dt_device_info *out, int *n_devices);
    void (*memory)(struct dt_backend *backend, struct dt_device_memory *out);
    /* Allreduce between its devices (NCCL), ordered after the work enqueued on `backend`: a
     * dt_allreduce_open_fn. Names, deadlines and explanations are those of the communicator in
     * `spec`. Every rank calls it, each on its own device. DT_STALLED after its timeout_s names the
     * missing ranks. */
    enum dt_status (*allreduce_open)(const struct dt_allreduce_spec *spec,
                                     struct dt_allreduce **out);
    const struct dt_step_graph_ops *graph; /* NULL: it takes no steps on its own */
    int (*engines)(
        const struct dt_block_state *state,
        struct dt_device_engine out[DT_DEVICE_MAX_ENGINES]); /* NULL: it has no engines */
    const char *(*versions)(
        void); /* "CUDA 13.0, driver 13.0, cuDNN 9.19.0, cuBLAS 13.1.0, NCCL 2.28.9"; static */
};

extern __attribute__((visibility("default")))
const struct dt_device_module dt_device_module; /* the program finds it by dlsym */

#endif
