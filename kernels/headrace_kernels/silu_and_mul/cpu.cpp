#include "gated.h"

#include "../cpu/parallel.h"

namespace headrace::HEADRACE_ISA {
namespace {

template <class T>
void silu_and_mul(const T* gate_up, int64_t stride, T* out, int64_t num_tokens, int64_t size, int threads) {
    parallel_for(threads, num_tokens, row_grain(2 * size), [&](int64_t begin, int64_t end) {
        for (int64_t t = begin; t < end; t++) {
            const T *gate = gate_up + t * stride, *up = gate + size;
            T* to = out + t * size;
            for_each_vector(
                size, [&](int64_t i) { store(to + i, gated(load(gate + i), load(up + i))); },
                [&](int64_t i, int64_t count) {
                    store_part(to + i, gated(load_part(gate + i, count), load_part(up + i, count)), count);
                });
        }
    });
}

}  // namespace
}  // namespace headrace::HEADRACE_ISA

HEADRACE_ENTRY(silu_and_mul)
(const void* gate_up, int64_t stride, int32_t dtype, void* out, int64_t num_tokens, int64_t size, int32_t threads) {
    using namespace headrace;
    using headrace::HEADRACE_ISA::silu_and_mul;
    if (dtype == kBFloat16) {
        silu_and_mul(static_cast<const BFloat16*>(gate_up), stride, static_cast<BFloat16*>(out), num_tokens, size,
                     threads);
    } else {
        silu_and_mul(static_cast<const float*>(gate_up), stride, static_cast<float*>(out), num_tokens, size, threads);
    }
    return kOk;
}
