// The product of quantized rows with panels of quantized weights.
//
//   y[row][column] = sum over groups, in rising order, of
//       (row's scale * column's scale) * (exact sum of quants' products) + row's sum * column's minimum
//
// in float32, one fma for each of the two terms. Nothing in it depends on which rows or panels are computed together:
// a row's bits are its own.
#pragma once

#include "activations.h"
#include "formats.h"
#include "lanes.h"
#include "multiply.h"

namespace headrace::HEADRACE_ISA {
namespace quantized {

struct Factors {
    Floats scale, minimum;
};

template <Kind KIND>
inline Factors load_factors(const uint8_t* panel, int64_t group) {
    if constexpr (KIND == kInt4Nested) {
        const uint8_t* shared = panel + nested_shared(group);
        const uint8_t* own = panel + nested_own(group);
        const Floats minus = spread(-1.0f) * load_bytes(own + kColumns);
        return {load_halves(shared) * load_bytes(own), load_halves(shared + 2 * kColumns) * minus};
    } else if constexpr (KIND == kInt4) {
        const uint8_t* both = panel + group * 4 * kColumns;
        return {load_halves(both), load_halves(both + 2 * kColumns)};
    } else {
        return {load_halves(panel + group * 2 * kColumns), zeros()};
    }
}

// What a row's sums of unsigned quants begin with. The minimum of a symmetric kind is a whole number of scales, so it can
// be part of the exact sum.
template <Kind KIND>
constexpr int32_t first_sum(int32_t bias) {
    return KIND == kInt8 ? bias : KIND == kInt4Symmetric ? bias / 16 : 0;
}

// Adds a group's exact sum, scaled, to what row r of the tile has of a panel.
template <Kind KIND>
inline void add_group(const TileGroup& tile, int64_t r, const Factors& factors, const Ints& sum, Floats& total) {
    total = fma(spread(tile.scales[r]) * factors.scale, to_floats(sum), total);
    if constexpr (has_minima(KIND)) total = fma(spread(tile.sums[r]), factors.minimum, total);
}

// The integer sums of one group, `ROWS` rows from `first` of the tile times PANELS panels.
template <Kind KIND, int ROWS, int PANELS>
inline void multiply_group(const TileGroup& tile, int64_t first, const uint8_t* quants, int64_t stride,
                           Ints (&sums)[ROWS][PANELS]) {
    for (int r = 0; r < ROWS; r++) {
        const int32_t start = first_sum<KIND>(tile.biases[first + r]);
        for (int p = 0; p < PANELS; p++) sums[r][p] = KIND == kInt8 ? start8(start) : spread(start);
    }
    if constexpr (KIND == kInt8) {
        for (int l = 0; l < 8; l++) {
            Quants8 line[PANELS];
            for (int p = 0; p < PANELS; p++) line[p] = load_quants(quants + p * stride + l * kLine);
            for (int r = 0; r < ROWS; r++) {
                const Four a = load_four(tile.quants[first + r] + 4 * l);
                for (int p = 0; p < PANELS; p++) sums[r][p] = dot(sums[r][p], line[p], a);
            }
        }
    } else {
        for (int l = 0; l < 4; l++) {
            Quants4 low[PANELS], high[PANELS];
            for (int p = 0; p < PANELS; p++) load_quants(quants + p * stride + l * kLine, low[p], high[p]);
            for (int r = 0; r < ROWS; r++) {
                const Four a = load_four(tile.quants[first + r] + 4 * l);
                for (int p = 0; p < PANELS; p++) sums[r][p] = dot(sums[r][p], low[p], a);
                const Four b = load_four(tile.quants[first + r] + kGroup / 2 + 4 * l);
                for (int p = 0; p < PANELS; p++) sums[r][p] = dot(sums[r][p], high[p], b);
            }
        }
    }
}

// Memory that will be read soon: fetched into the second-level cache, `per_group` bytes with each group.
struct Ahead {
    const uint8_t* from;
    int64_t per_group;

    void fetch(int64_t group) const {
        const uint8_t* begin = from + group * per_group;
        for (int64_t i = 0; i < per_group; i += kLine) __builtin_prefetch(begin + i, 0, 2);
    }
};

template <Kind KIND, int ROWS, int PANELS>
void multiply_rows(const Weight& weight, const uint8_t* panel, const TileGroup* tiles, int64_t first, float* out,
                   int64_t out_stride, Ahead ahead) {
    const int64_t stride = weight.stride();
    const uint8_t* quants = panel + factor_bytes(KIND, weight.groups);
    Floats totals[ROWS][PANELS];
    for (auto& row : totals) {
        for (Floats& total : row) total = zeros();
    }
    for (int64_t g = 0; g < weight.groups; g++, quants += lines_of_group(KIND) * kLine) {
        ahead.fetch(g);
        const TileGroup& tile = tiles[g];
        Ints sums[ROWS][PANELS];
        multiply_group<KIND, ROWS, PANELS>(tile, first, quants, stride, sums);
        for (int p = 0; p < PANELS; p++) {
            const Factors factors = load_factors<KIND>(panel + p * stride, g);
            for (int r = 0; r < ROWS; r++) add_group<KIND>(tile, first + r, factors, sums[r][p], totals[r][p]);
        }
    }
    for (int r = 0; r < ROWS; r++) {
        for (int p = 0; p < PANELS; p++) store(out + r * out_stride + p * kColumns, totals[r][p]);
    }
}

template <int N>
struct Count {
    static constexpr int kValue = N;
};

template <Kind KIND, int PANELS>
void multiply(const Weight& weight, const uint8_t* panel, const TileGroup* tiles, int64_t rows, float* out,
              int64_t out_stride, const uint8_t* next) {
    constexpr int kBlock = 8;
    const int64_t blocks = ceil_div(rows, kBlock);
    const int64_t share = next == nullptr ? 0 : ceil_div(PANELS * weight.stride(), blocks * weight.groups);
    const int64_t per_group = ceil_div(share, kLine) * kLine;
    int64_t row = 0;
    const auto run = [&](auto count) {
        constexpr int kRows = decltype(count)::kValue;
        for (; row + kRows <= rows; row += kRows) {
            const Ahead ahead{next + row / kBlock * weight.groups * per_group, row % kBlock == 0 ? per_group : 0};
            multiply_rows<KIND, kRows, PANELS>(weight, panel, tiles + row / kTileRows * weight.groups,
                                               row % kTileRows, out + row * out_stride, out_stride, ahead);
        }
    };
    run(Count<kBlock>{});
    run(Count<4>{});
    run(Count<2>{});
    run(Count<1>{});
}

template <Kind KIND>
void product_on_lanes(const Weight& weight, int64_t panel, int64_t panels, const TileGroup* tiles, int64_t rows,
                      float* out, int64_t out_stride) {
    const auto at = [&](int64_t index) { return weight.data + index * weight.stride(); };
    const int64_t end = panel + panels;
    for (; panel + 2 <= end; panel += 2, out += 2 * kColumns) {
        const uint8_t* next = panel + 4 <= weight.panels ? at(panel + 2) : nullptr;
        multiply<KIND, 2>(weight, at(panel), tiles, rows, out, out_stride, next);
    }
    if (panel < end) multiply<KIND, 1>(weight, at(panel), tiles, rows, out, out_stride, nullptr);
}

}  // namespace quantized
}  // namespace headrace::HEADRACE_ISA

#if defined(HEADRACE_TILES)
#include "product_tiles.h"
#endif

namespace headrace::HEADRACE_ISA {
namespace quantized {

template <Kind KIND>
void product_of_kind(const Weight& weight, int64_t panel, int64_t panels, const TileGroup* tiles, int64_t rows,
                     float* out, int64_t out_stride) {
#if defined(HEADRACE_TILES)
    const int64_t in_tiles = rows_in_tiles(rows);
    product_in_tiles<KIND>(weight, panel, panels, tiles, in_tiles, out, out_stride);
    tiles += in_tiles / kTileRows * weight.groups;
    out += in_tiles * out_stride;
    rows -= in_tiles;
    if (rows <= 0) return;
#endif
    product_on_lanes<KIND>(weight, panel, panels, tiles, rows, out, out_stride);
}

// `rows` rows times panels [panel, panel + panels), into out[row * out_stride + column], column 0 being the first of
// `panel`. `tiles` holds [tile of 16 rows][group]. All 16 columns of each panel are written, padding as zeros or NaN.
inline void product(const Weight& weight, int64_t panel, int64_t panels, const TileGroup* tiles, int64_t rows,
                    float* out, int64_t out_stride) {
    switch (weight.kind) {
        case kInt8: return product_of_kind<kInt8>(weight, panel, panels, tiles, rows, out, out_stride);
        case kInt4Symmetric:
            return product_of_kind<kInt4Symmetric>(weight, panel, panels, tiles, rows, out, out_stride);
        case kInt4: return product_of_kind<kInt4>(weight, panel, panels, tiles, rows, out, out_stride);
        default: return product_of_kind<kInt4Nested>(weight, panel, panels, tiles, rows, out, out_stride);
    }
}

}  // namespace quantized
}  // namespace headrace::HEADRACE_ISA
