// What one thread does with tasks: products of queries and keys, softmax, products of weights and values.
#pragma once

#include "../cpu/product.h"
#include "../cpu/runtime.h"
#include "batch.h"
#include "cached.h"
#include "rows.h"
#include "tasks.h"
#include "tile.h"

namespace headrace::HEADRACE_ISA {

// `Write` is called with (token, head, values) for each finished row of head_dim float32.
template <class T, class Write>
class Worker {
public:
    static int64_t bytes(const Batch& batch, int64_t most_rows) {
        const int64_t rows = padded_rows(batch, most_rows), width = batch.padded_dim();
        return RowTiles<T>::bytes(rows, width) + kWeightsBytes<T> + ExpandedTile<T>::bytes(batch) +
               static_cast<int64_t>(sizeof(float)) * (kTileRows * kTile + 2 * Rows::floats(rows, width));
    }

    // `memory` has so many bytes, aligned to a cache line.
    Worker(const Batch& batch, int64_t most_rows, void* memory, const Write& write)
        : batch_(batch),
          width_(batch.padded_dim()),
          group_(batch.group()),
          key_lines_(width_ / kPack<T>),
          tile_lines_(kTile / kPanelColumns * key_lines_),
          value_stride_((batch.eight_bits ? kTile : batch.block_size) / kPack<T> * kLineBytes),
          write_(write),
          expanded_(batch) {
        const int64_t rows = padded_rows(batch, most_rows);
        char* at = static_cast<char*>(memory);
        queries_ = {at, round_up(width_, kTileK<T>) / kTileK<T>};
        // Elements between a head's end and its tile's are never written.
        if (batch.head_dim % kTileK<T> != 0) __builtin_memset(at, 0, RowTiles<T>::bytes(rows, width_));
        at += RowTiles<T>::bytes(rows, width_);
        at = expanded_.take(at);
        weights_ = at;
        scores_ = reinterpret_cast<float*>(weights_ + kWeightsBytes<T>);
        part_ = Rows::at(scores_ + kTileRows * kTile, rows, width_);
        whole_ = Rows::at(scores_ + kTileRows * kTile + Rows::floats(rows, width_), rows, width_);
    }

    // Computes all partitions of a task and writes the result.
    void finish(const Task& task) {
        begin(task);
        // Merging into nothing is copying: the first partition's sums may as well be made in place.
        attend_partition(task.first_partition, whole_);
        for (int64_t p = task.first_partition + 1; p < task.end_partition; p++) {
            attend_partition(p, part_);
            for (int64_t r = 0; r < rows_; r++) merge_row(whole_, part_, r, width_, batch_.scale);
        }
        write(task);
    }

    // Computes the one partition of a shared task; the last to finish adds up all and writes the result.
    void contribute(const Task& task, Share& share, float* partials) {
        begin(task);
        attend_partition(task.first_partition, partial_of(share, task.first_partition, partials));
        if (is_last(share)) add_up(task, share, partials);
    }

    // Computes a partition for decode rows that have its blocks in common.
    void contribute_to_all(const Task& task, const Member* members, Share* shares, float* partials) {
        begin_members(task, members);
        attend_partition(task.first_partition, whole_);
        for (int64_t i = 0; i < task.num_members; i++) {
            const Rows to = partial_of(shares[members[i].share], task.first_partition, partials);
            for (int64_t r = 0; r < group_; r++) {
                __builtin_memcpy(to.out + r * width_, whole_.out + (i * group_ + r) * width_, width_ * sizeof(float));
                to.largest[r] = whole_.largest[i * group_ + r];
                to.total[r] = whole_.total[i * group_ + r];
            }
        }
        for (int64_t i = 0; i < task.num_members; i++) {
            Share& share = shares[members[i].share];
            if (!is_last(share)) continue;
            Task alone = task;
            alone.row = members[i].row;
            begin(alone);
            add_up(alone, share, partials);
        }
    }

    // Rows of a task with all its KV heads.
    static int64_t padded_rows(const Batch& batch, int64_t most_rows) {
        return round_up(most_rows, kTileRows) + kTileRows * batch.num_kv_heads;
    }

private:
    // Where the keys and values of a head lie from a position on.
    struct Tile {
        const char *keys = nullptr, *values = nullptr;
    };

    Tile tile_at(const int32_t* blocks, int64_t position, int64_t kv_head) const {
        const int64_t from = batch_.block_offset(blocks[position / batch_.block_size], kv_head) * sizeof(T);
        const int64_t offset = position % batch_.block_size;
        return {static_cast<const char*>(batch_.k_cache) + from + offset / kPanelColumns * key_lines_ * kLineBytes,
                static_cast<const char*>(batch_.v_cache) + from + offset / kPack<T> * kLineBytes};
    }

    // The sums of the current task's rows over one partition, among those that are kept.
    Rows partial_of(const Share& share, int64_t partition, float* partials) const {
        const int64_t rows = kept_rows_;
        float* at = partials + share.partial + (partition - share.first_partition) * Rows::floats(rows, width_);
        return Rows::at(at, rows, width_);
    }

    static bool is_last(Share& share) { return __atomic_sub_fetch(&share.unfinished, 1, __ATOMIC_ACQ_REL) == 0; }

    void add_up(const Task& task, const Share& share, float* partials) {
        whole_.clear(rows_, width_);
        for (int64_t p = share.first_partition; p < share.end_partition; p++) {
            const Rows part = partial_of(share, p, partials);
            for (int64_t r = 0; r < rows_; r++) merge_row(whole_, part, r, width_, batch_.scale);
        }
        write(task);
    }

    // One query of each member, whose positions are all behind the partition.
    void begin_members(const Task& task, const Member* members) {
        used_ = task.num_members * group_;
        rows_of_head_ = rows_ = round_up(used_, kTileRows);
        kept_rows_ = round_up(group_, kTileRows);
        all_visible_ = true;
        position_ = 0;
        end_position_ = task.end_partition * kPartition;
        blocks_ = batch_.block_tables + members[0].row * batch_.max_blocks;
        first_head_ = task.first_head;
        for (int64_t i = 0; i < task.num_members; i++) {
            for (int64_t r = 0; r < group_; r++) {
                take_query(batch_.query_starts[members[i].row], first_head_ * group_ + r, i * group_ + r);
            }
        }
    }

    void take_query(int64_t token, int64_t head, int64_t row) const {
        const T* query = static_cast<const T*>(batch_.query) + token * batch_.query_stride + head * batch_.head_dim;
        for (int64_t d = 0; d < batch_.head_dim; d += kTileK<T>) {
            const int64_t left = batch_.head_dim - d;
            __builtin_memcpy(queries_.line(row, d), query + d, (left < kTileK<T> ? left : kTileK<T>)*sizeof(T));
        }
    }

    // Row r of a KV head is head r % group of query r / group.
    void begin(const Task& task) {
        used_ = task.num_queries * group_;
        rows_of_head_ = round_up(used_, kTileRows);
        rows_ = kept_rows_ = rows_of_head_ * task.num_heads;
        all_visible_ = false;
        position_ = batch_.first_position(task.row) + task.first_query;
        end_position_ = position_ + task.num_queries;
        blocks_ = batch_.block_tables + task.row * batch_.max_blocks;
        first_head_ = task.first_head;
        first_token_ = batch_.query_starts[task.row] + task.first_query;
        for (int64_t h = 0; h < task.num_heads; h++) {
            for (int64_t r = 0; r < used_; r++) {
                take_query(first_token_ + r / group_, (first_head_ + h) * group_ + r % group_, h * rows_of_head_ + r);
            }
        }
    }

    void write(const Task& task) const {
        for (int64_t h = 0; h < task.num_heads; h++) {
            for (int64_t r = 0; r < used_; r++) {
                const int64_t row = h * rows_of_head_ + r;
                float* values = whole_.out + row * width_;
                const Vec factor = broadcast(1.0f / whole_.total[row]);
                for (int64_t d = 0; d < width_; d += kLanes) store(values + d, load(values + d) * factor);
                write_(first_token_ + r / group_, (first_head_ + h) * group_ + r % group_, values);
            }
        }
    }

    void attend_partition(int64_t partition, const Rows& rows) {
        rows.clear(rows_, width_);
        const int64_t from = all_visible_ ? 0 : batch_.first_visible(position_) / kTile * kTile;
        const int64_t start = partition * kPartition, end = start + kPartition;
        for (int64_t tile = start > from ? start : from; tile < end && tile < end_position_; tile += kTile) {
            for (int64_t first = 0; first < rows_; first += rows_of_head_) attend_head(tile, first, rows);
        }
    }

    // One tile for the rows of one KV head, which begin at `first`.
    void attend_head(int64_t tile, int64_t first, const Rows& rows) {
        const int64_t kv_head = first_head_ + first / rows_of_head_;
        const bool last_head = first + rows_of_head_ == rows_;
        // What comes next, so that it travels while this tile is used: blocks lie anywhere, processors can't guess.
        const int64_t next_tile = last_head ? tile + kTile : tile, next_head = last_head ? first_head_ : kv_head + 1;
        const bool more = next_tile < end_position_;
        if (batch_.eight_bits) {
            const int begin = visible(tile, 0).begin, end = visible(tile, used_ - 1).end;
            expanded_.expand(blocks_, tile, kv_head, begin, end, next_tile, next_head, end_position_);
        }
        const Tile next = more && !batch_.eight_bits ? tile_at(blocks_, next_tile, next_head) : Tile{};
        for (int64_t r = 0; r < used_; r += kTileRows) {
            const int count = static_cast<int>(used_ - r < kTileRows ? used_ - r : kTileRows);
            attend_rows(tile, kv_head, first, r, count, r == 0 ? next : Tile{}, rows);
        }
    }

    // The keys of a tile that row r of a head sees.
    Span visible(int64_t tile, int64_t r) const {
        if (all_visible_) return {0, kTile};
        const int64_t position = position_ + r / group_;
        const int64_t begin = batch_.first_visible(position) - tile, end = position + 1 - tile;
        return {begin < 0 ? 0 : begin > kTile ? kTile : static_cast<int>(begin),
                end > kTile ? kTile : end < 0 ? 0 : static_cast<int>(end)};
    }

    // One tile for rows [r, r + count) of the KV head whose rows begin at `first`; at most 16 of them. `next` is asked for
    // meanwhile, if it isn't empty: half of its keys during the first product, the others and half of its values during
    // softmax, the rest during the second product. What asks for more at once waits for the memory to take it.
    void attend_rows(int64_t tile, int64_t kv_head, int64_t first, int64_t r, int count, const Tile& next,
                     const Rows& rows) {
        // Positions rise with the row: the first row begins first, the last one ends last.
        const Span first_row = visible(tile, r), last_row = visible(tile, r + count - 1);
        const int begin = first_row.begin, end = last_row.end;
        if (begin >= end) return;
        // Most tiles are seen whole by all rows, which saves a division a row.
        const bool whole = first_row.end == kTile && last_row.begin == 0;
        const int64_t row = first + r;
        // A block of 16 holds half a tile; the other half is there only if somebody sees it.
        const int64_t in_block = batch_.block_size < kTile ? batch_.block_size : kTile;
        const int64_t from = begin / in_block * in_block;
        // Half of a tile in so many requests of the product of `count` rows, or of softmax.
        const auto half_in = [&](Fetch& fetch, int64_t requests) {
            const bool any = fetch.from != nullptr && requests > 0;
            fetch.lines = any ? (tile_lines_ / 2 + requests - 1) / requests : 0;
        };
        const auto of_product = [&](int64_t panels, int64_t lines) {
            return product_fetches<T>(count, panels) * (lines / kTileLines) * (kTile / in_block);
        };
        Fetch next_keys{next.keys}, next_values{next.values};
        half_in(next_keys, of_product(in_block / kPanelColumns, key_lines_));
        for (int64_t j = from; j < end; j += in_block) {
            const char* keys = batch_.eight_bits ? expanded_.keys(j) : tile_at(blocks_, tile + j, kv_head).keys;
            product<T>(count, queries_.line(row, 0), queries_.tiles, {keys, key_lines_ * kLineBytes, key_lines_},
                       in_block / kPanelColumns, next_keys, scores_ + j, kTile);
        }
        float decay[kTileRows];
        Span spans[kTileRows];
        for (int i = 0; i < count && !whole; i++) spans[i] = visible(tile, r + i);
        half_in(next_keys, requests_of_weights(count));
        half_in(next_values, requests_of_weights(count));
        weigh<T>(count, scores_, whole ? nullptr : spans, batch_.scale, expanded_.scales(), weights_,
                 {rows.largest + row, rows.total + row, decay}, next_keys, next_values);
        half_in(next_values, of_product(width_ / kPanelColumns, in_block / kPack<T>));
        float* out = rows.out + row * width_;
        for (int i = 0; i < count; i++) {
            if (decay[i] == 1.0f) continue;
            float* sums = out + i * width_;
            for (int64_t d = 0; d < width_; d += kLanes) store(sums + d, load(sums + d) * broadcast(decay[i]));
        }
        for (int64_t j = from; j < end; j += in_block) {
            const int64_t seen = end - j < in_block && !kWholeTiles ? end - j : in_block;
            const Panels values{batch_.eight_bits ? expanded_.values(j) : tile_at(blocks_, tile + j, kv_head).values, value_stride_,
                                (seen + kPack<T> - 1) / kPack<T>};
            const char* weights = reinterpret_cast<const char*>(weights_at<T>(weights_, 0, static_cast<int>(j)));
            product<T, true>(count, weights, 1, values, width_ / kPanelColumns, next_values, out, width_);
        }
    }

    const Batch& batch_;
    const int64_t width_;      // of a head, whole panels
    const int64_t group_;      // heads that share a KV head
    const int64_t key_lines_;  // of a panel of keys
    const int64_t tile_lines_;  // of a tile's keys, and of its values
    const int64_t value_stride_;  // bytes from panel to panel of values
    const Write& write_;
    ExpandedTile<T> expanded_;
    RowTiles<T> queries_;
    char* weights_;
    float* scores_;
    Rows part_, whole_;  // sums over the current partition, and over all so far

    // Of the current task.
    int64_t used_, rows_of_head_, rows_, kept_rows_, position_, end_position_, first_head_, first_token_;
    bool all_visible_;
    const int32_t* blocks_;
};

}  // namespace headrace::HEADRACE_ISA
