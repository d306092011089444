// Selection without a sort: where in a falling order a weight is reached, by histograms over the bits of the keys.
#pragma once

#include <cstring>

#include "../cpu/isa.h"

namespace headrace::HEADRACE_ISA::sampling {

// Whole numbers in the order of the floats; both zeros are one.
inline uint32_t key_of(float x) {
    const float one_zero = x + 0.0f;
    uint32_t bits;
    std::memcpy(&bits, &one_zero, sizeof bits);
    return bits & 0x80000000 ? ~bits : bits | 0x80000000;
}

inline float value_of(uint32_t key) {
    const uint32_t bits = key & 0x80000000 ? key & 0x7fffffff : ~key;
    float x;
    std::memcpy(&x, &bits, sizeof x);
    return x;
}

// The largest key such that the items with it or a larger one weigh at least `target`, which is at least 1 and at
// most what all weigh. Overwrites both arrays.
//
// Four passes at most, of 8 bits each, over ever fewer items: the first over all, the next over those whose key shares
// its bits with the answer. The range of the keys is stretched to whole buckets first, so one pass leaves few.
inline uint32_t key_at_weight(uint32_t* keys, uint64_t* weights, int64_t count, uint64_t target) {
    constexpr int kDigit = 8;
    uint32_t low = keys[0], high = keys[0];
    for (int64_t i = 1; i < count; i++) {
        low = keys[i] < low ? keys[i] : low;
        high = keys[i] > high ? keys[i] : high;
    }
    int bits = high == low ? 0 : 32 - __builtin_clz(high - low);
    while (bits > 0) {
        const int shift = bits > kDigit ? bits - kDigit : 0;
        uint64_t histogram[1 << kDigit] = {};
        for (int64_t i = 0; i < count; i++) histogram[(keys[i] - low) >> shift] += weights[i];
        uint32_t bucket = (1 << kDigit) - 1;
        for (; histogram[bucket] < target; bucket--) target -= histogram[bucket];
        int64_t left = 0;
        for (int64_t i = 0; i < count; i++) {
            const uint32_t key = keys[i];
            keys[left] = key;
            weights[left] = weights[i];
            left += (key - low) >> shift == bucket;
        }
        low += bucket << shift;
        count = left;
        bits = shift;
    }
    return low;
}

// Sorts, smallest first, in place and without memory of its own: a heap.
inline void sort(uint64_t* items, int64_t count) {
    const auto sink = [items](int64_t at, int64_t end) {
        const uint64_t item = items[at];
        for (int64_t child; (child = 2 * at + 1) < end; at = child) {
            if (child + 1 < end && items[child + 1] > items[child]) child++;
            if (items[child] <= item) break;
            items[at] = items[child];
        }
        items[at] = item;
    };
    for (int64_t at = count / 2; at-- > 0;) sink(at, count);
    for (int64_t end = count; end-- > 1;) {
        const uint64_t largest = items[0];
        items[0] = items[end];
        items[end] = largest;
        sink(0, end);
    }
}

}  // namespace headrace::HEADRACE_ISA::sampling
