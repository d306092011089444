// Products of rows and panels: what linear layers, scores and weighted values are all made of.
//
// Every element of a result is one accumulator that walks K from its beginning, so its bits depend on its row and its
// column only: not on how many rows or panels are computed together, nor on which thread does it.
#pragma once

#include "lines.h"
#include "vector.h"

namespace headrace::HEADRACE_ISA {

// What a product should ask the caches for while it computes: `lines` cache lines a tile of K, from `from` on.
struct Fetch {
    const char* from = nullptr;
    int64_t lines = 0;

    void next() {
        for (int64_t i = 0; i < lines; i++) __builtin_prefetch(from + i * kLineBytes, 0, 2);
        from += lines * kLineBytes;
    }
};

// One right-hand side: `panels` panels of `lines` lines each, the first at `data`, `stride` bytes from one to the next.
struct Panels {
    const char* data;
    int64_t stride;
    int64_t lines;
};

// Reads R rows, whose lines begin at `rows` and lie in tiles, and P panels; writes or adds to the R rows of `out`,
// `out_stride` floats apart.
template <class T, int R, int P, bool Add>
inline void multiply(const char* rows, Panels panels, Fetch& fetch, float* out, int64_t out_stride) {
    LineSum sums[R][P];
    for (int r = 0; r < R; r++) {
        for (int p = 0; p < P; p++) {
            sums[r][p] = Add ? LineSum::load(out + r * out_stride + p * kPanelColumns) : LineSum::zero();
        }
    }
    const char* panel = panels.data;
    const auto add_line = [&](const char* row, int64_t line) {
        Line<T> columns[P];
        for (int p = 0; p < P; p++) {
            columns[p] = Line<T>::load(reinterpret_cast<const T*>(panel + p * panels.stride + line * kLineBytes));
        }
        for (int r = 0; r < R; r++) {
            const Four<T> four = Four<T>::load(reinterpret_cast<const T*>(row + r * kLineBytes + line * 4));
            for (int p = 0; p < P; p++) sums[r][p].add(columns[p], four);
        }
    };
    int64_t left = panels.lines;
    for (; left >= kTileLines; left -= kTileLines) {
        fetch.next();
#pragma GCC unroll 4
        for (int64_t line = 0; line < kTileLines; line++) add_line(rows, line);
        rows += kTileBytes;
        panel += kTileBytes;
    }
    for (int64_t line = 0; line < left; line++) add_line(rows, line);
    for (int r = 0; r < R; r++) {
        for (int p = 0; p < P; p++) sums[r][p].store(out + r * out_stride + p * kPanelColumns);
    }
}

// Any number of rows up to kMultiplyRows, and P panels.
template <class T, int P, bool Add, int R = kMultiplyRows>
inline void multiply_rows(int64_t count, const char* rows, Panels panels, Fetch& fetch, float* out, int64_t stride) {
    if constexpr (R > 1) {
        if (count < R) return multiply_rows<T, P, Add, R - 1>(count, rows, panels, fetch, out, stride);
    }
    multiply<T, R, P, Add>(rows, panels, fetch, out, stride);
}

// How often `product_on_lanes` asks the caches for more, a tile of K.
constexpr int64_t fetches_on_lanes(int64_t rows, int64_t panels) {
    return (rows + kMultiplyRows - 1) / kMultiplyRows * (panels / kMultiplyPanels + panels % kMultiplyPanels);
}

// `product` with vectors; at most 16 rows, any number of lines.
template <class T, bool Add>
inline void product_on_lanes(int64_t count, const char* rows, Panels panels, int64_t num_panels, Fetch& fetch,
                             float* out, int64_t stride) {
    const auto pass = [&](auto p) {
        constexpr int P = decltype(p)::value;
        for (int64_t r = 0; r < count; r += kMultiplyRows) {
            const int64_t some = count - r < kMultiplyRows ? count - r : kMultiplyRows;
            multiply_rows<T, P, Add>(some, rows + r * kLineBytes, panels, fetch, out + r * stride, stride);
        }
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

#if defined(__AMX_BF16__) || defined(HEADRACE_EMULATE_AMX)
#include "product_amx.h"
#else

namespace headrace::HEADRACE_ISA {

// Nothing to set up on a thread before products and after them.
class Products {
public:
    Products() {}
};

// Whether `product` reads whole tiles of K where it can.
constexpr bool kWholeTiles = false;

// Rows that `product` takes at most.
template <class T>
constexpr int64_t kProductRows = kTileRows;

// Rows that stay in the second-level cache while all panels go by.
constexpr int64_t kBlockRows = 128;

// How often `product` asks the caches for more, a tile of K.
template <class T>
constexpr int64_t product_fetches(int64_t rows, int64_t panels) {
    return fetches_on_lanes(rows, panels);
}

// Rows [0, count) of at most kProductRows, 16 in tiles at `rows`, the next 16 `row_tiles` tiles later and so on, times
// `num_panels` panels: out[r][16 p + n], `stride` floats a row. With Add the sums go on from what is in `out`. Rows of
// `out` up to the next multiple of 16 may be overwritten with anything.
template <class T, bool Add = false>
inline void product(int64_t count, const char* rows, int64_t row_tiles, Panels panels, int64_t num_panels,
                    Fetch& fetch, float* out, int64_t stride) {
    (void)row_tiles;
    product_on_lanes<T, Add>(count, rows, panels, num_panels, fetch, out, stride);
}

}  // namespace headrace::HEADRACE_ISA

#endif
