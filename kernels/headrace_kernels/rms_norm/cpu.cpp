#include "normalise.h"

#include "../cpu/parallel.h"

namespace headrace::HEADRACE_ISA {
namespace {

template <class X, class R>
void add(const X* x, const R* residual, R* total, int64_t size) {
    for_each_vector(
        size, [&](int64_t i) { store(total + i, load(residual + i) + load(x + i)); },
        [&](int64_t i, int64_t count) {
            store_part(total + i, load_part(residual + i, count) + load_part(x + i, count), count);
        });
}

// Calls f with a null pointer of the stored type, for its type only.
template <class F>
void with_type(int32_t dtype, F f) {
    if (dtype == kBFloat16) {
        f(static_cast<BFloat16*>(nullptr));
    } else {
        f(static_cast<float*>(nullptr));
    }
}

template <class P>
struct Pointee;
template <class T>
struct Pointee<T*> {
    using Type = T;
};

}  // namespace
}  // namespace headrace::HEADRACE_ISA

// Normalises num_tokens * num_heads rows of `size`; a token's heads are side by side, `stride` elements from the
// next token's. num_heads is 1 for a plain matrix.
HEADRACE_ENTRY(rms_norm)
(const void* x, int64_t stride, int32_t x_dtype, const void* weight, int32_t weight_dtype, void* out,
 int64_t num_tokens, int64_t num_heads, int64_t size, float eps, int32_t threads) {
    using namespace headrace;
    using namespace headrace::HEADRACE_ISA;
    with_type(x_dtype, [&](auto x_type) {
        with_type(weight_dtype, [&](auto weight_type) {
            using X = typename Pointee<decltype(x_type)>::Type;
            using W = typename Pointee<decltype(weight_type)>::Type;
            parallel_for(threads, num_tokens, row_grain(num_heads * size), [&](int64_t begin, int64_t end) {
                for (int64_t row = begin * num_heads; row < end * num_heads; row++) {
                    const X* from = static_cast<const X*>(x) + row / num_heads * stride + row % num_heads * size;
                    normalise(from, static_cast<const W*>(weight), static_cast<W*>(out) + row * size, size, eps);
                }
            });
        });
    });
    return kOk;
}

HEADRACE_ENTRY(add_rms_norm)
(const void* x, int64_t x_stride, int32_t x_dtype, const void* residual, int64_t residual_stride,
 int32_t residual_dtype, const void* weight, int32_t weight_dtype, void* normed, void* total, int64_t num_tokens,
 int64_t size, float eps, int32_t threads) {
    using namespace headrace;
    using namespace headrace::HEADRACE_ISA;
    with_type(x_dtype, [&](auto x_type) {
        with_type(residual_dtype, [&](auto residual_type) {
            with_type(weight_dtype, [&](auto weight_type) {
                using X = typename Pointee<decltype(x_type)>::Type;
                using R = typename Pointee<decltype(residual_type)>::Type;
                using W = typename Pointee<decltype(weight_type)>::Type;
                parallel_for(threads, num_tokens, row_grain(size), [&](int64_t begin, int64_t end) {
                    for (int64_t row = begin; row < end; row++) {
                        R* sums = static_cast<R*>(total) + row * size;
                        add(static_cast<const X*>(x) + row * x_stride,
                            static_cast<const R*>(residual) + row * residual_stride, sums, size);
                        normalise(sums, static_cast<const W*>(weight), static_cast<W*>(normed) + row * size, size, eps);
                    }
                });
            });
        });
    });
    return kOk;
}
