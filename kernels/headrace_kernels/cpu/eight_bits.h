// Floats to int8, as many as have one scale together.
//
// Only correctly rounded operations on single elements, written as loops that the compiler makes vectors of: the bits
// are the same on every instruction set.
#pragma once

#include <cstring>

#include "vector.h"

namespace headrace::HEADRACE_ISA {

inline uint32_t bits_of(float a) {
    uint32_t bits;
    std::memcpy(&bits, &a, sizeof bits);
    return bits;
}

inline float from_bits(uint32_t bits) {
    float a;
    std::memcpy(&a, &bits, sizeof a);
    return a;
}

// What x was rounded to: about scale * quants.
struct EightBits {
    float scale;
    int32_t sum;  // of the quants
};

// Quants are in [-127, 127]. A NaN or an infinity makes the scale NaN, and so every product with it.
inline EightBits round_to_eight_bits(const float* x, int64_t count, int8_t* quants) {
    constexpr uint32_t kInfinity = 0x7f800000;
    constexpr float kLargest = 127.0f;
    constexpr float kLeast = 1e-30f;  // smaller ones count as zero: 127 / largest must be finite
    uint32_t largest_bits = 0;
    for (int64_t i = 0; i < count; i++) {
        const uint32_t bits = bits_of(x[i]) & 0x7fffffff;
        largest_bits = bits > largest_bits ? bits : largest_bits;
    }
    const float largest = from_bits(largest_bits);
    const bool finite = largest_bits < kInfinity;
    if (!finite || largest < kLeast) {
        std::memset(quants, 0, count);
        return {finite ? 0.0f : from_bits(0x7fc00000), 0};
    }
    const float inverse = kLargest / largest;
    int32_t sum = 0;
    for (int64_t i = 0; i < count; i++) {
        // Rounds to nearest even; |x| * inverse is at most 127 and a few ulp, so no quant is beyond 127.
        const float shifted = x[i] * inverse + kRoundingShift;
        const int32_t quant = static_cast<int32_t>(bits_of(shifted) - bits_of(kRoundingShift));
        quants[i] = static_cast<int8_t>(quant);
        sum += quant;
    }
    return {largest / kLargest, sum};
}

}  // namespace headrace::HEADRACE_ISA
