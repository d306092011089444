// The eight tile registers of AMX, or arrays that do the same where HEADRACE_EMULATE_AMX is set: slow, but the code
// above them can be tested on any machine.
#pragma once

#include "lines.h"
#include "vector.h"

namespace headrace::HEADRACE_ISA {

#if !defined(HEADRACE_EMULATE_AMX)

// The thread may use tiles while this lives: all eight have 16 rows of 64 bytes.
class Products {
public:
    Products() {
        Configuration all;
        for (int i = 0; i < 8; i++) {
            all.row_bytes[i] = kLineBytes;
            all.rows[i] = kTileRows;
        }
        __asm__ volatile("ldtilecfg %0" : : "m"(all) : "memory");
    }

    // Context switches are cheaper for a thread without tiles.
    ~Products() { __asm__ volatile("tilerelease" ::: "memory"); }

    Products(const Products&) = delete;
    Products& operator=(const Products&) = delete;

private:
    struct alignas(64) Configuration {
        uint8_t palette = 1, start_row = 0, reserved[14] = {};
        uint16_t row_bytes[16] = {};
        uint8_t rows[16] = {};
    };
};

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

#else

class Products {
public:
    Products() {}
};

struct EmulatedTile {
    char lines[kTileLines][kLineBytes];
};

// The same in every file that includes this, which is what an inline variable is for.
inline thread_local EmulatedTile emulated_tiles[8];

template <int Tile>
inline void tile_zero() {
    __builtin_memset(&emulated_tiles[Tile], 0, sizeof(EmulatedTile));
}

template <int Tile>
inline void tile_load(const void* from, int64_t stride) {
    for (int64_t i = 0; i < kTileLines; i++) {
        __builtin_memcpy(emulated_tiles[Tile].lines[i], static_cast<const char*>(from) + i * stride, kLineBytes);
    }
}

template <int Tile>
inline void tile_store(void* to, int64_t stride) {
    for (int64_t i = 0; i < kTileLines; i++) {
        __builtin_memcpy(static_cast<char*>(to) + i * stride, emulated_tiles[Tile].lines[i], kLineBytes);
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

#endif

}  // namespace headrace::HEADRACE_ISA
