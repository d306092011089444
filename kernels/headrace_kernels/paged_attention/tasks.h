// How a batch is cut into pieces of work for threads. Nothing here can change a bit of the result.
#pragma once

#include "batch.h"

namespace headrace::HEADRACE_ISA {

// Keys of a partition. A row's sums are made partition by partition and merged in order, whoever makes them; so a long
// context can be shared among threads, and gives the same bits when it is not.
constexpr int64_t kPartition = 512;

// Rows, (query, head of the group) pairs, that a task has at most if its group has no more: enough that converting
// a tile of keys costs little beside using it, few enough that rows and tile stay in the second-level cache.
constexpr int64_t kTaskRows = 96;
constexpr int64_t kTaskQueries = 32;

// Consecutive queries of a row, for consecutive KV heads, over partitions [first_partition, end_partition).
struct Task {
    int64_t row, first_head, num_heads, first_query, num_queries;
    int64_t first_partition, end_partition;
    int64_t share;  // index into the shares, or -1: this task has all partitions and writes the result
};

// Rows that several tasks share, one partition each. The last to finish merges.
struct Share {
    int64_t partial;  // where the sums of the first partition begin, in floats; the others follow
    int64_t first_partition, end_partition;
    int64_t unfinished;
};

class TaskList {
public:
    TaskList(const Batch& batch, int threads) : batch_(batch), threads_(threads) {
        const int64_t fit = kTaskRows / batch.group();
        queries_ = fit < 1 ? 1 : fit > kTaskQueries ? kTaskQueries : fit;
        for (int64_t row = 0; row < batch.num_rows; row++) {
            total_cost_ += batch.num_queries(row) * batch.context_lengths[row] * batch.num_kv_heads;
        }
    }

    // Rows, for all its KV heads, that a task has at most.
    int64_t most_rows() const {
        const int64_t of_one_head = queries_ * batch_.group();
        return of_one_head > kTaskRows ? of_one_head : kTaskRows;
    }

    // How many tasks and shares there are at most, for the memory that `fill` writes to.
    int64_t most_tasks() const {
        int64_t count = 0;
        for (int64_t row = 0; row < batch_.num_rows; row++) {
            const int64_t partitions = threads_ > 1 ? batch_.context_lengths[row] / kPartition + 1 : 1;
            count += pieces(row) * partitions * batch_.num_kv_heads;
        }
        return count;
    }

    int64_t most_shares() const {
        int64_t count = 0;
        for (int64_t row = 0; row < batch_.num_rows; row++) count += pieces(row) * batch_.num_kv_heads;
        return threads_ > 1 ? count : 0;
    }

    // `floats_of_rows` says what the sums of so many rows take, when they are kept.
    template <class Floats>
    void fill(Task* tasks, Share* shares, const Floats& floats_of_rows) {
        tasks_ = tasks;
        shares_ = shares;
        for (int64_t row = 0; row < batch_.num_rows; row++) {
            // Later pieces of a chunk see more keys: the long ones first, so that the short ones fill the gaps.
            for (int64_t piece = pieces(row) - 1; piece >= 0; piece--) {
                add(row, piece, floats_of_rows);
            }
        }
    }

    int64_t num_tasks() const { return num_tasks_; }
    int64_t num_shares() const { return num_shares_; }
    int64_t partial_floats() const { return partial_floats_; }

private:
    int64_t pieces(int64_t row) const { return (batch_.num_queries(row) + queries_ - 1) / queries_; }

    template <class Floats>
    void add(int64_t row, int64_t piece, const Floats& floats_of_rows) {
        const int64_t first = piece * queries_, left = batch_.num_queries(row) - first;
        const int64_t count = left < queries_ ? left : queries_, heads = batch_.num_kv_heads;
        const int64_t end = batch_.first_position(row) + first + count;
        // A block's heads lie side by side: who takes all of them reads long stretches of memory.
        const bool all_heads = count * batch_.group() * heads <= kTaskRows && !too_large(count * end * heads);
        const int64_t step = all_heads ? heads : 1;
        for (int64_t head = 0; head < heads; head += step) {
            add_heads({row, head, step, first, count, 0, 0, -1}, count * end * step, floats_of_rows);
        }
    }

    template <class Floats>
    void add_heads(Task task, int64_t cost, const Floats& floats_of_rows) {
        const int64_t position = batch_.first_position(task.row) + task.first_query;
        const int64_t from = batch_.first_visible(position) / kPartition;
        const int64_t to = (position + task.num_queries - 1) / kPartition + 1;
        task.first_partition = from;
        task.end_partition = to;
        if (to - from == 1 || !too_large(cost)) {
            tasks_[num_tasks_++] = task;
            return;
        }
        shares_[num_shares_] = {partial_floats_, from, to, to - from};
        task.share = num_shares_++;
        for (int64_t p = from; p < to; p++) {
            task.first_partition = p;
            task.end_partition = p + 1;
            tasks_[num_tasks_++] = task;
        }
        partial_floats_ += (to - from) * floats_of_rows(round_up(task.num_queries * batch_.group(), kTileRows) * task.num_heads);
    }

    // Whether a task is so large beside the whole that others might wait for it.
    bool too_large(int64_t cost) const { return threads_ > 1 && cost * threads_ * 4 > total_cost_; }

    const Batch& batch_;
    const int threads_;
    int64_t queries_;
    int64_t total_cost_ = 0;
    Task* tasks_ = nullptr;
    Share* shares_ = nullptr;
    int64_t num_tasks_ = 0, num_shares_ = 0, partial_floats_ = 0;
};

}  // namespace headrace::HEADRACE_ISA
