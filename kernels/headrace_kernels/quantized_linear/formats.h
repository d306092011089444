// How quantized weights and activations lie in memory.
//
// Weights. A *panel* is 16 output columns and all of K; panels lie one after another, the last padded with columns of
// zeros. K goes in groups of 32. A panel begins with the factors of all its groups, padded to 64 bytes; then come the
// groups' unsigned quants u in *lines* of 64 bytes, 4 bytes for each of the 16 columns:
//
//   8 bits   8 lines: bytes 4c ... 4c+3 of line l hold k = 4l ... 4l+3 of column c
//   4 bits   4 lines: byte 4c+j of line l holds k = 4l+j in its low half and k = 16+4l+j in its high half
//
// A weight is scale * u + minimum. What the kinds keep of the two:
//
//   kInt8            scale float16; minimum = -128 scale          (GGUF's Q8_0)  8.5  bits a weight
//   kInt4Symmetric   scale float16; minimum = -8 scale            (Q4_0)         4.5
//   kInt4            scale, minimum float16                       (Q4_1)         5
//   kInt4Nested      d, e float16 of 8 groups, s, t uint8 of one: (Q4_K)         4.625
//                    scale = d s, minimum = -e t, both exact in float32
//
// Activations. Rows go in tiles of 16, and each group of a tile is a `TileGroup`.
#pragma once

#include "../cpu/isa.h"

namespace headrace::HEADRACE_ISA {
namespace quantized {

constexpr int64_t kColumns = 16;  // of a panel
constexpr int64_t kGroup = 32;    // elements of K that share a scale
constexpr int64_t kLine = 64;     // bytes
constexpr int64_t kTileRows = 16;
constexpr int64_t kNested = 8;  // groups whose factors share d and e

// The numbers are part of the C interface.
enum Kind : int32_t { kInt8 = 0, kInt4Symmetric = 1, kInt4 = 2, kInt4Nested = 3, kKinds = 4 };

struct TileGroup {
    int8_t quants[kTileRows][kGroup];  // in [-127, 127]
    float scales[kTileRows];           // x is about scale * quant
    float sums[kTileRows];             // scale * (sum of quants)
    int32_t biases[kTileRows];         // -128 * (sum of quants)
};

constexpr int64_t lines_of_group(Kind kind) { return kind == kInt8 ? 8 : 4; }

constexpr bool has_minima(Kind kind) { return kind == kInt4 || kind == kInt4Nested; }

constexpr int64_t factor_bytes(Kind kind, int64_t groups) {
    const int64_t bytes = kind == kInt4Nested ? (groups + kNested - 1) / kNested * (2 + kNested) * 2 * kColumns
                                              : groups * kColumns * (kind == kInt4 ? 4 : 2);
    return (bytes + kLine - 1) / kLine * kLine;
}

constexpr int64_t panel_bytes(Kind kind, int64_t groups) {
    return factor_bytes(kind, groups) + groups * lines_of_group(kind) * kLine;
}

// Where a nested panel keeps the factors of a group: d[16], e[16], then s[16] and t[16] of each of the 8 groups.
constexpr int64_t kNestedBytes = (2 + kNested) * 2 * kColumns;
inline int64_t nested_shared(int64_t group) { return group / kNested * kNestedBytes; }
inline int64_t nested_own(int64_t group) {
    return nested_shared(group) + 4 * kColumns + group % kNested * 2 * kColumns;
}

// A packed matrix [columns, inner].
struct Weight {
    const uint8_t* data;
    Kind kind;
    int64_t panels, groups;

    int64_t stride() const { return panel_bytes(kind, groups); }  // bytes from panel to panel
};

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace quantized
}  // namespace headrace::HEADRACE_ISA
