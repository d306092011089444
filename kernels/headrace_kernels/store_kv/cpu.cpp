// Writing to the cache alone, for tests and for models whose layers are torch's; see store.h.
#include "store.h"

#include "../cpu/parallel.h"
#include "../paged_attention/batch.h"

namespace headrace::HEADRACE_ISA {
namespace {

template <class T>
void store_kv(const Batch& batch, const KvCache<T>& cache, const T* key, int64_t key_stride, const T* value,
              int64_t value_stride, int threads) {
    parallel_for(threads, batch.num_rows, 1, [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; row++) {
            const int64_t first = batch.query_starts[row], count = batch.num_queries(row);
            for (int64_t i = 0; i < count; i++) {
                const int64_t position = batch.first_position(row) + i;
                const int64_t block = batch.block_tables[row * batch.max_blocks + position / batch.block_size];
                for (int64_t head = 0; head < batch.num_kv_heads; head++) {
                    const int64_t from = head * batch.head_dim;
                    T padded[kMostHeadDim] = {};
                    __builtin_memcpy(padded, key + (first + i) * key_stride + from, batch.head_dim * sizeof(T));
                    cache.store_key(block, position, head, padded);
                    __builtin_memcpy(padded, value + (first + i) * value_stride + from, batch.head_dim * sizeof(T));
                    cache.store_value(block, position, i == count - 1, head, padded);
                }
            }
        }
    });
}

}  // namespace
}  // namespace headrace::HEADRACE_ISA

// Strides are in elements. kBadArgument: block_tables, query_starts or context_lengths don't fit together, and nothing
// was written.
HEADRACE_ENTRY(store_kv)
(const void* key, int64_t key_stride, const void* value, int64_t value_stride, void* k_cache, void* v_cache,
 int32_t dtype, const int32_t* block_tables, const int32_t* query_starts, const int32_t* context_lengths,
 int64_t num_tokens, int64_t num_rows, int64_t max_blocks, int64_t num_blocks, int64_t num_kv_heads,
 int64_t head_dim, int64_t block_size, int32_t threads) {
    using namespace headrace;
    using namespace headrace::HEADRACE_ISA;
    constexpr int64_t kNoWindow = int64_t{1} << 40;
    const Batch batch{nullptr,   0,        k_cache,    v_cache,    block_tables, query_starts, context_lengths,
                      num_tokens, num_rows, max_blocks, num_blocks, num_kv_heads, num_kv_heads, head_dim,
                      block_size, kNoWindow, 1.0f};
    // Blocks before the step's own tokens are not written, so they may be anything.
    if (head_dim > kMostHeadDim || !batch.valid_for_writing()) return kBadArgument;
    using headrace::HEADRACE_ISA::store_kv;
    if (dtype == kBFloat16) {
        store_kv<BFloat16>(batch, {static_cast<BFloat16*>(k_cache), static_cast<BFloat16*>(v_cache), num_kv_heads,
                                   block_size, head_dim},
                           static_cast<const BFloat16*>(key), key_stride, static_cast<const BFloat16*>(value),
                           value_stride, threads);
    } else {
        store_kv<float>(batch, {static_cast<float*>(k_cache), static_cast<float*>(v_cache), num_kv_heads, block_size,
                                head_dim},
                        static_cast<const float*>(key), key_stride, static_cast<const float*>(value), value_stride,
                        threads);
    }
    return kOk;
}
