#include <cstring>

#include "../cpu/parallel.h"
#include "noise.h"

namespace headrace::HEADRACE_ISA {
namespace {

constexpr int64_t kTaskTokens = 4096;

// Tokens [begin, end) of a row; begin is a multiple of kTokens.
void noise(uint64_t seed, uint64_t index, int64_t begin, int64_t end, float* row) {
    alignas(64) uint64_t quads[gumbel::kCounters];
    alignas(64) float values[gumbel::kTokens];
    for (int64_t token = begin; token < end; token += gumbel::kTokens) {
        for (int i = 0; i < gumbel::kCounters; i++) quads[i] = static_cast<uint64_t>(token) / 4 + i;
        gumbel::noise_of(gumbel::philox(seed, index, quads), values);
        const int64_t count = end - token < gumbel::kTokens ? end - token : gumbel::kTokens;
        std::memcpy(row + token, values, static_cast<size_t>(count) * sizeof(float));
    }
}

}  // namespace
}  // namespace headrace::HEADRACE_ISA

HEADRACE_ENTRY(gumbel_noise)
(const uint64_t* seeds, const uint64_t* indices, float* out, int64_t num_rows, int64_t vocab_size, int32_t threads) {
    using namespace headrace;
    using namespace headrace::HEADRACE_ISA;
    const int64_t pieces = (vocab_size + kTaskTokens - 1) / kTaskTokens;
    parallel_for(threads, num_rows * pieces, 1, [&](int64_t first, int64_t last) {
        for (int64_t task = first; task < last; task++) {
            const int64_t row = task / pieces, begin = task % pieces * kTaskTokens;
            const int64_t end = begin + kTaskTokens < vocab_size ? begin + kTaskTokens : vocab_size;
            noise(seeds[row], indices[row], begin, end, out + row * vocab_size);
        }
    });
    return kOk;
}
