// The rotation of one head.
#pragma once

#include "../cpu/vector.h"

namespace headrace::HEADRACE_ISA {

// first[i] and second[i] are a pair, for i < half.
template <class T>
inline void rotate(T* first, T* second, const float* cos, const float* sin, int64_t half) {
    // a * cos - b * sin and b * cos + a * sin, with the product by the sine rounded first.
    for_each_vector(
        half,
        [&](int64_t i) {
            const Vec a = load(first + i), b = load(second + i), c = load(cos + i), s = load(sin + i);
            store(first + i, fma(a, c, zero() - b * s));
            store(second + i, fma(b, c, a * s));
        },
        [&](int64_t i, int64_t count) {
            const Vec a = load_part(first + i, count), b = load_part(second + i, count);
            const Vec c = load_part(cos + i, count), s = load_part(sin + i, count);
            store_part(first + i, fma(a, c, zero() - b * s), count);
            store_part(second + i, fma(b, c, a * s), count);
        });
}

}  // namespace headrace::HEADRACE_ISA
