// Gumbel noise of tokens anywhere in the vocabulary; __init__.py defines it.
//
// No operation here is fused or approximate, only ones that IEEE 754 rounds exactly: so the bits are the same with
// every instruction set. That is why it has vectors of its own and not those of cpu/vector.h, which fuse.
#pragma once

#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "../cpu/isa.h"

namespace headrace::HEADRACE_ISA::gumbel {

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

// The four words of each of kCounters counters: in each 64-bit lane two words, the first in its low half.
struct Block {
    Words first, second;
};

// Of the counters (quads[i], index): a quad is four tokens, 4 * quad and the next three, and each gets a word.
inline Block philox(uint64_t seed, uint64_t index, const uint64_t* quads) {
    Words a, b = Words{} + (index & 0xffffffff), c = Words{} + (index >> 32), d = {};
    std::memcpy(&a, quads, sizeof a);
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
    return {(a & 0xffffffff) | b << 32, (c & 0xffffffff) | d << 32};
}

// The words in the order of tokens.
inline void store_words(const Block& block, uint32_t* words) {
    uint64_t first[kCounters], second[kCounters];
    std::memcpy(first, &block.first, sizeof first);
    std::memcpy(second, &block.second, sizeof second);
    for (int i = 0; i < kCounters; i++) {
        std::memcpy(words + 4 * i, &first[i], sizeof first[i]);
        std::memcpy(words + 4 * i + 2, &second[i], sizeof second[i]);
    }
}

// Whether u, as a whole number below 2^23, is at least `least` for some token of the block.
inline bool any_at_least(const Block& block, int32_t least) {
    const Ints first = (Ints)block.first >> 9 & 0x007fffff, second = (Ints)block.second >> 9 & 0x007fffff;
    const Ints found = (first >= least) | (second >= least);
#if defined(__AVX512F__)
    return _mm512_test_epi32_mask((__m512i)found, (__m512i)found) != 0;
#elif defined(__AVX2__)
    return _mm256_movemask_epi8((__m256i)found) != 0;
#elif defined(__x86_64__)
    return _mm_movemask_epi8((__m128i)found) != 0;
#else
    int32_t any = 0;
    for (int i = 0; i < kLanes; i++) any |= found[i];
    return any != 0;
#endif
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

// Noise of the kTokens tokens of the block, in their order.
inline void noise_of(const Block& block, float* out) {
    alignas(64) uint32_t words[kTokens];
    store_words(block, words);
    for (int i = 0; i < kTokens; i += kLanes) {
        Ints word;
        std::memcpy(&word, words + i, sizeof word);
        const Ints high_bits = word >> 9 & 0x007fffff;
        const Floats u = (__builtin_convertvector(high_bits, Floats) + 0.5f) * 0x1p-23f;
        const Floats value = 0.0f - log(0.0f - log(u));
        std::memcpy(out + i, &value, sizeof value);
    }
}

}  // namespace headrace::HEADRACE_ISA::gumbel
