// Products of bfloat16 in AMX's tiles. One order of K for every number of rows: a row that comes alone is a tile with
// one row in use.
#pragma once

#include "product.h"

namespace headrace::HEADRACE_ISA {

// G groups of 16 rows times two panels (or one, if `Two` is false): tiles 0 … 5 hold the sums.
template <int G, bool Two, bool Add>
inline void multiply_tiles(const char* rows, int64_t row_tiles, Panels panels, Fetch& fetch, float* out,
                           int64_t stride) {
    const int64_t row_bytes = stride * static_cast<int64_t>(sizeof(float)), group_bytes = row_tiles * kTileBytes;
    const auto start = [&](auto sums, int64_t group, int64_t panel) {
        constexpr int Sums = decltype(sums)::value;
        if constexpr (Add) {
            tile_load<Sums>(out + group * kTileRows * stride + panel * kPanelColumns, row_bytes);
        } else {
            tile_zero<Sums>();
        }
    };
    const auto finish = [&](auto sums, int64_t group, int64_t panel) {
        tile_store<decltype(sums)::value>(out + group * kTileRows * stride + panel * kPanelColumns, row_bytes);
    };
    const auto all_sums = [&](const auto& f) {
        f(Int<0>{}, 0, 0);
        if constexpr (Two) f(Int<1>{}, 0, 1);
        if constexpr (G > 1) f(Int<2>{}, 1, 0);
        if constexpr (G > 1 && Two) f(Int<3>{}, 1, 1);
        if constexpr (G > 2) f(Int<4>{}, 2, 0);
        if constexpr (G > 2 && Two) f(Int<5>{}, 2, 1);
    };
    all_sums(start);
    const char* first = panels.data;
    const char* second = panels.data + panels.stride;
    for (int64_t lines = panels.lines; lines > 0; lines -= kTileLines) {
        fetch.next();
        if constexpr (G < 3) {
            tile_load<6>(first, kLineBytes);
            if constexpr (Two) tile_load<7>(second, kLineBytes);
            tile_load<4>(rows, kLineBytes);
            tile_multiply<0, 4, 6>();
            if constexpr (Two) tile_multiply<1, 4, 7>();
            if constexpr (G > 1) {
                tile_load<5>(rows + group_bytes, kLineBytes);
                tile_multiply<2, 5, 6>();
                if constexpr (Two) tile_multiply<3, 5, 7>();
            }
        } else {
            // Six sums leave two tiles: the rows go by twice, which the first-level cache bears.
            tile_load<7>(first, kLineBytes);
            tile_load<6>(rows, kLineBytes);
            tile_multiply<0, 6, 7>();
            tile_load<6>(rows + group_bytes, kLineBytes);
            tile_multiply<2, 6, 7>();
            tile_load<6>(rows + 2 * group_bytes, kLineBytes);
            tile_multiply<4, 6, 7>();
            if constexpr (Two) {
                tile_load<7>(second, kLineBytes);
                tile_multiply<5, 6, 7>();
                tile_load<6>(rows + group_bytes, kLineBytes);
                tile_multiply<3, 6, 7>();
                tile_load<6>(rows, kLineBytes);
                tile_multiply<1, 6, 7>();
            }
        }
        rows += kTileBytes;
        first += kTileBytes;
        second += kTileBytes;
    }
    all_sums(finish);
}

// `product` in tiles, for panels of whole tiles.
template <bool Add>
inline void product_in_tiles(int64_t count, const char* rows, int64_t row_tiles, Panels panels, int64_t num_panels,
                             Fetch& fetch, float* out, int64_t stride) {
    const int64_t groups = (count + kTileRows - 1) / kTileRows;
    const auto pass = [&](auto two) {
        constexpr bool Two = decltype(two)::value == 2;
        if (groups == 1) multiply_tiles<1, Two, Add>(rows, row_tiles, panels, fetch, out, stride);
        if (groups == 2) multiply_tiles<2, Two, Add>(rows, row_tiles, panels, fetch, out, stride);
        if (groups == 3) multiply_tiles<3, Two, Add>(rows, row_tiles, panels, fetch, out, stride);
        panels.data += (Two ? 2 : 1) * panels.stride;
        out += (Two ? 2 : 1) * kPanelColumns;
        num_panels -= Two ? 2 : 1;
    };
    while (num_panels >= 2) pass(Int<2>{});
    if (num_panels > 0) pass(Int<1>{});
}

}  // namespace headrace::HEADRACE_ISA
