// Products of rows and panels: what linear layers, scores and weighted values are all made of.
//
// Every element of a result is one accumulator that walks K from its beginning, so its bits depend on its row and its
// column only: not on how many rows or panels are computed together, nor on which thread does it.
#pragma once

#include "lines.h"
#include "vector.h"

#if defined(__AMX_BF16__) || defined(HEADRACE_EMULATE_AMX)
#define HEADRACE_TILES 1
#include "tile_registers.h"
#endif

namespace headrace::HEADRACE_ISA {

// Lines of K between two requests to the caches: few, since a processor that waits for a place in their queue waits.
constexpr int64_t kFetchLines = 4;

// What a product should ask the caches for while it computes: `lines` cache lines each time, from `from` on.
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

// How often products on lanes ask the caches for more, a tile of K; about, where rows are no multiple of blocks.
constexpr int64_t fetches_on_lanes(int64_t rows, int64_t panels) {
    return (rows + kMultiplyRows - 1) / kMultiplyRows * (panels / kMultiplyPanels + panels % kMultiplyPanels) *
           (kTileLines / kFetchLines);
}

#if defined(HEADRACE_TILES)

// Whether `product` reads whole tiles of K where it can.
constexpr bool kWholeTiles = true;

// Rows that `product` takes at most.
template <class T>
constexpr int64_t kProductRows = kTileRows;
template <>
constexpr int64_t kProductRows<BFloat16> = 3 * kTileRows;

// Rows that stay in the second-level cache while all panels go by.
constexpr int64_t kBlockRows = 256;

// How often `product` asks the caches for more, a tile of K.
template <class T>
constexpr int64_t product_fetches(int64_t rows, int64_t panels) {
    return fetches_on_lanes(rows, panels);
}
template <>
constexpr int64_t product_fetches<BFloat16>(int64_t, int64_t panels) {
    return (panels + 1) / 2;
}

#else

// Nothing to set up on a thread before products and after them.
class Products {
public:
    Products() {}
};

class EightBitProducts {
public:
    explicit EightBitProducts(int64_t) {}
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

#endif

// Rows [0, count) of at most kProductRows, 16 in tiles at `rows`, the next 16 `row_tiles` tiles later and so on, times
// `num_panels` panels: out[r][16 p + n], `stride` floats a row. With Add the sums go on from what is in `out`. Rows of
// `out` up to the next multiple of 16 may be overwritten with anything. T is float or BFloat16; see product.cpp.
template <class T, bool Add = false>
void product(int64_t count, const char* rows, int64_t row_tiles, Panels panels, int64_t num_panels, Fetch& fetch,
             float* out, int64_t stride);

}  // namespace headrace::HEADRACE_ISA
