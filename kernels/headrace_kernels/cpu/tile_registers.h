// The eight tile registers of AMX, or arrays that do the same where HEADRACE_EMULATE_AMX is set: slow, but the code
// above them can be tested on any machine.
#pragma once

#include "lines.h"
#include "vector.h"

namespace headrace::HEADRACE_ISA {

// How many rows of how many bytes each tile has, as ldtilecfg reads it.
struct alignas(64) TileShapes {
    uint8_t palette = 1, start_row = 0, reserved[14] = {};
    uint16_t row_bytes[16] = {};
    uint8_t rows[16] = {};

    // All eight have 16 rows of 64 bytes.
    static TileShapes whole() {
        TileShapes shapes;
        for (int i = 0; i < 8; i++) shapes.set(i, kTileRows, kLineBytes);
        return shapes;
    }

    void set(int tile, int64_t of_rows, int64_t bytes) {
        rows[tile] = static_cast<uint8_t>(of_rows);
        row_bytes[tile] = static_cast<uint16_t>(bytes);
    }
};

#if !defined(HEADRACE_EMULATE_AMX)

inline void set_tile_shapes(const TileShapes& shapes) {
    __asm__ volatile("ldtilecfg %0" : : "m"(shapes) : "memory");
}

// Context switches are cheaper for a thread without tiles.
inline void release_tiles() { __asm__ volatile("tilerelease" ::: "memory"); }

template <int Tile>
inline void tile_zero() {
    __asm__ volatile("tilezero %%tmm%c0" : : "i"(Tile));
}

template <int Tile>
inline void tile_load(const void* from, int64_t stride) {
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(from), "r"(stride), "i"(Tile) : "memory");
}

template <int Tile>
inline void tile_store(void* to, int64_t stride) {
    __asm__ volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(to), "r"(stride), "i"(Tile) : "memory");
}

// Sums += rows times columns, of bfloat16.
template <int Sums, int Rows, int Columns>
inline void tile_multiply() {
    __asm__ volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(Sums), "i"(Rows), "i"(Columns));
}

// The same of 8-bit integers, those of rows signed, those of columns unsigned.
template <int Sums, int Rows, int Columns>
inline void tile_multiply_eight_bits() {
    __asm__ volatile("tdpbsud %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(Sums), "i"(Rows), "i"(Columns));
}

#else

struct EmulatedTile {
    char lines[kTileLines][kLineBytes];
};

// The same in every file that includes this, which is what an inline variable is for.
inline thread_local EmulatedTile emulated_tiles[8];
inline thread_local TileShapes emulated_shapes;

inline void set_tile_shapes(const TileShapes& shapes) { emulated_shapes = shapes; }

inline void release_tiles() { emulated_shapes = TileShapes(); }

template <int Tile>
inline void tile_zero() {
    __builtin_memset(&emulated_tiles[Tile], 0, sizeof(EmulatedTile));
}

template <int Tile>
inline void tile_load(const void* from, int64_t stride) {
    for (int64_t i = 0; i < emulated_shapes.rows[Tile]; i++) {
        __builtin_memcpy(emulated_tiles[Tile].lines[i], static_cast<const char*>(from) + i * stride,
                         emulated_shapes.row_bytes[Tile]);
    }
}

template <int Tile>
inline void tile_store(void* to, int64_t stride) {
    for (int64_t i = 0; i < emulated_shapes.rows[Tile]; i++) {
        __builtin_memcpy(static_cast<char*>(to) + i * stride, emulated_tiles[Tile].lines[i],
                         emulated_shapes.row_bytes[Tile]);
    }
}

template <int Sums, int Rows, int Columns>
inline void tile_multiply() {
    for (int64_t m = 0; m < kTileRows; m++) {
        auto* sums = reinterpret_cast<float*>(emulated_tiles[Sums].lines[m]);
        const auto* row = reinterpret_cast<const BFloat16*>(emulated_tiles[Rows].lines[m]);
        for (int64_t line = 0; line < kTileLines; line++) {
            const auto* columns = reinterpret_cast<const BFloat16*>(emulated_tiles[Columns].lines[line]);
            for (int64_t n = 0; n < kPanelColumns; n++) {
                sums[n] += widen(row[2 * line]) * widen(columns[2 * n]);
                sums[n] += widen(row[2 * line + 1]) * widen(columns[2 * n + 1]);
            }
        }
    }
}

template <int Sums, int Rows, int Columns>
inline void tile_multiply_eight_bits() {
    for (int64_t m = 0; m < emulated_shapes.rows[Rows]; m++) {
        auto* sums = reinterpret_cast<int32_t*>(emulated_tiles[Sums].lines[m]);
        const auto* row = reinterpret_cast<const int8_t*>(emulated_tiles[Rows].lines[m]);
        for (int64_t line = 0; line < emulated_shapes.rows[Columns]; line++) {
            const auto* columns = reinterpret_cast<const uint8_t*>(emulated_tiles[Columns].lines[line]);
            for (int64_t i = 0; i < kLineBytes; i++) sums[i / 4] += row[4 * line + i % 4] * columns[i];
        }
    }
}

#endif

// The thread may use tiles while this lives: all eight have 16 rows of 64 bytes.
class Products {
public:
    Products() { set_tile_shapes(TileShapes::whole()); }
    ~Products() { release_tiles(); }

    Products(const Products&) = delete;
    Products& operator=(const Products&) = delete;
};

// Within the life of a `Products`: tiles have the shapes that 8-bit products of so many rows need.
class EightBitProducts {
public:
    // Fewer rows are done sooner on lanes.
    static constexpr int64_t kLeastRows = 9;
    // Of K: tile kSums is what tiles kRows and kColumns make, 16 rows by 16 columns.
    static constexpr int64_t kInner = 32;
    static constexpr int kSums = 0, kRows = 1, kColumns = 2;

    explicit EightBitProducts(int64_t rows) : used_(rows >= kLeastRows) {
        if (!used_) return;
        TileShapes shapes;
        shapes.set(kSums, kTileRows, kLineBytes);
        shapes.set(kRows, kTileRows, kInner);
        shapes.set(kColumns, kInner / 4, kLineBytes);
        set_tile_shapes(shapes);
    }

    ~EightBitProducts() {
        if (used_) set_tile_shapes(TileShapes::whole());
    }

    EightBitProducts(const EightBitProducts&) = delete;
    EightBitProducts& operator=(const EightBitProducts&) = delete;

private:
    const bool used_;
};

}  // namespace headrace::HEADRACE_ISA
