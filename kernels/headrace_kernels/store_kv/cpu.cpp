// Copies each token's keys and values, head by head, to where the cache keeps that position.
#include <cstring>

#include "../cpu/isa.h"
#include "../cpu/parallel.h"

namespace headrace::HEADRACE_ISA {
namespace {

struct StoreKv {
    const char *key, *value;
    char *k_cache, *v_cache;
    const int64_t* slots;
    int64_t key_stride, value_stride;  // bytes from one token to the next
    int64_t num_kv_heads, block_size, head_bytes;

    void token(int64_t t) const {
        if (slots[t] < 0) return;
        const int64_t block = slots[t] / block_size, offset = slots[t] % block_size;
        for (int64_t head = 0; head < num_kv_heads; head++) {
            const int64_t to = ((block * num_kv_heads + head) * block_size + offset) * head_bytes;
            std::memcpy(k_cache + to, key + t * key_stride + head * head_bytes, head_bytes);
            std::memcpy(v_cache + to, value + t * value_stride + head * head_bytes, head_bytes);
        }
    }
};

}  // namespace
}  // namespace headrace::HEADRACE_ISA

// Strides are in elements, `element_size` in bytes. kBadArgument: a slot is out of range, and nothing was written.
HEADRACE_ENTRY(store_kv)
(const char* key, int64_t key_stride, const char* value, int64_t value_stride, char* k_cache, char* v_cache,
 const int64_t* slots, int64_t num_tokens, int64_t num_blocks, int64_t num_kv_heads, int64_t block_size,
 int64_t head_dim, int64_t element_size, int32_t threads) {
    using namespace headrace;
    using namespace headrace::HEADRACE_ISA;
    for (int64_t t = 0; t < num_tokens; t++) {
        if (slots[t] < -1 || slots[t] >= num_blocks * block_size) return kBadArgument;
    }
    const StoreKv store{key, value, k_cache, v_cache, slots, key_stride * element_size, value_stride * element_size,
                        num_kv_heads, block_size, head_dim * element_size};
    parallel_for(threads, num_tokens, row_grain(2 * num_kv_heads * head_dim), [&](int64_t begin, int64_t end) {
        for (int64_t t = begin; t < end; t++) store.token(t);
    });
    return kOk;
}
