// Attention alone, for tests and for models whose layers are torch's; see attention.h.
#include "attention.h"

#include "../cpu/parallel.h"

namespace headrace::HEADRACE_ISA {
namespace {

thread_local AttentionPlan plan;          // the caller's
thread_local ThreadBuffer worker_memory;  // a Worker's

template <class T>
int64_t paged_attention(const Batch& batch, void* out, int threads) {
    if (!plan.make<T>(batch, threads)) return kOutOfMemory;
    const AttentionPlan& shared = plan;
    const auto write = [&](int64_t token, int64_t head, const float* values) {
        T* to = static_cast<T*>(out) + (token * batch.num_heads + head) * batch.head_dim;
        for_each_vector(
            batch.head_dim, [&](int64_t d) { store(to + d, load(values + d)); },
            [&](int64_t d, int64_t count) { store_part(to + d, load(values + d), count); });
    };
    using ThisWorker = Worker<T, decltype(write)>;
    int64_t status = kOk;
    parallel_for(threads, shared.num_tasks(), 1, [&](int64_t begin, int64_t end) {
        void* memory = worker_memory.reserve(ThisWorker::bytes(batch, shared.most_rows()));
        if (memory == nullptr) {
            __atomic_store_n(&status, int64_t{kOutOfMemory}, __ATOMIC_RELAXED);
            return;
        }
        const Products products;
        ThisWorker worker(batch, shared.most_rows(), memory, write);
        for (int64_t i = begin; i < end; i++) shared.run(worker, i);
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
    const Batch batch{query,     query_stride, k_cache,      v_cache,  block_tables, query_starts, context_lengths,
                      num_tokens, num_rows,    max_blocks,   num_blocks, num_heads,  num_kv_heads, head_dim,
                      block_size, window,      scale};
    if (!batch.valid()) return kBadArgument;
    using headrace::HEADRACE_ISA::paged_attention;
    return dtype == kBFloat16 ? paged_attention<BFloat16>(batch, out, threads)
                              : paged_attention<float>(batch, out, threads);
}
