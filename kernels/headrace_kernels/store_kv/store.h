// Where one token's key and value go in its block. Keys and values are panels (cpu/lines.h), so that attention's
// products read them as they lie.
#pragma once

#include "../cpu/product.h"
#include "../paged_attention/tile.h"

namespace headrace::HEADRACE_ISA {

// A (block, head) of the caches: `block_size` positions of `width` elements, a multiple of 16.
template <class T>
struct KvBlock {
    T *keys, *values;
    int64_t block_size, width;

    // Keys: panels of 16 positions, K along the head. `key` has `width` elements, zeros past the head's end.
    void store_key(int64_t offset, const T* key) const {
        char* column = reinterpret_cast<char*>(keys + offset / kPanelColumns * width * kPanelColumns) +
                       offset % kPanelColumns * 4;
        for (int64_t line = 0; line < width / kPack<T>; line++) {
            __builtin_memcpy(column + line * kLineBytes, key + line * kPack<T>, 4);
        }
    }

    // Values: panels of 16 elements of the head, K along positions. With `last` the positions that share the lines
    // become zeros.
    void store_value(int64_t offset, const T* value, bool last) const {
        const int64_t place = offset % kPack<T>;
        T* line = values + (offset - place) * kPanelColumns;
        for (int64_t panel = 0; panel < width; panel += kPanelColumns, line += block_size * kPanelColumns) {
            for (int64_t n = 0; n < kPanelColumns; n++) line[n * kPack<T> + place] = value[panel + n];
            if (!last) continue;
            for (int64_t behind = place + 1; behind < kPack<T>; behind++) {
                for (int64_t n = 0; n < kPanelColumns; n++) line[n * kPack<T> + behind] = T{};
            }
        }
    }

    // Zeros values at positions [begin, end), both at the beginning of a line.
    void clear_values(int64_t begin, int64_t end) const {
        for (int64_t panel = 0; panel < width && begin < end; panel += kPanelColumns) {
            __builtin_memset(values + panel * block_size + begin * kPanelColumns, 0,
                             (end - begin) * kPanelColumns * sizeof(T));
        }
    }
};

// The keys and values of one layer.
template <class T>
struct KvCache {
    T *keys, *values;
    int64_t num_kv_heads, block_size, head_dim;

    int64_t width() const { return round_up(head_dim, kPanelColumns); }

    KvBlock<T> at(int64_t block, int64_t head) const {
        const int64_t from = (block * num_kv_heads + head) * block_size * width();
        return {keys + from, values + from, block_size, width()};
    }

    // `key` and `value` have width() elements, zeros past the head's end.
    void store_key(int64_t block, int64_t position, int64_t head, const T* key) const {
        at(block, head).store_key(position % block_size, key);
    }

    // `last`: nothing of the row lies behind this position. What attention reads with weights of zero must be finite:
    // the rest of the last line, and where products take whole tiles, the rest of the tile.
    void store_value(int64_t block, int64_t position, bool last, int64_t head, const T* value) const {
        const int64_t offset = position % block_size;
        const KvBlock<T> to = at(block, head);
        to.store_value(offset, value, last);
        if (!kWholeTiles || !last) return;
        const int64_t tile = block_size < kTile ? block_size : kTile;
        to.clear_values(round_up(offset + 1, kPack<T>), round_up(offset + 1, tile));
    }
};

}  // namespace headrace::HEADRACE_ISA
