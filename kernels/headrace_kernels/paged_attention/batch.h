// The arguments of paged_attention, and where things are in them.
#pragma once

#include "../cpu/lines.h"

namespace headrace::HEADRACE_ISA {

// Elements of a head at most.
constexpr int64_t kMostHeadDim = 512;

// What a position has behind the quants of its (block, head) in a cache of 8 bits: a float32.
constexpr int64_t kScaleBytes = 4;

struct Batch {
    const void* query;
    int64_t query_stride;  // elements from one token to the next
    const void *k_cache, *v_cache;
    const int32_t *block_tables, *query_starts, *context_lengths;
    int64_t num_tokens, num_rows, max_blocks, num_blocks;
    int64_t num_heads, num_kv_heads, head_dim, block_size;
    int64_t window;  // positions a query sees, itself included
    float scale;
    bool eight_bits = false;  // whether the caches are quants with scales (kv_cache.py), else of query's type

    int64_t group() const { return num_heads / num_kv_heads; }

    int64_t num_queries(int64_t row) const { return query_starts[row + 1] - query_starts[row]; }

    int64_t first_position(int64_t row) const { return context_lengths[row] - num_queries(row); }

    // The first key that a query at `position` sees; the last is its own.
    int64_t first_visible(int64_t position) const { return position >= window ? position - window + 1 : 0; }

    // Elements of a head in the caches: whole panels.
    int64_t padded_dim() const { return round_up(head_dim, kPanelColumns); }

    // Elements from the start of a cache to a (block, head).
    int64_t block_offset(int64_t block, int64_t kv_head) const {
        return (block * num_kv_heads + kv_head) * block_size * (padded_dim() + (eight_bits ? kScaleBytes : 0));
    }

    // Whether every row's numbers agree with each other and the blocks it reads are in the cache.
    bool valid() const {
        return valid_from([&](int64_t row) { return first_visible(first_position(row)); });
    }

    // The same of the blocks that the step's own tokens go to.
    bool valid_for_writing() const {
        return valid_from([&](int64_t row) { return first_position(row); });
    }

private:
    template <class First>
    bool valid_from(const First& first_used) const {
        if (query_starts[0] != 0 || query_starts[num_rows] != num_tokens) return false;
        for (int64_t row = 0; row < num_rows; row++) {
            const int64_t queries = num_queries(row), context = context_lengths[row];
            if (queries < 0) return false;
            if (queries == 0) continue;
            if (queries > context || context > max_blocks * block_size) return false;
            const int32_t* blocks = block_tables + row * max_blocks;
            for (int64_t i = first_used(row) / block_size; i * block_size < context; i++) {
                if (blocks[i] < 0 || blocks[i] >= num_blocks) return false;
            }
        }
        return true;
    }
};

}  // namespace headrace::HEADRACE_ISA
