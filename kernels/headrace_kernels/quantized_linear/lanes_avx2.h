// Two registers a line: AVX2, FMA and F16C.
#pragma once

#include <immintrin.h>

#include <cstring>

#include "formats.h"

namespace headrace::HEADRACE_ISA {
namespace quantized {

struct Floats {
    __m256 v[2];
};
struct Ints {
    __m256i v[2];
};
struct Four {
    __m256i v;
};

inline Floats zeros() { return {{_mm256_setzero_ps(), _mm256_setzero_ps()}}; }
inline Floats spread(float a) { return {{_mm256_set1_ps(a), _mm256_set1_ps(a)}}; }
inline Ints spread(int32_t a) { return {{_mm256_set1_epi32(a), _mm256_set1_epi32(a)}}; }
inline Floats operator*(Floats a, Floats b) {
    return {{_mm256_mul_ps(a.v[0], b.v[0]), _mm256_mul_ps(a.v[1], b.v[1])}};
}
inline Floats fma(Floats a, Floats b, Floats c) {
    return {{_mm256_fmadd_ps(a.v[0], b.v[0], c.v[0]), _mm256_fmadd_ps(a.v[1], b.v[1], c.v[1])}};
}
inline Floats to_floats(Ints a) { return {{_mm256_cvtepi32_ps(a.v[0]), _mm256_cvtepi32_ps(a.v[1])}}; }
inline void store(float* to, Floats a) {
    _mm256_storeu_ps(to, a.v[0]);
    _mm256_storeu_ps(to + 8, a.v[1]);
}

inline Floats load_halves(const uint8_t* from) {
    const __m128i* halves = reinterpret_cast<const __m128i*>(from);
    return {{_mm256_cvtph_ps(_mm_loadu_si128(halves)), _mm256_cvtph_ps(_mm_loadu_si128(halves + 1))}};
}
inline Floats load_bytes(const uint8_t* from) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
    return to_floats({{_mm256_cvtepu8_epi32(bytes), _mm256_cvtepu8_epi32(_mm_srli_si128(bytes, 8))}});
}

inline Four load_four(const int8_t* from) {
    int32_t four;
    std::memcpy(&four, from, sizeof four);
    return {_mm256_set1_epi32(four)};
}

inline __m256i half_line(const uint8_t* line, int half) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(line + 32 * half));
}

// u - 128. Its magnitude is at most 128, so two products with |a| <= 127 fit 16 bits.
struct Quants8 {
    __m256i w[2];
};
struct Quants4 {
    __m256i u[2];
};

inline Quants8 load_quants(const uint8_t* line) {
    const __m256i flip = _mm256_set1_epi8(-128);
    return {{_mm256_xor_si256(half_line(line, 0), flip), _mm256_xor_si256(half_line(line, 1), flip)}};
}
inline void load_quants(const uint8_t* line, Quants4& low, Quants4& high) {
    const __m256i mask = _mm256_set1_epi8(15);
    for (int half = 0; half < 2; half++) {
        const __m256i both = half_line(line, half);
        low.u[half] = _mm256_and_si256(both, mask);
        high.u[half] = _mm256_and_si256(_mm256_srli_epi16(both, 4), mask);
    }
}

inline Ints start8(int32_t) { return spread(0); }

inline __m256i add_pairs(__m256i sums, __m256i pairs) {
    return _mm256_add_epi32(sums, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}
inline Ints dot(Ints sums, Quants8 w, Four a) {
    for (int half = 0; half < 2; half++) {
        const __m256i signed_a = _mm256_sign_epi8(a.v, w.w[half]);
        sums.v[half] = add_pairs(sums.v[half], _mm256_maddubs_epi16(_mm256_abs_epi8(w.w[half]), signed_a));
    }
    return sums;
}
inline Ints dot(Ints sums, Quants4 w, Four a) {
    for (int half = 0; half < 2; half++) {
        sums.v[half] = add_pairs(sums.v[half], _mm256_maddubs_epi16(w.u[half], a.v));
    }
    return sums;
}

}  // namespace quantized
}  // namespace headrace::HEADRACE_ISA
