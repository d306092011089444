// `Vec` with AVX-512 (F, BW, DQ, VL): sixteen lanes.
#pragma once

#include <immintrin.h>

#include "isa.h"

namespace headrace::HEADRACE_ISA {

constexpr int kLanes = 16;
constexpr int kMultiplyRows = 8;
constexpr int kMultiplyPanels = 2;

struct Vec {
    __m512 v;
};

inline Vec broadcast(float a) { return {_mm512_set1_ps(a)}; }
inline Vec zero() { return {_mm512_setzero_ps()}; }
inline Vec operator+(Vec a, Vec b) { return {_mm512_add_ps(a.v, b.v)}; }
inline Vec operator-(Vec a, Vec b) { return {_mm512_sub_ps(a.v, b.v)}; }
inline Vec operator*(Vec a, Vec b) { return {_mm512_mul_ps(a.v, b.v)}; }
inline Vec operator/(Vec a, Vec b) { return {_mm512_div_ps(a.v, b.v)}; }
inline Vec fma(Vec a, Vec b, Vec c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
inline Vec max(Vec a, Vec b) { return {_mm512_max_ps(a.v, b.v)}; }
inline Vec min(Vec a, Vec b) { return {_mm512_min_ps(a.v, b.v)}; }

inline Vec load(const float* from) { return {_mm512_loadu_ps(from)}; }
inline void store(float* to, Vec a) { _mm512_storeu_ps(to, a.v); }

inline Vec load(const BFloat16* from) {
    const __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
    return {_mm512_castsi512_ps(_mm512_slli_epi32(wide, 16))};
}

inline void store(BFloat16* to, Vec a) {
    const __m512i bits = _mm512_castps_si512(a.v);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i rounded = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    // Rounding could carry a NaN's bits into infinity or beyond: it becomes the quiet one.
    const __mmask16 is_nan = _mm512_cmp_ps_mask(a.v, a.v, _CMP_UNORD_Q);
    const __m512i safe = _mm512_mask_mov_epi32(rounded, is_nan, _mm512_set1_epi32(0x7fc00000));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm512_cvtepi32_epi16(_mm512_srli_epi32(safe, 16)));
}

inline Vec load(const int8_t* from) {
    return {_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from))))};
}

inline void store_exact(BFloat16* to, Vec a) {
#if defined(__AVX512BF16__)
    const __m256i halves = (__m256i)_mm512_cvtneps_pbh(a.v);
#else
    const __m256i halves = _mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_castps_si512(a.v), 16));
#endif
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), halves);
}

#if defined(__AVX512BF16__)
inline void store_normal(BFloat16* to, Vec a) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), (__m256i)_mm512_cvtneps_pbh(a.v));
}
#endif

// Order of every sum over lanes: the two halves, then neighbours, then neighbours of those, then the two halves.
inline __m256 fold(Vec a) {
    return _mm256_add_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));
}

inline float sum(Vec a) {
    const __m256 eights = fold(a);
    const __m256 pairs = _mm256_hadd_ps(eights, eights);
    const __m256 fours = _mm256_hadd_ps(pairs, pairs);
    return _mm_cvtss_f32(_mm_add_ss(_mm256_castps256_ps128(fours), _mm256_extractf128_ps(fours, 1)));
}

inline float largest(Vec a) { return _mm512_reduce_max_ps(a.v); }

inline void sum_of_four(const Vec* a, float* to) {
    const __m256 low = _mm256_hadd_ps(fold(a[0]), fold(a[1])), high = _mm256_hadd_ps(fold(a[2]), fold(a[3]));
    const __m256 fours = _mm256_hadd_ps(low, high);
    _mm_storeu_ps(to, _mm_add_ps(_mm256_castps256_ps128(fours), _mm256_extractf128_ps(fours, 1)));
}

inline void largest_of_four(const Vec* a, float* to) {
    const auto halves = [](Vec x) { return _mm256_max_ps(_mm512_castps512_ps256(x.v), _mm512_extractf32x8_ps(x.v, 1)); };
    const auto fours = [&](Vec x) {
        const __m256 both = halves(x);
        return _mm_max_ps(_mm256_castps256_ps128(both), _mm256_extractf128_ps(both, 1));
    };
    __m128 a0 = fours(a[0]), a1 = fours(a[1]), a2 = fours(a[2]), a3 = fours(a[3]);
    _MM_TRANSPOSE4_PS(a0, a1, a2, a3);
    _mm_storeu_ps(to, _mm_max_ps(_mm_max_ps(a0, a1), _mm_max_ps(a2, a3)));
}

inline Vec scale_by_power(Vec a, Vec t) {
    const __m512i exponent = _mm512_slli_epi32(_mm512_castps_si512(t.v), 23);
    const __m512i power = _mm512_add_epi32(exponent, _mm512_set1_epi32(0x3f800000));
    return {_mm512_mul_ps(a.v, _mm512_castsi512_ps(power))};
}

inline Vec zero_below(Vec a, Vec x, Vec bound) {
    return {_mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x.v, bound.v, _CMP_NLT_UQ), a.v)};
}

// The sums of a line's 16 columns.
struct LineSum {
    __m512 v;

    static LineSum zero() { return {_mm512_setzero_ps()}; }
    static LineSum load(const float* from) { return {_mm512_loadu_ps(from)}; }
    void store(float* to) const { _mm512_storeu_ps(to, v); }

    template <class T>
    void add(const Line<T>& columns, const Four<T>& four) {
        multiply_add(v, columns, four);
    }
};

template <>
struct Line<float> {
    __m512 v;
    static Line load(const float* from) { return {_mm512_loadu_ps(from)}; }
};

template <>
struct Four<float> {
    __m512 v;
    static Four load(const float* from) { return {_mm512_set1_ps(*from)}; }
};

inline void multiply_add(__m512& sum, const Line<float>& columns, const Four<float>& four) {
    sum = _mm512_fmadd_ps(columns.v, four.v, sum);
}

#if defined(__AVX512BF16__)

template <>
struct Line<BFloat16> {
    __m512bh v;
    static Line load(const BFloat16* from) { return {(__m512bh)_mm512_loadu_si512(from)}; }
};

template <>
struct Four<BFloat16> {
    __m512bh v;
    static Four load(const BFloat16* from) {
        int32_t bits;
        __builtin_memcpy(&bits, from, sizeof bits);
        return {(__m512bh)_mm512_set1_epi32(bits)};
    }
};

inline void multiply_add(__m512& sum, const Line<BFloat16>& columns, const Four<BFloat16>& four) {
    sum = _mm512_dpbf16_ps(sum, columns.v, four.v);
}

#else

template <>
struct Line<BFloat16> {
    __m512 even, odd;
    static Line load(const BFloat16* from) {
        const __m512i both = _mm512_loadu_si512(from);
        return {_mm512_castsi512_ps(_mm512_slli_epi32(both, 16)),
                _mm512_castsi512_ps(_mm512_and_si512(both, _mm512_set1_epi32(static_cast<int32_t>(0xffff0000))))};
    }
};

template <>
struct Four<BFloat16> {
    __m512 even, odd;
};

// Widened together, so that each element then comes from memory to all lanes as it is: one by one they would take the
// same two ports as the products do.
template <int R>
class TileOfRows<BFloat16, R> {
public:
    void enter(const char* rows) {
        for (int row = 0; row < R; row++) {
            const Line<BFloat16> pairs = Line<BFloat16>::load(reinterpret_cast<const BFloat16*>(rows + row * 64));
            _mm512_store_ps(even_[row], pairs.even);
            _mm512_store_ps(odd_[row], pairs.odd);
        }
    }
    Four<BFloat16> four(int row, int64_t line) const {
        return {_mm512_set1_ps(even_[row][line]), _mm512_set1_ps(odd_[row][line])};
    }

private:
    alignas(64) float even_[R][16], odd_[R][16];
};

inline void multiply_add(__m512& sum, const Line<BFloat16>& columns, const Four<BFloat16>& four) {
    sum = _mm512_fmadd_ps(columns.odd, four.odd, _mm512_fmadd_ps(columns.even, four.even, sum));
}

#endif

}  // namespace headrace::HEADRACE_ISA
