// `Vec` with AVX2 and FMA: eight lanes.
#pragma once

#include <immintrin.h>

#include "isa.h"

namespace headrace::HEADRACE_ISA {

constexpr int kLanes = 8;
constexpr int kRowBlock = 3;

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

inline void store(BFloat16* to, Vec a) {
    const __m256i bits = _mm256_castps_si256(a.v);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i rounded = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    // Rounding could carry a NaN's bits into infinity or beyond: it becomes the quiet one.
    const __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(a.v, a.v, _CMP_UNORD_Q));
    const __m256i safe = _mm256_blendv_epi8(rounded, _mm256_set1_epi32(0x7fc00000), is_nan);
    const __m256i high = _mm256_srli_epi32(safe, 16);
    const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(high, high), 0x08);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm256_castsi256_si128(packed));
}

// Order of every sum over lanes: neighbours, then neighbours of those, then the two halves.
inline void sum4(Vec a, Vec b, Vec c, Vec d, float* out) {
    const __m256 ab = _mm256_hadd_ps(a.v, b.v);
    const __m256 cd = _mm256_hadd_ps(c.v, d.v);
    const __m256 abcd = _mm256_hadd_ps(ab, cd);
    _mm_storeu_ps(out, _mm_add_ps(_mm256_castps256_ps128(abcd), _mm256_extractf128_ps(abcd, 1)));
}

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

inline Vec scale_by_power(Vec a, Vec t) {
    const __m256i exponent = _mm256_slli_epi32(_mm256_castps_si256(t.v), 23);
    const __m256i power = _mm256_add_epi32(exponent, _mm256_set1_epi32(0x3f800000));
    return {_mm256_mul_ps(a.v, _mm256_castsi256_ps(power))};
}

inline Vec zero_below(Vec a, Vec x, Vec bound) {
    return {_mm256_and_ps(a.v, _mm256_cmp_ps(x.v, bound.v, _CMP_NLT_UQ))};
}

}  // namespace headrace::HEADRACE_ISA
