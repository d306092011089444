// Flash attention over paged keys and values.
//
// A task takes consecutive queries of a row and one KV head, and walks the keys tile by tile. Every head of the group
// and every query of the task uses a tile while it is in the first-level cache. The order of a query's sums depends on
// its position alone: tiles begin at multiples of kTile, partitions at multiples of kPartition, and masked keys never
// enter a sum. So it makes no difference whether the query came alone (decode) or with others, or how a chunk was cut.
#include "../cpu/parallel.h"
#include "../cpu/runtime.h"
#include "../cpu/vector.h"
#include "batch.h"
#include "rows.h"
#include "tasks.h"
#include "tile.h"

namespace headrace::HEADRACE_ISA {
namespace {

thread_local ThreadBuffer worker_memory;   // a Worker's
thread_local ThreadBuffer task_memory;     // the caller's: tasks and shares
thread_local ThreadBuffer partial_memory;  // the caller's: sums of shared rows

int64_t whole_vectors(int64_t elements) { return (elements + kLanes - 1) / kLanes * kLanes; }

// Copies a row to float32 and pads it with zeros to whole vectors.
template <class T>
inline void widen(const T* from, int64_t size, float* to) {
    for_each_vector(
        size, [&](int64_t d) { store(to + d, load(from + d)); },
        [&](int64_t d, int64_t count) { store(to + d, load_part(from + d, count)); });
}

// What one thread needs to work on tasks, in memory that it keeps.
template <class T>
class Worker {
public:
    Worker(const Batch& batch, int64_t most_rows)
        : batch_(batch), width_(whole_vectors(batch.head_dim)), most_rows_(most_rows) {
        auto* memory = static_cast<float*>(worker_memory.reserve(sizeof(float) * floats()));
        ready_ = memory != nullptr;
        if (!ready_) return;
        queries_ = memory;
        tile_keys_ = queries_ + most_rows_ * width_;
        tile_values_ = tile_keys_ + kTile * width_;
        for (int j = 0; j < kTile; j++) {
            keys_[j] = tile_keys_ + j * width_;
            values_[j] = tile_values_ + j * width_;
        }
        part_ = Rows::at(tile_values_ + kTile * width_, most_rows_, width_);
        whole_ = Rows::at(part_.out + Rows::floats(most_rows_, width_), most_rows_, width_);
    }

    bool ready() const { return ready_; }

    // Computes all partitions of a task and writes the result.
    void finish(const Task& task) {
        begin(task);
        whole_.clear(rows_, width_);
        for (int64_t p = task.first_partition; p < task.end_partition; p++) {
            attend_partition(p, part_);
            for (int64_t r = 0; r < rows_; r++) merge_row(whole_, part_, r, width_);
        }
        write(task);
    }

    // Computes the one partition of a shared task; the last to finish adds up all and writes the result.
    void contribute(const Task& task, Share& share, float* partials) {
        begin(task);
        const int64_t floats = Rows::floats(rows_, width_);
        float* first = partials + share.partial;
        attend_partition(task.first_partition,
                         Rows::at(first + (task.first_partition - share.first_partition) * floats, rows_, width_));
        if (__atomic_sub_fetch(&share.unfinished, 1, __ATOMIC_ACQ_REL) > 0) return;
        whole_.clear(rows_, width_);
        for (int64_t p = 0; p < share.end_partition - share.first_partition; p++) {
            const Rows part = Rows::at(first + p * floats, rows_, width_);
            for (int64_t r = 0; r < rows_; r++) merge_row(whole_, part, r, width_);
        }
        write(task);
    }

private:
    int64_t floats() const {
        return (most_rows_ + 2 * kTile) * width_ + 2 * Rows::floats(most_rows_, width_);
    }

    // Row r is head r % group of query r / group % num_queries, the KV heads one after another.
    int64_t token(const Task& task, int64_t r) const {
        return batch_.query_starts[task.row] + task.first_query + r % rows_of_head_ / batch_.group();
    }

    int64_t head(const Task& task, int64_t r) const {
        return (task.first_head + r / rows_of_head_) * batch_.group() + r % batch_.group();
    }

    void begin(const Task& task) {
        rows_of_head_ = task.num_queries * batch_.group();
        rows_ = rows_of_head_ * task.num_heads;
        position_ = batch_.first_position(task.row) + task.first_query;
        end_position_ = position_ + task.num_queries;
        blocks_ = batch_.block_tables + task.row * batch_.max_blocks;
        first_head_ = task.first_head;
        for (int64_t r = 0; r < rows_; r++) {
            float* to = queries_ + r * width_;
            widen(static_cast<const T*>(batch_.query) + token(task, r) * batch_.query_stride +
                      head(task, r) * batch_.head_dim,
                  batch_.head_dim, to);
            for (int64_t d = 0; d < width_; d++) to[d] *= batch_.scale;
        }
    }

    void write(const Task& task) const {
        for (int64_t r = 0; r < rows_; r++) {
            T* to = static_cast<T*>(batch_.out) +
                    (token(task, r) * batch_.num_heads + head(task, r)) * batch_.head_dim;
            const float* from = whole_.out + r * width_;
            const Vec factor = broadcast(1.0f / whole_.total[r]);
            for_each_vector(
                batch_.head_dim, [&](int64_t d) { store(to + d, load(from + d) * factor); },
                [&](int64_t d, int64_t count) { store_part(to + d, load(from + d) * factor, count); });
        }
    }

    void attend_partition(int64_t partition, const Rows& rows) {
        rows.clear(rows_, width_);
        const int64_t from = batch_.first_visible(position_) / kTile * kTile;
        const int64_t start = partition * kPartition, end = start + kPartition;
        for (int64_t tile = start > from ? start : from; tile < end && tile < end_position_; tile += kTile) {
            for (int64_t first = 0; first < rows_; first += rows_of_head_) attend_head(tile, first, rows);
        }
    }

    // One tile for the rows of one KV head, which begin at `first`.
    void attend_head(int64_t tile, int64_t first, const Rows& rows) {
        const int64_t kv_head = first_head_ + first / rows_of_head_;
        // Few rows convert keys as they go; many would convert each of them too often.
        const bool as_stored = width_ == batch_.head_dim && (rows_of_head_ <= kRowBlock || sizeof(T) == sizeof(float));
        find_keys(tile, kv_head, !as_stored);
        const bool last_head = first + rows_of_head_ == rows_;
        look_ahead(last_head ? tile + kTile : tile, last_head ? first_head_ : kv_head + 1);
        for (int64_t r = 0; r < rows_of_head_; r += kRowBlock) {
            const int64_t left = rows_of_head_ - r;
            const int count = left < kRowBlock ? static_cast<int>(left) : kRowBlock;
            if (as_stored) {
                attend_rows(tile, first, r, count, stored_keys_, stored_values_, rows);
            } else {
                attend_rows(tile, first, r, count, keys_, values_, rows);
            }
        }
    }

    // Points stored_keys_ and stored_values_ at the tile's rows, and keys_ and values_ at copies in float32 if wanted.
    void find_keys(int64_t tile, int64_t kv_head, bool convert) {
        const int64_t left = end_position_ - tile;
        const int count = left < kTile ? static_cast<int>(left) : kTile;
        const int64_t first = batch_.first_visible(position_);
        int j = first > tile ? static_cast<int>(first - tile) & ~7 : 0;  // a group of eight shares a block
        while (j < count) {
            const int64_t block = (tile + j) / batch_.block_size, offset = (tile + j) % batch_.block_size;
            const int64_t from = batch_.block_offset(blocks_[block], kv_head) + offset * batch_.head_dim;
            const T* key = static_cast<const T*>(batch_.k_cache) + from;
            const T* value = static_cast<const T*>(batch_.v_cache) + from;
            const int64_t end = batch_.block_size - offset < count - j ? j + batch_.block_size - offset : count;
            for (; j < end; j++, key += batch_.head_dim, value += batch_.head_dim) {
                stored_keys_[j] = key;
                stored_values_[j] = value;
                if (convert) widen(key, batch_.head_dim, tile_keys_ + j * width_);
                if (convert) widen(value, batch_.head_dim, tile_values_ + j * width_);
            }
        }
        // dot_rows works on four; what is past `count` is masked.
        for (; j & 3; j++) stored_keys_[j] = stored_keys_[count - 1];
    }

    // Finds what comes after the current tile. Blocks lie anywhere, so the processor can't guess.
    void look_ahead(int64_t tile, int64_t kv_head) {
        ahead_.bytes = Ahead::kGroup * batch_.head_dim * static_cast<int64_t>(sizeof(T));
        for (int group = 0; group < kTile / Ahead::kGroup; group++) {
            const int64_t at = tile + group * Ahead::kGroup;
            ahead_.keys[group] = ahead_.values[group] = nullptr;
            if (at >= end_position_ || at + Ahead::kGroup <= batch_.first_visible(position_)) continue;
            const int64_t from = batch_.block_offset(blocks_[at / batch_.block_size], kv_head) +
                                 at % batch_.block_size * batch_.head_dim;
            ahead_.keys[group] = reinterpret_cast<const char*>(static_cast<const T*>(batch_.k_cache) + from);
            ahead_.values[group] = reinterpret_cast<const char*>(static_cast<const T*>(batch_.v_cache) + from);
        }
    }

    // The keys of a tile that row r of a head sees: [begin, end), empty if it sees none.
    struct Span {
        int begin = 0, end = 0;
        bool operator==(const Span& other) const { return begin == other.begin && end == other.end; }
    };

    Span visible(int64_t tile, int64_t r) const {
        const int64_t position = position_ + r / batch_.group();
        const int64_t begin = batch_.first_visible(position) - tile, end = position + 1 - tile;
        return {begin < 0 ? 0 : begin > kTile ? kTile : static_cast<int>(begin),
                end > kTile ? kTile : end < 0 ? 0 : static_cast<int>(end)};
    }

    // One tile for rows [r, r + count) of the KV head whose rows begin at `first`; at most kRowBlock of them.
    template <class Stored>
    void attend_rows(int64_t tile, int64_t first, int64_t r, int count, const Stored* const* keys,
                     const Stored* const* values, const Rows& rows) {
        Span spans[kRowBlock];
        for (int i = 0; i < count; i++) spans[i] = visible(tile, r + i);
        // Positions rise with the row: the first row begins first, the last one ends last.
        const int begin = spans[0].begin & ~3, end = spans[count - 1].end;
        if (begin >= end) return;
        const Ahead* ahead = r == 0 ? &ahead_ : nullptr;
        const int64_t row = first + r;
        alignas(64) float scores[kRowBlock * kTile];
        with_rows<kRowBlock>(count, [&](auto n) {
            dot_rows<decltype(n)::value>(queries_ + row * width_, width_, keys, begin, end, ahead, scores);
        });
        float decay[kRowBlock];
        for (int i = 0; i < count; i++) {
            if (spans[i].begin >= spans[i].end) continue;
            decay[i] =
                weigh(scores + i * kTile, spans[i].begin, spans[i].end, rows.largest[row + i], rows.total[row + i]);
        }
        // Rows that see the same keys go together.
        for (int i = 0, next; i < count; i = next) {
            for (next = i + 1; next < count && spans[next] == spans[i];) next++;
            const Span span = spans[i];
            if (span.begin >= span.end) continue;
            with_rows<kRowBlock>(next - i, [&](auto n) {
                add_rows<decltype(n)::value>(scores + i * kTile, decay + i, values, span.begin, span.end, width_,
                                             i == 0 ? ahead : nullptr, rows.out + (row + i) * width_);
            });
        }
    }

    const Batch& batch_;
    const int64_t width_, most_rows_;
    bool ready_;
    float *queries_, *tile_keys_, *tile_values_;
    Rows part_, whole_;  // sums over the current partition, and over all so far
    const T *stored_keys_[kTile], *stored_values_[kTile];
    const float *keys_[kTile], *values_[kTile];  // rows of tile_keys_ and tile_values_
    Ahead ahead_;

    // Of the current task.
    int64_t rows_of_head_, rows_, position_, end_position_, first_head_;
    const int32_t* blocks_;
};

template <class T>
int64_t paged_attention(const Batch& batch, int threads) {
    TaskList list(batch, threads);
    const int64_t most_tasks = list.most_tasks();
    const size_t bytes = most_tasks * sizeof(Task) + list.most_shares() * sizeof(Share);
    auto* tasks = static_cast<Task*>(task_memory.reserve(bytes));
    if (bytes > 0 && tasks == nullptr) return kOutOfMemory;
    auto* shares = reinterpret_cast<Share*>(tasks + most_tasks);
    list.fill(tasks, shares, Rows::floats(batch.group(), whole_vectors(batch.head_dim)));
    auto* partials = static_cast<float*>(partial_memory.reserve(list.partial_floats() * sizeof(float)));
    if (list.partial_floats() > 0 && partials == nullptr) return kOutOfMemory;

    int64_t status = kOk;
    parallel_for(threads, list.num_tasks(), 1, [&](int64_t begin, int64_t end) {
        Worker<T> worker(batch, list.most_rows());
        if (!worker.ready()) {
            __atomic_store_n(&status, int64_t{kOutOfMemory}, __ATOMIC_RELAXED);
            return;
        }
        for (int64_t i = begin; i < end; i++) {
            if (tasks[i].share < 0) {
                worker.finish(tasks[i]);
            } else {
                worker.contribute(tasks[i], shares[tasks[i].share], partials);
            }
        }
    });
    return status;
}

}  // namespace
}  // namespace headrace::HEADRACE_ISA

// `window` is at least 1; no limit is a number above every position. kBadArgument: block_tables, query_starts or
// context_lengths don't fit together, and nothing was written.
HEADRACE_ENTRY(paged_attention)
(const void* query, int64_t query_stride, const void* k_cache, const void* v_cache, int32_t dtype, void* out,
 const int32_t* block_tables, const int32_t* query_starts, const int32_t* context_lengths, int64_t num_tokens,
 int64_t num_rows, int64_t max_blocks, int64_t num_blocks, int64_t num_heads, int64_t num_kv_heads, int64_t head_dim,
 int64_t block_size, int64_t window, float scale, int32_t threads) {
    using namespace headrace;
    using namespace headrace::HEADRACE_ISA;
    const Batch batch{query,       query_stride, k_cache,    v_cache,   out,          block_tables, query_starts,
                      context_lengths, num_tokens, num_rows, max_blocks, num_blocks,  num_heads,    num_kv_heads,
                      head_dim,    block_size,   window,     scale};
    if (!batch.valid()) return kBadArgument;
    using headrace::HEADRACE_ISA::paged_attention;
    return dtype == kBFloat16 ? paged_attention<BFloat16>(batch, threads) : paged_attention<float>(batch, threads);
}
