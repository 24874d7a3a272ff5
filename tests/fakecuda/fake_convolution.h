/* What fake cuDNN computes: the problem, its memory, and the engines that solve it. */
#ifndef DT_TESTS_FAKE_CONVOLUTION_H
#define DT_TESTS_FAKE_CONVOLUTION_H

#include <cudnn.h>
#include <stdint.h>

#include <vector>

#if CUDNN_VERSION < 90100
#define CUDNN_NUMERICAL_NOTE_STRICT_NAN_PROP ((cudnnBackendNumericalNote_t)9)
#endif

namespace fake_cudnn {

enum operand { X, FILTER, Y, BIAS };
constexpr const char *operand_names[] = {"x", "the filter", "y", "the bias"};

struct tensor {
    int64_t id, dims[4], align; /* dims: N C H W or K C R S */
    cudnnDataType_t type;

    size_t n_elems() const
    {
        return (size_t)(dims[0] * dims[1] * dims[2] * dims[3]);
    }
    size_t n_bytes() const
    {
        return n_elems() * (type == CUDNN_DATA_FLOAT ? sizeof(float) : sizeof(uint16_t));
    }
    /* Index for channel 0: channels are innermost. */
    size_t at(int64_t n, int64_t h, int64_t w) const
    {
        return (size_t)(((n * dims[2] + h) * dims[3] + w) * dims[1]);
    }
};

struct convolution {
    operand result; /* Y, or the gradient of X or FILTER */
    tensor of[4];
    bool with_relu, keeps_nans; /* y = relu(convolution + bias); keeps_nans: relu of NaN is NaN */
    int64_t strides[2], before[2], after[2];

    int n_operands() const
    {
        return with_relu ? BIAS + 1 : BIAS;
    }
};

struct operands {
    void *at[4], *workspace;
};

struct engine {
    const char *name;
    int64_t number, workspace;
    std::vector<cudnnBackendNumericalNote_t> notes;

    /* Else running it is a mistake of the caller. */
    bool allowed() const
    {
        return number == 0 || number > 3;
    }
    /* Reads floats as tf32, and takes NaN for a number, whatever the attribute says. */
    bool on_tensor_cores() const
    {
        return number == 4;
    }
};

/* What the heuristics answer. */
std::vector<const engine *> engines_of(const convolution &c, cudnnBackendHeurMode_t mode);

void run(const convolution &c, const operands &memory, const engine &by);

} // namespace fake_cudnn

#endif
