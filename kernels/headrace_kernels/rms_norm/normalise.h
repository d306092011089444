// Two passes over a row, which is in the cache by the second: the sum of squares, then scale and weight.
#pragma once

#include <cmath>

#include "../cpu/vector.h"

namespace headrace::HEADRACE_ISA {

// The sum of squares of a row. Vector i goes to accumulator i mod 4; the order is fixed by the row's size alone.
template <class T>
inline float sum_of_squares(const T* x, int64_t size) {
    Vec sums[4] = {zero(), zero(), zero(), zero()};
    int64_t i = 0;
    for (; i + 4 * kLanes <= size; i += 4 * kLanes) {
        for (int k = 0; k < 4; k++) {
            const Vec a = load(x + i + k * kLanes);
            sums[k] = fma(a, a, sums[k]);
        }
    }
    const auto add = [&](Vec a) { sums[0] = fma(a, a, sums[0]); };
    for_each_vector(
        size - i, [&](int64_t j) { add(load(x + i + j)); },
        [&](int64_t j, int64_t count) { add(load_part(x + i + j, count)); });
    return sum((sums[0] + sums[1]) + (sums[2] + sums[3]));
}

// What the elements of a row are multiplied with.
template <class X>
inline float inverse_rms(const X* x, int64_t size, float eps) {
    return 1.0f / std::sqrt(sum_of_squares(x, size) / static_cast<float>(size) + eps);
}

template <class X, class W, class Out>
inline void normalise(const X* x, const W* weight, Out* out, int64_t size, float eps) {
    const Vec scale = broadcast(inverse_rms(x, size, eps));
    for_each_vector(
        size, [&](int64_t i) { store(out + i, load(x + i) * scale * load(weight + i)); },
        [&](int64_t i, int64_t count) {
            store_part(out + i, load_part(x + i, count) * scale * load_part(weight + i, count), count);
        });
}

}  // namespace headrace::HEADRACE_ISA
