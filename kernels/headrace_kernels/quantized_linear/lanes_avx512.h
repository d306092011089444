// One register a line: AVX-512, with VNNI's four-byte dot product where the build has it.
#pragma once

#include <immintrin.h>

#include <cstring>

#include "formats.h"

namespace headrace::HEADRACE_ISA {
namespace quantized {

struct Floats {
    __m512 v;
};
struct Ints {
    __m512i v;
};
struct Four {
    __m512i v;
};

inline Floats zeros() { return {_mm512_setzero_ps()}; }
inline Floats spread(float a) { return {_mm512_set1_ps(a)}; }
inline Ints spread(int32_t a) { return {_mm512_set1_epi32(a)}; }
inline Ints load_ints(const int32_t* from) { return {_mm512_loadu_si512(from)}; }
inline Ints operator+(Ints a, Ints b) { return {_mm512_add_epi32(a.v, b.v)}; }
inline Floats operator*(Floats a, Floats b) { return {_mm512_mul_ps(a.v, b.v)}; }
inline Floats fma(Floats a, Floats b, Floats c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
inline Floats to_floats(Ints a) { return {_mm512_cvtepi32_ps(a.v)}; }
inline void store(float* to, Floats a) { _mm512_storeu_ps(to, a.v); }

inline Floats load_halves(const uint8_t* from) {
    return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)))};
}
inline Floats load_bytes(const uint8_t* from) {
    return {_mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from))))};
}

inline Four load_four(const int8_t* from) {
    int32_t four;
    std::memcpy(&four, from, sizeof four);
    return {_mm512_set1_epi32(four)};
}

struct Quants4 {
    __m512i u;
};

inline void load_quants(const uint8_t* line, Quants4& low, Quants4& high) {
    const __m512i both = _mm512_loadu_si512(line);
    const __m512i mask = _mm512_set1_epi8(15);
    low.u = _mm512_and_si512(both, mask);
    high.u = _mm512_and_si512(_mm512_srli_epi16(both, 4), mask);
}

#if defined(__AVX512VNNI__)

struct Quants8 {
    __m512i u;
};

inline Quants8 load_quants(const uint8_t* line) { return {_mm512_loadu_si512(line)}; }
inline Ints start8(int32_t bias) { return spread(bias); }
inline Ints dot(Ints sums, Quants8 w, Four a) { return {_mm512_dpbusd_epi32(sums.v, w.u, a.v)}; }
inline Ints dot(Ints sums, Quants4 w, Four a) { return {_mm512_dpbusd_epi32(sums.v, w.u, a.v)}; }

#else

// u - 128 as magnitude and sign: magnitudes are at most 128, so two products with |a| <= 127 fit 16 bits.
struct Quants8 {
    __m512i magnitude;
    __mmask64 negative;
};

inline Quants8 load_quants(const uint8_t* line) {
    const __m512i w = _mm512_xor_si512(_mm512_loadu_si512(line), _mm512_set1_epi8(-128));
    return {_mm512_abs_epi8(w), _mm512_movepi8_mask(w)};
}
inline Ints start8(int32_t) { return spread(0); }

inline Ints add_pairs(Ints sums, __m512i pairs) {
    return {_mm512_add_epi32(sums.v, _mm512_madd_epi16(pairs, _mm512_set1_epi16(1)))};
}
inline Ints dot(Ints sums, Quants8 w, Four a) {
    const __m512i signed_a = _mm512_mask_sub_epi8(a.v, w.negative, _mm512_setzero_si512(), a.v);
    return add_pairs(sums, _mm512_maddubs_epi16(w.magnitude, signed_a));
}
inline Ints dot(Ints sums, Quants4 w, Four a) { return add_pairs(sums, _mm512_maddubs_epi16(w.u, a.v)); }

#endif

}  // namespace quantized
}  // namespace headrace::HEADRACE_ISA
