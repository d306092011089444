// Products on lanes: a block of rows and a few panels keep their sums in registers while K goes by.
#pragma once

#include "product.h"

namespace headrace::HEADRACE_ISA {

// Reads R rows, whose lines begin at `rows` and lie in tiles, and P panels; writes or adds to the R rows of `out`,
// `out_stride` floats apart. Inlined, though it is large: a call would save and restore every register, which costs short
// K, such as attention's, a tenth.
template <class T, int R, int P, bool Add>
__attribute__((always_inline)) inline void multiply(const char* rows, Panels panels, Fetch& fetch, float* out, int64_t out_stride) {
    LineSum sums[R][P];
    for (int r = 0; r < R; r++) {
        for (int p = 0; p < P; p++) {
            sums[r][p] = Add ? LineSum::load(out + r * out_stride + p * kPanelColumns) : LineSum::zero();
        }
    }
    const char* panel = panels.data;
    TileOfRows<T, R> tile;
    const auto add_line = [&](int64_t line) {
        Line<T> columns[P];
        for (int p = 0; p < P; p++) {
            columns[p] = Line<T>::load(reinterpret_cast<const T*>(panel + p * panels.stride + line * kLineBytes));
        }
        for (int r = 0; r < R; r++) {
            const Four<T> four = tile.four(r, line);
            for (int p = 0; p < P; p++) sums[r][p].add(columns[p], four);
        }
    };
    int64_t left = panels.lines;
    for (; left >= kTileLines; left -= kTileLines) {
        tile.enter(rows);
        for (int64_t line = 0; line < kTileLines; line += kFetchLines) {
            fetch.next();
#pragma GCC unroll 4
            for (int64_t i = 0; i < kFetchLines; i++) add_line(line + i);
        }
        rows += kTileBytes;
        panel += kTileBytes;
    }
    if (left > 0) tile.enter(rows);
    for (int64_t line = 0; line < left; line++) add_line(line);
    for (int r = 0; r < R; r++) {
        for (int p = 0; p < P; p++) sums[r][p].store(out + r * out_stride + p * kPanelColumns);
    }
}

// `count` rows and P panels. Few sizes of blocks, for each is a function; three is what a group of heads often has.
template <class T, int P, bool Add>
inline void multiply_rows(int64_t count, const char* rows, Panels panels, Fetch& fetch, float* out, int64_t stride) {
    const auto block = [&](auto size) {
        constexpr int R = decltype(size)::value;
        if constexpr (R <= kMultiplyRows) {
            for (; count >= R; count -= R) {
                multiply<T, R, P, Add>(rows, panels, fetch, out, stride);
                rows += R * kLineBytes;
                out += R * stride;
            }
        }
    };
    block(Int<8>{});
    block(Int<4>{});
    block(Int<3>{});
    block(Int<2>{});
    block(Int<1>{});
}

// `product` with vectors; at most 16 rows, any number of lines.
template <class T, bool Add>
inline void product_on_lanes(int64_t count, const char* rows, Panels panels, int64_t num_panels, Fetch& fetch,
                             float* out, int64_t stride) {
    const auto pass = [&](auto p) {
        constexpr int P = decltype(p)::value;
        multiply_rows<T, P, Add>(count, rows, panels, fetch, out, stride);
        panels.data += P * panels.stride;
        out += P * kPanelColumns;
        num_panels -= P;
    };
    while (num_panels >= kMultiplyPanels) pass(Int<kMultiplyPanels>{});
    if constexpr (kMultiplyPanels > 1) {
        while (num_panels > 0) pass(Int<1>{});
    }
}

}  // namespace headrace::HEADRACE_ISA
