// `Vec`: a few float32 lanes, as many as the instruction set has.
//
// All the kernels need of an instruction set is below; each vector_*.h defines it. Sums over lanes have one fixed
// order, whichever function makes them, so that a dot product has the same bits in every kernel.
//
//   kLanes                      lanes in a Vec
//   kMultiplyRows, -Panels      rows and panels (lines.h) whose sums fit the registers together
//   load, store                 from and to float or BFloat16 (rounded to nearest even)
//   load(int8_t)                whole numbers
//   store_exact                 to BFloat16, of values that are bfloat16 already; to float
//   store_normal                to BFloat16, rounded to nearest even; numbers below the normal ones may become 0
//   fma(a, b, c)                a * b + c, rounded once where the hardware can
//   sum(a), largest(a)          over the lanes; sum_of_four, largest_of_four: the same bits, of four at once
//   scale_by_power(a, t)        a * 2^n for t = n + kRoundingShift
//   zero_below(a, x, bound)     a where x >= bound or x is NaN, else 0
//   Line<T>, Four<T>, LineSum   a line of a panel, four bytes of a row, and the sums of their products; lines.h
//   TileOfRows<T, R>            where a product finds the `Four`s of R rows, a tile of K at a time
#pragma once

#include "isa.h"

namespace headrace::HEADRACE_ISA {

// 1.5 * 2^23: adding it to a small float rounds that to an integer, which then is in the sum's low bits.
constexpr float kRoundingShift = 12582912.0f;

inline float widen(BFloat16 value) {
    const uint32_t bits = static_cast<uint32_t>(value.bits) << 16;
    float wide;
    __builtin_memcpy(&wide, &bits, sizeof wide);
    return wide;
}

// Rounded to nearest, ties to even.
inline BFloat16 narrow(float value) {
    uint32_t bits;
    __builtin_memcpy(&bits, &value, sizeof bits);
    // Rounding could carry a NaN's bits into infinity or beyond: it becomes the quiet one.
    return {value != value ? uint16_t{0x7fc0} : static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16)};
}

template <int N>
struct Int {
    static constexpr int value = N;
};

template <class T>
struct Line;

template <class T>
struct Four;

// Rows as they lie in memory. An instruction set that has to convert their elements first has its own.
template <class T, int R>
class TileOfRows {
public:
    void enter(const char* rows) { rows_ = rows; }
    Four<T> four(int row, int64_t line) const {
        return Four<T>::load(reinterpret_cast<const T*>(rows_ + row * 64 + line * 4));
    }

private:
    const char* rows_ = nullptr;
};

}  // namespace headrace::HEADRACE_ISA

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)
#include "vector_avx512.h"
#elif defined(__AVX2__) && defined(__FMA__)
#include "vector_avx2.h"
#else
#include "vector_generic.h"
#endif

namespace headrace::HEADRACE_ISA {

inline void store_exact(float* to, Vec a) { store(to, a); }
inline void store_normal(float* to, Vec a) { store(to, a); }
#if !defined(__AVX512BF16__)
inline void store_normal(BFloat16* to, Vec a) { store(to, a); }
#endif

// The first `count` < kLanes elements, then zeros.
template <class T>
inline Vec load_part(const T* from, int64_t count) {
    T buffer[kLanes] = {};
    for (int64_t i = 0; i < count; i++) buffer[i] = from[i];
    return load(buffer);
}

template <class T>
inline void store_part(T* to, Vec a, int64_t count) {
    T buffer[kLanes];
    store(buffer, a);
    for (int64_t i = 0; i < count; i++) to[i] = buffer[i];
}

// Calls full(i) for each whole vector that begins at element i, then part(i, n) for the n < kLanes left, if any.
template <class Full, class Part>
inline void for_each_vector(int64_t size, Full full, Part part) {
    int64_t i = 0;
    for (; i + kLanes <= size; i += kLanes) full(i);
    if (i < size) part(i, size - i);
}

// e^x within 2 ulp for -87.3 <= x <= 88; 0 below, e^88 above; NaN stays NaN.
inline Vec exp(Vec x) {
    constexpr float kLowest = -87.33654f;
    // x second: where either is NaN, max and min return it.
    const Vec clamped = min(broadcast(88.0f), max(broadcast(kLowest), x));
    const Vec t = fma(clamped, broadcast(1.44269504088896341f), broadcast(kRoundingShift));
    const Vec n = t - broadcast(kRoundingShift);
    // ln 2 in two parts, the first of few bits, so that n times it is exact.
    const Vec r = fma(n, broadcast(2.12194440e-4f), fma(n, broadcast(-0.693359375f), clamped));
    Vec p = broadcast(1.9875691500e-4f);
    p = fma(p, r, broadcast(1.3981999507e-3f));
    p = fma(p, r, broadcast(8.3334519073e-3f));
    p = fma(p, r, broadcast(4.1665795894e-2f));
    p = fma(p, r, broadcast(1.6666665459e-1f));
    p = fma(p, r, broadcast(5.0000001201e-1f));
    p = fma(p * r, r, r + broadcast(1.0f));
    return zero_below(scale_by_power(p, t), x, broadcast(kLowest));
}

// 2^x within 2 ulp for x <= 1; 0 below -126; NaN stays NaN. Two thirds of what `exp` costs, for who can take a factor
// of log2(e) along in its argument.
inline Vec exp2(Vec x) {
    constexpr float kLowest = -126.0f;
    const Vec clamped = max(broadcast(kLowest), x);  // x second, as above
    const Vec t = clamped + broadcast(kRoundingShift);
    const Vec r = clamped - (t - broadcast(kRoundingShift));
    // The polynomial with the least relative error, 3e-9, on [-1/2, 1/2] among those that are 1 at 0.
    Vec p = broadcast(1.55946782e-4f);
    p = fma(p, r, broadcast(1.34066439e-3f));
    p = fma(p, r, broadcast(9.61769297e-3f));
    p = fma(p, r, broadcast(5.55031055e-2f));
    p = fma(p, r, broadcast(2.402265278e-1f));
    p = fma(p, r, broadcast(6.931472150e-1f));
    p = fma(p, r, broadcast(1.0f));
    return zero_below(scale_by_power(p, t), x, broadcast(kLowest));
}

}  // namespace headrace::HEADRACE_ISA
