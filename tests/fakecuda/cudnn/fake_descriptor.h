/* Fake cuDNN's descriptors: which attributes each kind takes, and what finalizing checks. */
#ifndef DT_TESTS_FAKE_DESCRIPTOR_H
#define DT_TESTS_FAKE_DESCRIPTOR_H

#include <string.h>

#include <map>
#include <string>

#include "tests/fakecuda/cudnn/fake_convolution.h"
#include "tests/fakecuda/fake.h"

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

    bool has(cudnnBackendAttributeName_t name) const
    {
        return attributes.count(name) != 0;
    }
    size_t count(cudnnBackendAttributeName_t name) const
    {
        return (size_t)attributes.at(name).count;
    }
    template <typename type> type get(cudnnBackendAttributeName_t name, size_t i = 0) const
    {
        type value;
        memcpy(&value, attributes.at(name).bytes.data() + i * sizeof value, sizeof value);
        return value;
    }
    template <size_t n> void get_all(cudnnBackendAttributeName_t name, int64_t (&values)[n]) const
    {
        memcpy(values, attributes.at(name).bytes.data(), sizeof values);
    }
    descriptor *operand(cudnnBackendAttributeName_t name, size_t i = 0) const;
};

extern fake_living<descriptor> descriptors;
extern std::string last_error;

size_t size_of(cudnnBackendAttributeType_t type);

descriptor *known(cudnnBackendDescriptor_t pointer); /* nullptr: not a living one */

cudnnStatus_t finalize(descriptor *d);

} // namespace fake_cudnn

#endif
