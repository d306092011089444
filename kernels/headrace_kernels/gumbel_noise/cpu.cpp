// Plain loops that the compiler turns into vector code, and no fused operation: so the bits are the same everywhere.
#include <cstring>

#include "../cpu/isa.h"
#include "../cpu/parallel.h"

namespace headrace::HEADRACE_ISA {
namespace {

constexpr int kCounters = 16;              // Philox counters computed side by side
constexpr int kTokens = 4 * kCounters;     // each gives four words
constexpr int64_t kTaskTokens = 64 * kTokens;

// Words of `kCounters` consecutive counters from (group, index), four a counter, in token order.
void philox(uint64_t seed, uint64_t index, uint32_t group, uint32_t* words) {
    uint32_t a[kCounters], b[kCounters], c[kCounters], d[kCounters];
    for (int i = 0; i < kCounters; i++) {
        a[i] = group + static_cast<uint32_t>(i);
        b[i] = static_cast<uint32_t>(index);
        c[i] = static_cast<uint32_t>(index >> 32);
        d[i] = 0;
    }
    uint32_t low = static_cast<uint32_t>(seed), high = static_cast<uint32_t>(seed >> 32);
    for (int round = 0; round < 10; round++) {
        for (int i = 0; i < kCounters; i++) {
            const uint64_t left = uint64_t{0xD2511F53} * a[i], right = uint64_t{0xCD9E8D57} * c[i];
            a[i] = static_cast<uint32_t>(right >> 32) ^ b[i] ^ low;
            b[i] = static_cast<uint32_t>(right);
            c[i] = static_cast<uint32_t>(left >> 32) ^ d[i] ^ high;
            d[i] = static_cast<uint32_t>(left);
        }
        low += 0x9E3779B9;
        high += 0xBB67AE85;
    }
    for (int i = 0; i < kCounters; i++) {
        words[4 * i] = a[i];
        words[4 * i + 1] = b[i];
        words[4 * i + 2] = c[i];
        words[4 * i + 3] = d[i];
    }
}

inline float uniform(uint32_t word) {
    return (static_cast<float>(static_cast<int32_t>(word >> 9)) + 0.5f) * 0x1p-23f;
}

// Natural logarithm of a positive, normal float, within 2 ulp.
inline float log(float x) {
    int32_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    // x = m * 2^e with m in [sqrt(1/2), sqrt(2)): the exponent is counted from sqrt(1/2)'s bits.
    const int32_t above = bits - 0x3f3504f3;
    const int32_t e = above >> 23;
    const int32_t m_bits = (above & 0x007fffff) + 0x3f3504f3;
    float m;
    std::memcpy(&m, &m_bits, sizeof m);
    const float f = m - 1.0f, n = static_cast<float>(e), square = f * f;
    float p = 7.0376836292e-2f;
    p = p * f + -1.1514610310e-1f;
    p = p * f + 1.1676998740e-1f;
    p = p * f + -1.2420140846e-1f;
    p = p * f + 1.4249322787e-1f;
    p = p * f + -1.6668057665e-1f;
    p = p * f + 2.0000714765e-1f;
    p = p * f + -2.4999993993e-1f;
    p = p * f + 3.3333331174e-1f;
    // ln 2 in two parts, the first of few bits, so that n times it is exact.
    const float tail = p * f * square + n * -2.12194440e-4f - 0.5f * square;
    return f + tail + n * 0.693359375f;
}

void noise(uint64_t seed, uint64_t index, int64_t begin, int64_t end, float* out) {
    for (int64_t token = begin; token < end; token += kTokens) {
        uint32_t words[kTokens];
        float values[kTokens];
        philox(seed, index, static_cast<uint32_t>(token / 4), words);
        for (int i = 0; i < kTokens; i++) values[i] = 0.0f - log(0.0f - log(uniform(words[i])));
        const int64_t count = end - token < kTokens ? end - token : kTokens;
        std::memcpy(out + token, values, static_cast<size_t>(count) * sizeof(float));
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
