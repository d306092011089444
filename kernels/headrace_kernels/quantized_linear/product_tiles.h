// The product of product.h in AMX's tiles. A group is half a tile of K, for it has scales of its own: a tile product
// gives its exact sums for 16 rows by 16 columns, and lanes scale and add them in the order of groups, as they do where
// there are no tiles. So the bits are the same.
#pragma once

#include "product.h"

namespace headrace::HEADRACE_ISA {
namespace quantized {

static_assert(EightBitProducts::kInner == kGroup, "a tile product is one group");

// How many of `rows` rows are worth it: whole tiles, and a last one unless it has few rows.
constexpr int64_t rows_in_tiles(int64_t rows) {
    const int64_t last = rows % kTileRows;
    return rows - last + (last >= EightBitProducts::kLeastRows ? last : 0);
}

// The four lines of a group of 4-bit quants as eight lines of 8-bit ones.
inline void widen_lines(const uint8_t* lines, uint8_t* wide) {
    constexpr int64_t kBytes = 4 * kLine;
    for (int64_t i = 0; i < kBytes; i++) {
        wide[i] = lines[i] & 15;
        wide[kBytes + i] = lines[i] >> 4;
    }
}

// One panel for at most 16 rows.
template <Kind KIND>
void multiply_tile(const Weight& weight, const uint8_t* panel, const TileGroup* tiles, int64_t rows, float* out,
                   int64_t out_stride, Ahead ahead) {
    constexpr int kSums = EightBitProducts::kSums, kRows = EightBitProducts::kRows, kPanel = EightBitProducts::kColumns;
    alignas(kLine) int32_t sums[kTileRows][kColumns];
    alignas(kLine) uint8_t wide[8 * kLine];
    Floats totals[kTileRows];
    for (Floats& total : totals) total = zeros();
    const uint8_t* quants = panel + factor_bytes(KIND, weight.groups);
    for (int64_t g = 0; g < weight.groups; g++, quants += lines_of_group(KIND) * kLine) {
        ahead.fetch(g);
        const TileGroup& tile = tiles[g];
        if constexpr (KIND != kInt8) widen_lines(quants, wide);
        tile_zero<kSums>();
        tile_load<kRows>(tile.quants, kGroup);
        tile_load<kPanel>(KIND == kInt8 ? quants : wide, kLine);
        tile_multiply_eight_bits<kSums, kRows, kPanel>();
        tile_store<kSums>(sums, kLine);
        const Factors factors = load_factors<KIND>(panel, g);
        for (int64_t r = 0; r < kTileRows; r++) {
            const Ints sum = load_ints(sums[r]) + spread(first_sum<KIND>(tile.biases[r]));
            add_group<KIND>(tile, r, factors, sum, totals[r]);
        }
    }
    for (int64_t r = 0; r < rows; r++) store(out + r * out_stride, totals[r]);
}

template <Kind KIND>
void product_in_tiles(const Weight& weight, int64_t panel, int64_t panels, const TileGroup* tiles, int64_t rows,
                      float* out, int64_t out_stride) {
    const int64_t fetched = ceil_div(ceil_div(weight.stride(), weight.groups), kLine) * kLine;
    for (const int64_t end = panel + panels; panel < end; panel++, out += kColumns) {
        const uint8_t* at = weight.data + panel * weight.stride();
        const Ahead next{at + weight.stride(), panel + 1 < weight.panels ? fetched : 0}, nothing{nullptr, 0};
        for (int64_t row = 0; row < rows; row += kTileRows) {
            const int64_t some = rows - row < kTileRows ? rows - row : kTileRows;
            multiply_tile<KIND>(weight, at, tiles + row / kTileRows * weight.groups, some, out + row * out_stride,
                                out_stride, row == 0 ? next : nothing);
        }
    }
}

}  // namespace quantized
}  // namespace headrace::HEADRACE_ISA
