#include "rotate.h"

#include "../cpu/parallel.h"

namespace headrace::HEADRACE_ISA {
namespace {

template <class T>
struct Heads {
    T* data;
    int64_t stride, count;  // elements from token to token; heads a token

    void rotate_token(int64_t token, const float* cos_sin, int64_t half, int64_t head_dim) const {
        for (int64_t head = 0; head < count; head++) {
            T* x = data + token * stride + head * head_dim;
            rotate(x, x + half, cos_sin, cos_sin + half, half);
        }
    }
};

template <class T>
void rotary_embedding(Heads<T> query, Heads<T> key, const float* cos_sin, const int64_t* positions,
                      int64_t num_tokens, int64_t head_dim, int64_t rotary_dim, int threads) {
    const int64_t elements = (query.count + key.count) * rotary_dim;
    parallel_for(threads, num_tokens, row_grain(elements), [&](int64_t begin, int64_t end) {
        for (int64_t t = begin; t < end; t++) {
            const float* angles = cos_sin + positions[t] * rotary_dim;
            query.rotate_token(t, angles, rotary_dim / 2, head_dim);
            key.rotate_token(t, angles, rotary_dim / 2, head_dim);
        }
    });
}

}  // namespace
}  // namespace headrace::HEADRACE_ISA

// kBadArgument: a position is out of range, and nothing was written.
HEADRACE_ENTRY(rotary_embedding)
(void* query, int64_t query_stride, int64_t num_heads, void* key, int64_t key_stride, int64_t num_kv_heads,
 int32_t dtype, const float* cos_sin, const int64_t* positions, int64_t num_tokens, int64_t head_dim,
 int64_t max_positions, int64_t rotary_dim, int32_t threads) {
    using namespace headrace;
    using namespace headrace::HEADRACE_ISA;
    for (int64_t t = 0; t < num_tokens; t++) {
        if (positions[t] < 0 || positions[t] >= max_positions) return kBadArgument;
    }
    if (dtype == kBFloat16) {
        const Heads<BFloat16> q{static_cast<BFloat16*>(query), query_stride, num_heads};
        const Heads<BFloat16> k{static_cast<BFloat16*>(key), key_stride, num_kv_heads};
        rotary_embedding(q, k, cos_sin, positions, num_tokens, head_dim, rotary_dim, threads);
    } else {
        const Heads<float> q{static_cast<float*>(query), query_stride, num_heads};
        const Heads<float> k{static_cast<float*>(key), key_stride, num_kv_heads};
        rotary_embedding(q, k, cos_sin, positions, num_tokens, head_dim, rotary_dim, threads);
    }
    return kOk;
}
