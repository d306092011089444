// How a batch is cut into pieces of work for threads. Nothing here can change a bit of the result.
#pragma once

#include "batch.h"

namespace headrace::HEADRACE_ISA {

// Keys of a partition. A row's sums are made partition by partition and merged in order, whoever makes them; so a long
// context can be shared among threads, and gives the same bits when it is not.
constexpr int64_t kPartition = 256;

// Rows, (query, head of the group) pairs, that a task has at most if its group has no more: enough that converting
// a tile of keys costs little beside using it, few enough that rows and tile stay in the second-level cache.
constexpr int64_t kTaskRows = 96;
constexpr int64_t kTaskQueries = 32;

// Consecutive queries of a row, for consecutive KV heads, over partitions [first_partition, end_partition).
struct Task {
    int64_t row, first_head, num_heads, first_query, num_queries;
    int64_t first_partition, end_partition;
    int64_t share;  // index into the shares, or -1: this task has all partitions and writes the result
    // Decode rows that have the partition's blocks in common, read once for all of them: members [first_member,
    // first_member + num_members) instead of `row` and its queries. 0 members: an ordinary task.
    int64_t first_member, num_members;
};

// A row that takes part in a task of several.
struct Member {
    int64_t row, share;  // of the task's KV head
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

    // How many tasks, shares and members there are at most, for the memory that `fill` writes to.
    int64_t most_tasks() const {
        int64_t count = 0;
        for (int64_t row = 0; row < batch_.num_rows; row++) {
            count += pieces(row) * (batch_.context_lengths[row] / kPartition + 1) * batch_.num_kv_heads;
        }
        return count;
    }

    int64_t most_shares() const {
        int64_t count = 0;
        for (int64_t row = 0; row < batch_.num_rows; row++) count += pieces(row) * batch_.num_kv_heads;
        return count;
    }

    int64_t most_members() const { return most_tasks(); }

    // `common` and `order` are room for num_rows numbers each. `floats_of_rows` says what the sums of so many rows take,
    // when they are kept.
    template <class Floats>
    void fill(Task* tasks, Share* shares, Member* members, int64_t* common, int64_t* order,
              const Floats& floats_of_rows) {
        tasks_ = tasks;
        shares_ = shares;
        members_ = members;
        find_common(common, order);
        for (int64_t i = 0, next; i < batch_.num_rows; i = next) {
            next = i + 1;
            if (common[order[i]] == 0) continue;
            while (next < batch_.num_rows && common[order[next]] > 0 && same_start(order[i], order[next])) next++;
            add_sharers(order + i, next - i, common, floats_of_rows);
        }
        for (int64_t row = 0; row < batch_.num_rows; row++) {
            if (common[row] > 0) continue;
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
    bool same_start(int64_t a, int64_t b) const { return block(a, 0) == block(b, 0); }

    int32_t block(int64_t row, int64_t i) const { return batch_.block_tables[row * batch_.max_blocks + i]; }

    // Whole partitions before the last position of a decode row.
    int64_t whole_partitions(int64_t row) const { return (batch_.context_lengths[row] - 1) / kPartition; }

    bool can_share(int64_t row) const {
        // With a window rows see the same blocks in part.
        return batch_.num_queries(row) == 1 && whole_partitions(row) > 0 &&
               batch_.window >= batch_.context_lengths[row];
    }

    // common[row]: how many leading partitions a decode row has in common with the first row that begins with the same
    // block, 0 if it is alone. `order` has rows of one beginning side by side, those that share nothing anywhere.
    void find_common(int64_t* common, int64_t* order) const {
        for (int64_t row = 0; row < batch_.num_rows; row++) {
            common[row] = 0;
            order[row] = row;
        }
        const auto before = [&](int64_t a, int64_t b) {
            const int64_t x = can_share(a) ? block(a, 0) : -1, y = can_share(b) ? block(b, 0) : -1;
            return x != y ? x < y : a < b;
        };
        sort(order, batch_.num_rows, before);
        const int64_t blocks = kPartition / batch_.block_size > 0 ? kPartition / batch_.block_size : 1;
        for (int64_t i = 0, next; i < batch_.num_rows; i = next) {
            const int64_t first = order[i];
            for (next = i + 1; next < batch_.num_rows && can_share(first) && can_share(order[next]) &&
                               same_start(first, order[next]);
                 next++) {
                const int64_t row = order[next];
                int64_t partitions = 0;
                const int64_t most = whole_partitions(row) < whole_partitions(first) ? whole_partitions(row)
                                                                                     : whole_partitions(first);
                while (partitions < most && same_blocks(first, row, partitions * blocks, (partitions + 1) * blocks)) {
                    partitions++;
                }
                common[row] = partitions;
                if (partitions > common[first]) common[first] = partitions;
            }
        }
    }

    bool same_blocks(int64_t a, int64_t b, int64_t begin, int64_t end) const {
        for (int64_t i = begin; i < end; i++) {
            if (block(a, i) != block(b, i)) return false;
        }
        return true;
    }

    // Shell's sort: short, in place, and quick enough for a few hundred rows.
    template <class Before>
    static void sort(int64_t* items, int64_t count, const Before& before) {
        for (int64_t gap = count / 2; gap > 0; gap /= 2) {
            for (int64_t i = gap; i < count; i++) {
                const int64_t item = items[i];
                int64_t j = i;
                for (; j >= gap && before(item, items[j - gap]); j -= gap) items[j] = items[j - gap];
                items[j] = item;
            }
        }
    }

    // Tasks of decode rows with common partitions: first those that they have in common, partition by partition, then
    // what each has for itself.
    template <class Floats>
    void add_sharers(const int64_t* rows, int64_t count, const int64_t* common, const Floats& floats_of_rows) {
        const int64_t at_once = queries_;  // rows whose heads of a group fill a task
        for (int64_t head = 0; head < batch_.num_kv_heads; head++) {
            const int64_t first_share = num_shares_;
            int64_t most = 0;
            for (int64_t i = 0; i < count; i++) {
                const int64_t partitions = whole_partitions(rows[i]) + 1;
                shares_[num_shares_++] = {partial_floats_, 0, partitions, partitions};
                partial_floats_ += partitions * floats_of_rows(round_up(batch_.group(), kTileRows));
                if (common[rows[i]] > most) most = common[rows[i]];
            }
            for (int64_t p = 0; p < most; p++) {
                Task task{rows[0], head, 1, 0, 1, p, p + 1, -1, num_members_, 0};
                for (int64_t i = 0; i < count; i++) {
                    if (common[rows[i]] <= p) continue;
                    members_[num_members_++] = {rows[i], first_share + i};
                    if (++task.num_members == at_once) {
                        tasks_[num_tasks_++] = task;
                        task.first_member = num_members_;
                        task.num_members = 0;
                    }
                }
                if (task.num_members > 0) tasks_[num_tasks_++] = task;
            }
            for (int64_t i = 0; i < count; i++) {
                for (int64_t p = common[rows[i]]; p <= whole_partitions(rows[i]); p++) {
                    tasks_[num_tasks_++] = {rows[i], head, 1, 0, 1, p, p + 1, first_share + i, 0, 0};
                }
            }
        }
    }

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
            add_heads({row, head, step, first, count, 0, 0, -1, 0, 0}, count * end * step, floats_of_rows);
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
    Member* members_ = nullptr;
    int64_t num_tasks_ = 0, num_shares_ = 0, num_members_ = 0, partial_floats_ = 0;
};

}  // namespace headrace::HEADRACE_ISA
