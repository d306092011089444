// Reads memory and does nothing with it: what a kernel that must read as much can't be quicker than.
#include "parallel.h"
#include "vector.h"

// Reads `size` floats, a multiple of 16 lanes' worth at a time; returns 1 in the case, not met, that they sum to NaN.
HEADRACE_ENTRY(read_memory)
(const float* data, int64_t size, int32_t threads) {
    using namespace headrace::HEADRACE_ISA;
    constexpr int64_t kGrain = 1 << 16;
    int64_t odd = 0;
    parallel_for(threads, size, kGrain, [&](int64_t begin, int64_t end) {
        Vec sums[8];
        for (Vec& one : sums) one = zero();
        for (int64_t i = begin; i + 8 * kLanes <= end; i += 8 * kLanes) {
            for (int k = 0; k < 8; k++) sums[k] = sums[k] + load(data + i + k * kLanes);
        }
        for (int k = 1; k < 8; k++) sums[0] = sums[0] + sums[k];
        const float total = sum(sums[0]);
        if (total != total) __atomic_store_n(&odd, int64_t{1}, __ATOMIC_RELAXED);
    });
    return odd;
}
