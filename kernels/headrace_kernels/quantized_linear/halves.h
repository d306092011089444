// float16 without the hardware's help, for what happens once a group.
#pragma once

#include <cstring>

#include "activations.h"

namespace headrace::HEADRACE_ISA {
namespace quantized {

inline float half_to_float(uint16_t half) {
    const uint32_t sign = static_cast<uint32_t>(half & 0x8000) << 16;
    const uint32_t rest = static_cast<uint32_t>(half & 0x7fff);
    if (rest >= 0x7c00) return from_bits(sign | 0x7f800000 | (rest & 0x3ff) << 13);
    // The exponent is 112 too low; multiplying by 2^112 mends that, of subnormals too.
    return from_bits(bits_of(from_bits(rest << 13) * from_bits((127 + 112) << 23)) | sign);
}

inline float half_at(const uint8_t* from) {
    uint16_t half;
    std::memcpy(&half, from, sizeof half);
    return half_to_float(half);
}

// To nearest, ties to even; beyond 65504 and its half ulp, infinity.
inline uint16_t float_to_half(float a) {
    const uint32_t sign = bits_of(a) >> 16 & 0x8000;
    const uint32_t rest = bits_of(a) & 0x7fffffff;
    if (rest > 0x7f800000) return static_cast<uint16_t>(sign | 0x7e00);
    if (rest >= 0x477ff000) return static_cast<uint16_t>(sign | 0x7c00);
    if (rest < 0x38800000) {
        // Below 2^-14: adding 0.5 leaves multiples of 2^-24, float16's least, in the low bits, rounded.
        return static_cast<uint16_t>(sign | (bits_of(from_bits(rest) + 0.5f) - bits_of(0.5f)));
    }
    const uint32_t rounded = rest + 0xfff + (rest >> 13 & 1);
    return static_cast<uint16_t>(sign | (rounded - (112u << 23)) >> 13);
}

}  // namespace quantized
}  // namespace headrace::HEADRACE_ISA
