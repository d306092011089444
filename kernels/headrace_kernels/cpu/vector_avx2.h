// `Vec` with AVX2 and FMA: eight lanes.
#pragma once

#include <immintrin.h>

#include "isa.h"

namespace headrace::HEADRACE_ISA {

constexpr int kLanes = 8;
constexpr int kMultiplyRows = 4;
constexpr int kMultiplyPanels = 1;

struct Vec {
    __m256 v;
};

inline Vec broadcast(float a) { return {_mm256_set1_ps(a)}; }
inline Vec zero() { return {_mm256_setzero_ps()}; }
inline Vec operator+(Vec a, Vec b) { return {_mm256_add_ps(a.v, b.v)}; }
inline Vec operator-(Vec a, Vec b) { return {_mm256_sub_ps(a.v, b.v)}; }
inline Vec operator*(Vec a, Vec b) { return {_mm256_mul_ps(a.v, b.v)}; }
inline Vec operator/(Vec a, Vec b) { return {_mm256_div_ps(a.v, b.v)}; }
inline Vec fma(Vec a, Vec b, Vec c) { return {_mm256_fmadd_ps(a.v, b.v, c.v)}; }
inline Vec max(Vec a, Vec b) { return {_mm256_max_ps(a.v, b.v)}; }
inline Vec min(Vec a, Vec b) { return {_mm256_min_ps(a.v, b.v)}; }

inline Vec load(const float* from) { return {_mm256_loadu_ps(from)}; }
inline void store(float* to, Vec a) { _mm256_storeu_ps(to, a.v); }

inline Vec load(const BFloat16* from) {
    const __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
    return {_mm256_castsi256_ps(_mm256_slli_epi32(wide, 16))};
}

inline void store_exact(BFloat16* to, Vec a) {
    const __m256i high = _mm256_srli_epi32(_mm256_castps_si256(a.v), 16);
    const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(high, high), 0x08);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm256_castsi256_si128(packed));
}

inline void store(BFloat16* to, Vec a) {
    const __m256i bits = _mm256_castps_si256(a.v);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i rounded = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    // Rounding could carry a NaN's bits into infinity or beyond: it becomes the quiet one.
    const __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(a.v, a.v, _CMP_UNORD_Q));
    const __m256i safe = _mm256_blendv_epi8(rounded, _mm256_set1_epi32(0x7fc00000), is_nan);
    store_exact(to, {_mm256_castsi256_ps(safe)});
}

inline Vec load(const int8_t* from) {
    return {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from))))};
}

// Order of every sum over lanes: neighbours, then neighbours of those, then the two halves.

inline float sum(Vec a) {
    const __m256 pairs = _mm256_hadd_ps(a.v, a.v);
    const __m256 fours = _mm256_hadd_ps(pairs, pairs);
    return _mm_cvtss_f32(_mm_add_ss(_mm256_castps256_ps128(fours), _mm256_extractf128_ps(fours, 1)));
}

inline float largest(Vec a) {
    const __m128 fours = _mm_max_ps(_mm256_castps256_ps128(a.v), _mm256_extractf128_ps(a.v, 1));
    const __m128 pairs = _mm_max_ps(fours, _mm_movehl_ps(fours, fours));
    return _mm_cvtss_f32(_mm_max_ss(pairs, _mm_movehdup_ps(pairs)));
}

inline void sum_of_four(const Vec* a, float* to) {
    const __m256 fours = _mm256_hadd_ps(_mm256_hadd_ps(a[0].v, a[1].v), _mm256_hadd_ps(a[2].v, a[3].v));
    _mm_storeu_ps(to, _mm_add_ps(_mm256_castps256_ps128(fours), _mm256_extractf128_ps(fours, 1)));
}

inline void largest_of_four(const Vec* a, float* to) {
    const auto fours = [](Vec x) { return _mm_max_ps(_mm256_castps256_ps128(x.v), _mm256_extractf128_ps(x.v, 1)); };
    __m128 a0 = fours(a[0]), a1 = fours(a[1]), a2 = fours(a[2]), a3 = fours(a[3]);
    _MM_TRANSPOSE4_PS(a0, a1, a2, a3);
    _mm_storeu_ps(to, _mm_max_ps(_mm_max_ps(a0, a1), _mm_max_ps(a2, a3)));
}

inline Vec scale_by_power(Vec a, Vec t) {
    const __m256i exponent = _mm256_slli_epi32(_mm256_castps_si256(t.v), 23);
    const __m256i power = _mm256_add_epi32(exponent, _mm256_set1_epi32(0x3f800000));
    return {_mm256_mul_ps(a.v, _mm256_castsi256_ps(power))};
}

inline Vec zero_below(Vec a, Vec x, Vec bound) {
    return {_mm256_and_ps(a.v, _mm256_cmp_ps(x.v, bound.v, _CMP_NLT_UQ))};
}

// The sums of a line's 16 columns.
struct LineSum {
    __m256 low, high;

    static LineSum zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
    static LineSum load(const float* from) { return {_mm256_loadu_ps(from), _mm256_loadu_ps(from + 8)}; }
    void store(float* to) const {
        _mm256_storeu_ps(to, low);
        _mm256_storeu_ps(to + 8, high);
    }

    template <class T>
    void add(const Line<T>& columns, const Four<T>& four) {
        multiply_add(low, columns.low, four);
        multiply_add(high, columns.high, four);
    }
};

template <>
struct Line<float> {
    __m256 low, high;
    static Line load(const float* from) { return {_mm256_loadu_ps(from), _mm256_loadu_ps(from + 8)}; }
};

template <>
struct Four<float> {
    __m256 v;
    static Four load(const float* from) { return {_mm256_broadcast_ss(from)}; }
};

inline void multiply_add(__m256& sum, __m256 columns, const Four<float>& four) {
    sum = _mm256_fmadd_ps(columns, four.v, sum);
}

// Of eight pairs of bfloat16, the first and the second of each.
inline __m256 even_of(__m256i pairs) { return _mm256_castsi256_ps(_mm256_slli_epi32(pairs, 16)); }
inline __m256 odd_of(__m256i pairs) {
    return _mm256_castsi256_ps(_mm256_and_si256(pairs, _mm256_set1_epi32(static_cast<int32_t>(0xffff0000))));
}

template <>
struct Line<BFloat16> {
    __m256i low, high;
    static Line load(const BFloat16* from) {
        const auto* at = reinterpret_cast<const __m256i*>(from);
        return {_mm256_loadu_si256(at), _mm256_loadu_si256(at + 1)};
    }
};

template <>
struct Four<BFloat16> {
    __m256 even, odd;
};

// Widened together: one by one, elements would take the ports that the products need.
template <int R>
class TileOfRows<BFloat16, R> {
public:
    void enter(const char* rows) {
        for (int row = 0; row < R; row++) {
            const Line<BFloat16> pairs = Line<BFloat16>::load(reinterpret_cast<const BFloat16*>(rows + row * 64));
            _mm256_store_ps(even_[row], even_of(pairs.low));
            _mm256_store_ps(even_[row] + 8, even_of(pairs.high));
            _mm256_store_ps(odd_[row], odd_of(pairs.low));
            _mm256_store_ps(odd_[row] + 8, odd_of(pairs.high));
        }
    }
    Four<BFloat16> four(int row, int64_t line) const {
        return {_mm256_set1_ps(even_[row][line]), _mm256_set1_ps(odd_[row][line])};
    }

private:
    alignas(32) float even_[R][16], odd_[R][16];
};

inline void multiply_add(__m256& sum, __m256i columns, const Four<BFloat16>& four) {
    sum = _mm256_fmadd_ps(odd_of(columns), four.odd, _mm256_fmadd_ps(even_of(columns), four.even, sum));
}

}  // namespace headrace::HEADRACE_ISA
