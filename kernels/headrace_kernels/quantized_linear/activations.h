// Rows of float32 or bfloat16 to tiles of int8, a scale for each 32 elements.
//
// Only correctly rounded operations on single elements, written as loops that the compiler makes vectors of: the bits
// are the same on every instruction set.
#pragma once

#include <cstring>

#include "../cpu/vector.h"
#include "formats.h"

namespace headrace::HEADRACE_ISA {
namespace quantized {

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

inline float element(float a) { return a; }
inline float element(BFloat16 a) { return headrace::HEADRACE_ISA::widen(a); }

// The first `count` of x, then zeros.
template <class T>
inline void widen(const T* x, int64_t count, float* out) {
    if (count == kGroup) {
        for (int64_t i = 0; i < kGroup; i++) out[i] = element(x[i]);
        return;
    }
    for (int64_t i = 0; i < kGroup; i++) out[i] = i < count ? element(x[i]) : 0.0f;
}

// One row's 32 elements. A NaN or an infinity makes the scale NaN, and so every product with it.
inline void quantize_group(const float* x, TileGroup& tile, int64_t row) {
    constexpr uint32_t kInfinity = 0x7f800000;
    constexpr float kLargest = 127.0f;
    constexpr float kLeast = 1e-30f;  // smaller ones count as zero: 127 / largest must be finite
    uint32_t largest_bits = 0;
    for (int64_t i = 0; i < kGroup; i++) {
        const uint32_t bits = bits_of(x[i]) & 0x7fffffff;
        largest_bits = bits > largest_bits ? bits : largest_bits;
    }
    const float largest = from_bits(largest_bits);
    const bool finite = largest_bits < kInfinity;
    const float inverse = finite && largest >= kLeast ? kLargest / largest : 0.0f;
    int32_t sum = 0;
    if (inverse > 0.0f) {
        for (int64_t i = 0; i < kGroup; i++) {
            // Rounds to nearest even; |x| * inverse is at most 127 and a few ulp, so no quant is beyond 127.
            const float shifted = x[i] * inverse + kRoundingShift;
            const int32_t quant = static_cast<int32_t>(bits_of(shifted) - bits_of(kRoundingShift));
            tile.quants[row][i] = static_cast<int8_t>(quant);
            sum += quant;
        }
    } else {
        std::memset(tile.quants[row], 0, kGroup);
    }
    const float scale = finite ? (inverse > 0.0f ? largest / kLargest : 0.0f) : from_bits(0x7fc00000);
    tile.scales[row] = scale;
    tile.sums[row] = scale * static_cast<float>(sum);
    tile.biases[row] = -128 * sum;
}

// Groups [begin, end) of the tile of `rows` <= 16 rows of x, `stride` elements apart; rows beyond them are zeros.
template <class T>
void quantize_tile(const T* x, int64_t stride, int64_t rows, int64_t inner, int64_t begin, int64_t end,
                   TileGroup* tiles) {
    for (int64_t row = 0; row < kTileRows; row++) {
        for (int64_t g = begin; g < end; g++) {
            float values[kGroup] = {};
            const int64_t left = inner - g * kGroup;
            if (row < rows) widen(x + row * stride + g * kGroup, left < kGroup ? left : kGroup, values);
            quantize_group(values, tiles[g], row);
        }
    }
}

}  // namespace quantized
}  // namespace headrace::HEADRACE_ISA
