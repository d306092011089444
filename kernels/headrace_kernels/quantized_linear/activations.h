// Rows of float32 or bfloat16 to tiles of int8, a scale for each 32 elements. The bits are the same on every
// instruction set.
#pragma once

#include "../cpu/eight_bits.h"
#include "formats.h"

namespace headrace::HEADRACE_ISA {
namespace quantized {

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

// One row's 32 elements.
inline void quantize_group(const float* x, TileGroup& tile, int64_t row) {
    const EightBits rounded = round_to_eight_bits(x, kGroup, tile.quants[row]);
    tile.scales[row] = rounded.scale;
    tile.sums[row] = rounded.scale * static_cast<float>(rounded.sum);
    tile.biases[row] = -128 * rounded.sum;
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
