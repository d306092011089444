// A tile of keys and values that lie in the cache as 8 bits, expanded to the panels that products read.
//
// Quants are whole numbers of at most 127, which are exact in bfloat16 too, and a position has one scale for its key and
// one for its value. So nothing is rounded here: scores and weights take the scales (tile.h), and products see quants.
#pragma once

#include "batch.h"
#include "tile.h"

namespace headrace::HEADRACE_ISA {

template <class T>
class ExpandedTile {
public:
    // Nothing, unless the batch's cache has 8 bits.
    static int64_t bytes(const Batch& batch) {
        if (!batch.eight_bits) return 0;
        return 2 * kTile * (batch.padded_dim() * static_cast<int64_t>(sizeof(T)) + kScaleBytes);
    }

    explicit ExpandedTile(const Batch& batch) : batch_(batch), width_(batch.padded_dim()) {}

    // Takes what it needs of the memory; returns where the rest begins.
    char* take(char* memory) {
        if (!batch_.eight_bits) return memory;
        keys_ = reinterpret_cast<T*>(memory);
        values_ = keys_ + kTile * width_;
        key_scales_ = reinterpret_cast<float*>(values_ + kTile * width_);
        value_scales_ = key_scales_ + kTile;
        return memory + bytes(batch_);
    }

    // Positions [begin, end) of a tile, which may lie in two blocks; asks the caches for the next tile meanwhile, if it
    // begins before `end_position`.
    void expand(const int32_t* blocks, int64_t tile, int64_t kv_head, int begin, int end, int64_t next_tile,
                int64_t next_head, int64_t end_position) {
        for (int j = 0; j < kTile; j++) key_scales_[j] = value_scales_[j] = 0.0f;
        const int64_t in_block = batch_.block_size < kTile ? batch_.block_size : kTile;
        for (int64_t j = begin / in_block * in_block; j < end; j += in_block) {
            const Piece piece = piece_at(blocks, tile + j, kv_head);
            const Piece next = next_tile + j < end_position ? piece_at(blocks, next_tile + j, next_head) : piece;
            expand_run(piece.keys, next.keys, in_block * width_, keys_ + j * width_);
            for (int64_t d = 0; d < width_; d += kPanelColumns) {
                expand_run(piece.values + d * batch_.block_size, next.values + d * batch_.block_size,
                           in_block * kPanelColumns, values_ + d * kTile + j * kPanelColumns);
            }
            __builtin_prefetch(next.key_scales, 0, 2);
            __builtin_prefetch(next.value_scales, 0, 2);
            // What nobody sees keeps a scale of zero: behind a row's end may be anything, even NaN.
            for (int64_t i = j < begin ? begin : j; i < end && i < j + in_block; i++) {
                key_scales_[i] = piece.key_scales[i - j];
                value_scales_[i] = piece.value_scales[i - j];
            }
        }
    }

    // The panels of 16 keys from position j of the tile on.
    const char* keys(int64_t j) const { return reinterpret_cast<const char*>(keys_ + j * width_); }

    // The lines of values from position j of the tile on, in the first of panels of kTile positions.
    const char* values(int64_t j) const { return reinterpret_cast<const char*>(values_ + j * kPanelColumns); }

    TileScales scales() const { return {key_scales_, value_scales_}; }

private:
    // Where a position, the first of a tile or of its half, lies in the caches.
    struct Piece {
        const int8_t *keys, *values;
        const float *key_scales, *value_scales;
    };

    Piece piece_at(const int32_t* blocks, int64_t position, int64_t kv_head) const {
        const int64_t block = batch_.block_offset(blocks[position / batch_.block_size], kv_head);
        const int64_t offset = position % batch_.block_size;
        const int8_t* keys = static_cast<const int8_t*>(batch_.k_cache) + block;
        const int8_t* values = static_cast<const int8_t*>(batch_.v_cache) + block;
        const int64_t quants = batch_.block_size * width_;
        return {keys + offset * width_, values + offset * kPanelColumns,
                reinterpret_cast<const float*>(keys + quants) + offset,
                reinterpret_cast<const float*>(values + quants) + offset};
    }

    static void expand_run(const int8_t* from, const int8_t* next, int64_t count, T* to) {
        for (int64_t i = 0; i < count; i += kLineBytes) {
            __builtin_prefetch(next + i, 0, 2);
#pragma GCC unroll 16
            for (int64_t k = i; k < i + kLineBytes; k += kLanes) store_exact(to + k, load(from + k));
        }
    }

    const Batch& batch_;
    const int64_t width_;
    T *keys_ = nullptr, *values_ = nullptr;
    float *key_scales_ = nullptr, *value_scales_ = nullptr;
};

}  // namespace headrace::HEADRACE_ISA
