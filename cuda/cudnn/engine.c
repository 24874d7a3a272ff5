#include "cuda/cudnn/engine.h"

#include "cuda/cudnn/descriptor.h"

#define MAX_CONFIGS 128 /* examined per mode of the heuristics; at most 67 were seen */

static bool is_avoided(cudnnBackendNumericalNote_t numerical_note, enum dt_precision precision)
{
    switch (numerical_note) {
    case CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC:
    case CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION:
        return true;
    case CUDNN_NUMERICAL_NOTE_TENSOR_CORE: /* they multiply tf32, not floats */
    case CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS:
    case CUDNN_NUMERICAL_NOTE_FFT: /* FFT and Winograd are less exact than sums of products */
    case CUDNN_NUMERICAL_NOTE_WINOGRAD:
        return precision == DT_PRECISION_F32;
    default:
        return false;
    }
}

static bool is_allowed(const struct dt_engine_search *search, cudnnBackendDescriptor_t config,
                       int64_t *number)
{
    struct dt_descriptors d = {0};
    cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
    int64_t n_engines = 0, n_numbers = 0, n_notes = 0;
    cudnnBackendDescriptor_t engine =
        dt_descriptor_create_owned(&d, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    dt_descriptor_get(&d, config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                      &n_engines, &engine);
    dt_descriptor_get(&d, engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &n_numbers,
                      number);
    dt_descriptor_get(&d, engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                      CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &n_notes, notes);
    bool allowed = d.status == CUDNN_STATUS_SUCCESS;
    for (int64_t i = 0; allowed && i < n_notes; i++) {
        allowed = !is_avoided(notes[i], search->precision);
    }
    dt_descriptors_close(&d);
    return allowed;
}

/* True if `out`, with its configuration, can run within the limit. */
static bool plan(const struct dt_engine_search *search, struct dt_engine *out, cudnnStatus_t *why)
{
    struct dt_descriptors d = {0};
    int64_t n = 0, workspace = 0;
    out->execution = dt_descriptor_create(&d, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    if (search->device == NULL) {
        dt_descriptor_set(&d, out->execution, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE,
                          1, &search->handle);
    } else {
        dt_descriptor_set_descriptor(&d, out->execution, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP,
                                     search->device);
    }
    dt_descriptor_set_descriptor(&d, out->execution, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG,
                                 out->config);
    dt_descriptor_finalize(&d, out->execution);
    dt_descriptor_get(&d, out->execution, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                      CUDNN_TYPE_INT64, 1, &n, &workspace);
    *why = d.status;
    out->workspace_bytes = (size_t)workspace;
    return d.status == CUDNN_STATUS_SUCCESS && out->workspace_bytes <= search->workspace_limit;
}

/* Returns configurations, which the caller destroys. cuDNN at times returns fewer than it
 * announced. */
static int ask_heuristics(const struct dt_engine_search *search, cudnnBackendHeurMode_t mode,
                          cudnnBackendDescriptor_t configs[MAX_CONFIGS], cudnnStatus_t *why)
{
    struct dt_descriptors d = {0};
    int64_t n = 0, n_filled = 0;
    int n_made = 0;
    cudnnBackendDescriptor_t heuristics =
        dt_descriptor_create_owned(&d, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    dt_descriptor_set_descriptor(&d, heuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH,
                                 search->graph);
    dt_descriptor_set(&d, heuristics, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    if (search->device != NULL) {
        dt_descriptor_set_descriptor(&d, heuristics, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP,
                                     search->device);
    }
    dt_descriptor_finalize(&d, heuristics);
    dt_descriptor_get(&d, heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                      0, &n, NULL);
    while (d.status == CUDNN_STATUS_SUCCESS && n_made < n && n_made < MAX_CONFIGS) {
        configs[n_made] = dt_descriptor_create(&d, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
        n_made += configs[n_made] != NULL;
    }
    dt_descriptor_get(&d, heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                      n_made, &n_filled, configs);
    *why = d.status;
    dt_descriptors_close(&d);
    while (n_made > n_filled) {
        dt_descriptor_destroy(configs[--n_made]);
    }
    return n_made;
}

static bool has_number(const struct dt_engine *engines, int n, int64_t number)
{
    while (n > 0 && engines[n - 1].number != number) {
        n--;
    }
    return n > 0;
}

static int find_by_mode(const struct dt_engine_search *search, cudnnBackendHeurMode_t mode,
                        int capacity, struct dt_engine *out, cudnnStatus_t *why)
{
    cudnnBackendDescriptor_t configs[MAX_CONFIGS];
    struct dt_engine all[MAX_CONFIGS];
    const int n = ask_heuristics(search, mode, configs, why);
    int n_found = 0;
    for (int i = 0; i < n; i++) {
        all[i] = (struct dt_engine){.config = configs[i], .place = i + 1};
        if (!is_allowed(search, configs[i], &all[i].number)) {
            dt_engine_close(&all[i]);
        }
    }
    for (int again = 0; again <= 1; again++) {
        for (int i = 0; i < n && n_found < capacity; i++) {
            if (all[i].config == NULL || (again == 0 ? n_found == DT_FIRST_ENGINES
                                                     : has_number(out, n_found, all[i].number))) {
                continue;
            }
            if (plan(search, &all[i], why)) {
                out[n_found++] = all[i];
                all[i] = (struct dt_engine){0};
            } else {
                dt_engine_close(&all[i]);
            }
        }
    }
    for (int i = 0; i < n; i++) {
        dt_engine_close(&all[i]);
    }
    return n_found;
}

/* Each mode is queried only if the one before finds no engine. */
int dt_engines_find(const struct dt_engine_search *search, int capacity, struct dt_engine *out,
                    cudnnStatus_t *why)
{
    static const cudnnBackendHeurMode_t modes[] = {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_B,
                                                   CUDNN_HEUR_MODE_FALLBACK};
    int n = 0;
    for (int i = 0; i < 3 && n == 0; i++) {
        n = find_by_mode(search, modes[i], capacity, out, why);
    }
    return n;
}

void dt_engine_close(struct dt_engine *engine)
{
    dt_descriptor_destroy(engine->execution);
    dt_descriptor_destroy(engine->config);
    *engine = (struct dt_engine){0};
}
