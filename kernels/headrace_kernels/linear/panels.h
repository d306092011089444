// A matrix of weights, and the rows of a product with it.
#pragma once

#include "../cpu/product.h"

namespace headrace::HEADRACE_ISA {

// Weights as panels that lie one after another.
struct Weights {
    const char* data;
    int64_t panels, lines;

    int64_t stride() const { return lines * kLineBytes; }
    const char* panel(int64_t i) const { return data + i * stride(); }
};

// Floats that `multiply_panels` needs for `count` panels.
template <class T>
constexpr int64_t scratch_floats(int64_t count) {
    return kProductRows<T> * count * kPanelColumns;
}

// Rows [begin, end) of x times panels [panel, panel + count): calls epilogue(m, rows, out, stride) with the float32
// results of rows m … m + rows - 1, one after the other. `begin` is a multiple of 16. Meanwhile as many bytes are
// brought near from `ahead` on, if it isn't null.
template <class T, class Epilogue>
inline void multiply_panels(const RowTiles<T>& x, int64_t begin, int64_t end, const Weights& weights, int64_t panel,
                            int64_t count, const char* ahead, float* scratch, const Epilogue& epilogue) {
    const int64_t rows = end - begin, tiles = weights.lines / kTileLines, stride = count * kPanelColumns;
    const int64_t step = rows <= kProductRows<T> || kProductRows<T> == kTileRows ? kProductRows<T> : 2 * kTileRows;
    int64_t fetches = 0;
    for (int64_t m = 0; m < rows; m += step) {
        fetches += product_fetches<T>(rows - m < step ? rows - m : step, count) * tiles;
    }
    Fetch fetch{ahead, ahead == nullptr ? 0 : (count * weights.lines + fetches - 1) / fetches};
    const Panels panels{weights.panel(panel), weights.stride(), weights.lines};
    for (int64_t m = begin; m < end; m += step) {
        const int64_t some = end - m < step ? end - m : step;
        product<T>(some, x.line(m, 0), x.tiles, panels, count, fetch, scratch, stride);
        epilogue(m, some, scratch, stride);
    }
}

}  // namespace headrace::HEADRACE_ISA
