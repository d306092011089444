// No operation here is fused or approximate, only ones that IEEE 754 rounds exactly: so the bits are the same with
// every instruction set. That is why it has vectors of its own and not those of cpu/vector.h, which fuse.
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "../cpu/isa.h"
#include "../cpu/parallel.h"

namespace headrace::HEADRACE_ISA {
namespace {

#if defined(__AVX512F__)
constexpr int kVectorBytes = 64;
#elif defined(__AVX2__)
constexpr int kVectorBytes = 32;
#else
constexpr int kVectorBytes = 16;
#endif

typedef uint64_t Words __attribute__((vector_size(kVectorBytes)));  // a 32-bit word in the low half of each lane
typedef float Floats __attribute__((vector_size(kVectorBytes)));
typedef int32_t Ints __attribute__((vector_size(kVectorBytes)));

constexpr int kCounters = kVectorBytes / 8;  // Philox counters computed side by side
constexpr int kTokens = 4 * kCounters;       // each gives four words
constexpr int kLanes = kVectorBytes / 4;
constexpr int64_t kTaskTokens = 4096;

// The 64-bit products of the low halves.
inline Words multiply(Words a, uint32_t b) {
#if defined(__AVX512F__)
    return (Words)_mm512_mul_epu32((__m512i)a, _mm512_set1_epi64(b));
#elif defined(__AVX2__)
    return (Words)_mm256_mul_epu32((__m256i)a, _mm256_set1_epi64x(b));
#elif defined(__x86_64__)
    return (Words)_mm_mul_epu32((__m128i)a, _mm_set1_epi64x(b));
#else
    return (a & 0xffffffff) * b;
#endif
}

// The words of kCounters consecutive counters that begin with (group, index), in the order of tokens.
inline void philox(uint64_t seed, uint64_t index, uint64_t group, uint32_t* words) {
    Words a, b = Words{} + (index & 0xffffffff), c = Words{} + (index >> 32), d = {};
    for (int i = 0; i < kCounters; i++) a[i] = group + i;
    uint32_t low = static_cast<uint32_t>(seed), high = static_cast<uint32_t>(seed >> 32);
    for (int round = 0; round < 10; round++) {
        // High halves may hold anything: products don't read them.
        const Words left = multiply(a, 0xD2511F53), right = multiply(c, 0xCD9E8D57);
        a = (right >> 32) ^ b ^ low;
        b = right;
        c = (left >> 32) ^ d ^ high;
        d = left;
        low += 0x9E3779B9;
        high += 0xBB67AE85;
    }
    for (int i = 0; i < kCounters; i++) {
        words[4 * i] = static_cast<uint32_t>(a[i]);
        words[4 * i + 1] = static_cast<uint32_t>(b[i]);
        words[4 * i + 2] = static_cast<uint32_t>(c[i]);
        words[4 * i + 3] = static_cast<uint32_t>(d[i]);
    }
}

// Natural logarithm of positive, normal floats, within 2 ulp.
inline Floats log(Floats x) {
    // x = m * 2^e with m in [sqrt(1/2), sqrt(2)): the exponent is counted from sqrt(1/2)'s bits.
    constexpr int32_t kRootOfHalf = 0x3f3504f3;
    const Ints above = (Ints)x - kRootOfHalf;
    const Floats e = __builtin_convertvector(above >> 23, Floats);
    const Floats f = (Floats)((above & 0x007fffff) + kRootOfHalf) - 1.0f, square = f * f;
    Floats p = Floats{} + 7.0376836292e-2f;
    p = p * f + -1.1514610310e-1f;
    p = p * f + 1.1676998740e-1f;
    p = p * f + -1.2420140846e-1f;
    p = p * f + 1.4249322787e-1f;
    p = p * f + -1.6668057665e-1f;
    p = p * f + 2.0000714765e-1f;
    p = p * f + -2.4999993993e-1f;
    p = p * f + 3.3333331174e-1f;
    // ln 2 in two parts, the first of few bits, so that e times it is exact.
    const Floats tail = p * f * square + e * -2.12194440e-4f - 0.5f * square;
    return f + tail + e * 0.693359375f;
}

inline void noise(const uint32_t* words, float* out) {
    for (int i = 0; i < kTokens; i += kLanes) {
        Ints word;
        std::memcpy(&word, words + i, sizeof word);
        const Ints high_bits = word >> 9 & 0x007fffff;
        const Floats u = (__builtin_convertvector(high_bits, Floats) + 0.5f) * 0x1p-23f;
        const Floats value = 0.0f - log(0.0f - log(u));
        std::memcpy(out + i, &value, sizeof value);
    }
}

// Tokens [begin, end) of a row; begin is a multiple of kTokens.
void noise(uint64_t seed, uint64_t index, int64_t begin, int64_t end, float* row) {
    alignas(64) uint32_t words[kTokens];
    alignas(64) float values[kTokens];
    for (int64_t token = begin; token < end; token += kTokens) {
        philox(seed, index, static_cast<uint64_t>(token) / 4, words);
        noise(words, values);
        const int64_t count = end - token < kTokens ? end - token : kTokens;
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
