// How matrices lie in memory so that a product reads them in order: lines and tiles.
//
// A *line* is 64 bytes, a cache line. A *tile* is 16 lines, 1 KiB: what one tile register of AMX holds.
//
// The right-hand side of a product is cut into *panels* of 16 columns. A panel is a run of lines, each with four bytes
// of K for all 16 columns: one float32, two consecutive bfloat16 or four 8-bit integers a column. So element (k, n) of
// a matrix stored as T lies in panel n / 16, line k / kPack<T>, at element n % 16 * kPack<T> + k % kPack<T>. Weights
// are such panels, and so are cached keys (columns are positions, K is the head) and values (columns are the head's
// elements, K is positions).
//
// The left-hand side is cut into tiles of 16 rows, each with 64 bytes of K: element (m, k) lies in tile
// (m / 16, k / kTileK<T>), line m % 16, element k % kTileK<T>. The tiles of 16 rows lie one after another.
#pragma once

#include "isa.h"

namespace headrace::HEADRACE_ISA {

constexpr int64_t kLineBytes = 64;
constexpr int64_t kTileLines = 16;
constexpr int64_t kTileBytes = kTileLines * kLineBytes;
constexpr int64_t kPanelColumns = 16;
constexpr int64_t kTileRows = 16;

// Elements of K that a line has for each column.
template <class T>
constexpr int64_t kPack = 4 / static_cast<int64_t>(sizeof(T));

// Elements of K that a tile has.
template <class T>
constexpr int64_t kTileK = kLineBytes / static_cast<int64_t>(sizeof(T));

constexpr int64_t round_up(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }

// Lines of a panel with `k` elements of K, whole tiles; the last lines may be zeros.
template <class T>
constexpr int64_t panel_lines(int64_t k) {
    return round_up(k, kTileK<T>) / kPack<T>;
}

// The left-hand side of products: rows as tiles. `k` is what writers fill; the rest of the last tile holds zeros.
template <class T>
struct RowTiles {
    char* data;
    int64_t tiles;  // of 16 rows: round_up(k, kTileK) / kTileK

    static int64_t bytes(int64_t rows, int64_t k) {
        return round_up(rows, kTileRows) / kTileRows * (round_up(k, kTileK<T>) / kTileK<T>)*kTileBytes;
    }

    // The line of row m that begins with element k, a multiple of kTileK.
    char* line(int64_t m, int64_t k) const {
        return data + (m / kTileRows * tiles + k / kTileK<T>)*kTileBytes + m % kTileRows * kLineBytes;
    }

    // Element k of row m; so are the ones after it, to the end of the line.
    T* at(int64_t m, int64_t k) const { return reinterpret_cast<T*>(line(m, k)) + k % kTileK<T>; }
};

}  // namespace headrace::HEADRACE_ISA
