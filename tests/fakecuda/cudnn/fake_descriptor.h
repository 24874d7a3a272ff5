/* Fake cuDNN's descriptors: which attributes each kind takes, and what finalizing checks. */
#ifndef DT_TESTS_FAKE_DESCRIPTOR_H
#define DT_TESTS_FAKE_DESCRIPTOR_H

#include <string.h>

#include <map>
#include <set>
#include <string>

#include "tests/fakecuda/cudnn/fake_convolution.h"

namespace fake_cudnn {

#define NEED(condition, status)                             \
    do {                                                    \
        if (!(condition)) {                                 \
            return fail(CUDNN_STATUS_##status, #condition); \
        }                                                   \
    } while (0)
#define PASS_ON(call)                         \
    do {                                      \
        const cudnnStatus_t status = (call);  \
        if (status != CUDNN_STATUS_SUCCESS) { \
            return status;                    \
        }                                     \
    } while (0)

/* The text is that of cudnnGetLastErrorString. */
cudnnStatus_t fail(cudnnStatus_t status, const char *text);

struct attribute {
    int64_t count;
    std::vector<char> bytes;
};

struct descriptor {
    cudnnBackendDescriptorType_t type;
    bool finalized;
    std::map<cudnnBackendAttributeName_t, attribute> attributes;
    /* Results of finalizing, or of the heuristics. */
    tensor shape;
    convolution problem;
    cudnnHandle_t handle;
    std::vector<const engine *> found;
    const engine *chosen;

    template <typename type> type get(cudnnBackendAttributeName_t name, size_t i = 0) const
    {
        type value;
        memcpy(&value, attributes.at(name).bytes.data() + i * sizeof value, sizeof value);
        return value;
    }
    descriptor *operand(cudnnBackendAttributeName_t name, size_t i = 0) const;
};

extern std::set<cudnnHandle_t> handles;
extern std::set<descriptor *> descriptors;
extern std::string last_error;

size_t size_of(cudnnBackendAttributeType_t type);

descriptor *known(cudnnBackendDescriptor_t pointer); /* nullptr: not a living one */

cudnnStatus_t finalize(descriptor *d);

} // namespace fake_cudnn

#endif
