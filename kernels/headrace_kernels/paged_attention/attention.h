// Attention of a whole batch: tasks, the memory they need, and what a thread does with one.
//
// A task takes consecutive queries of a row and some KV heads, and walks the keys tile by tile. Every head of the group
// and every query of the task uses a tile while it is in the first-level cache. The order of a query's sums depends on
// its position alone: tiles begin at multiples of kTile, partitions at multiples of kPartition, and masked keys weigh
// exactly nothing. So it makes no difference whether the query came alone (decode) or with others, or how a chunk was
// cut. Decode rows that have the blocks of whole partitions in common, as those of one long system prompt have, read
// them once: a task then has one query of each. Where weights of zero meet values behind a row's last one, those must be finite: `store_kv` sees to it.
#pragma once

#include "worker.h"

namespace headrace::HEADRACE_ISA {

// The tasks of a batch for layers with one window. Made by one thread, read by all.
class AttentionPlan {
public:
    // False: no memory.
    template <class T>
    bool make(const Batch& batch, int threads) {
        TaskList list(batch, threads);
        const int64_t most_tasks = list.most_tasks();
        const size_t bytes = most_tasks * sizeof(Task) + list.most_shares() * sizeof(Share) +
                             list.most_members() * sizeof(Member) + 2 * batch.num_rows * sizeof(int64_t);
        tasks_ = static_cast<Task*>(tasks_memory_.reserve(bytes + 1));
        if (tasks_ == nullptr) return false;
        shares_ = reinterpret_cast<Share*>(tasks_ + most_tasks);
        members_ = reinterpret_cast<Member*>(shares_ + list.most_shares());
        auto* room = reinterpret_cast<int64_t*>(members_ + list.most_members());
        list.fill(tasks_, shares_, members_, room, room + batch.num_rows, [&](int64_t rows) { return Rows::floats(rows, batch.padded_dim()); });
        num_tasks_ = list.num_tasks();
        num_shares_ = list.num_shares();
        most_rows_ = list.most_rows();
        partials_ = static_cast<float*>(partials_memory_.reserve(list.partial_floats() * sizeof(float) + 1));
        return partials_ != nullptr;
    }

    int64_t num_tasks() const { return num_tasks_; }
    int64_t most_rows() const { return most_rows_; }

    template <class T, class Write>
    void run(Worker<T, Write>& worker, int64_t i) const {
        const Task& task = tasks_[i];
        if (task.num_members > 0) {
            worker.contribute_to_all(task, members_ + task.first_member, shares_, partials_);
        } else if (task.share < 0) {
            worker.finish(task);
        } else {
            worker.contribute(task, shares_[task.share], partials_);
        }
    }

    // Before the plan is used again: nobody has contributed yet. By one thread.
    void rewind() const {
        for (int64_t i = 0; i < num_shares_; i++) {
            shares_[i].unfinished = shares_[i].end_partition - shares_[i].first_partition;
        }
    }

private:
    ThreadBuffer tasks_memory_, partials_memory_;
    Task* tasks_ = nullptr;
    Share* shares_ = nullptr;
    Member* members_ = nullptr;
    float* partials_ = nullptr;
    int64_t num_tasks_ = 0, num_shares_ = 0, most_rows_ = 0;
};

}  // namespace headrace::HEADRACE_ISA
