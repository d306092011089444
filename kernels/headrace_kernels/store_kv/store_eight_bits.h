// Where one token's key and value go in a block of 8 bits: quants in the order of the model's type T, then the
// positions' scales (kv_cache.py). A token's quants depend on nothing but the token.
#pragma once

#include "../cpu/eight_bits.h"
#include "../paged_attention/batch.h"

namespace headrace::HEADRACE_ISA {

// A (block, head) of keys or of values.
template <class T>
struct EightBitBlock {
    int8_t* quants;
    float* scales;
    int64_t block_size, width;

    // `key` has `width` elements, zeros past the head's end.
    void store_key(int64_t offset, const float* key) const {
        int8_t rounded[kMostHeadDim];
        scales[offset] = round_to_eight_bits(key, width, rounded).scale;
        int8_t* column = quants + offset / kPanelColumns * width * kPanelColumns + offset % kPanelColumns * kPack<T>;
        for (int64_t k = 0; k < width; k += kPack<T>, column += kPanelColumns * kPack<T>) {
            __builtin_memcpy(column, rounded + k, kPack<T>);
        }
    }

    void store_value(int64_t offset, const float* value) const {
        int8_t rounded[kMostHeadDim];
        scales[offset] = round_to_eight_bits(value, width, rounded).scale;
        const int64_t place = offset % kPack<T>;
        int8_t* line = quants + (offset - place) * kPanelColumns + place;
        for (int64_t panel = 0; panel < width; panel += kPanelColumns, line += block_size * kPanelColumns) {
            for (int64_t n = 0; n < kPanelColumns; n++) line[n * kPack<T>] = rounded[panel + n];
        }
    }
};

// `cache` is the keys or the values of a layer.
template <class T>
inline EightBitBlock<T> eight_bit_block(void* cache, const Batch& batch, int64_t block, int64_t head) {
    int8_t* quants = static_cast<int8_t*>(cache) + batch.block_offset(block, head);
    const int64_t width = batch.padded_dim();
    return {quants, reinterpret_cast<float*>(quants + batch.block_size * width), batch.block_size, width};
}

}  // namespace headrace::HEADRACE_ISA
