// What sampling needs of a Vec beyond cpu/vector.h: comparisons as bits, and sums whose order makes no difference.
//
// A mass is a weight in [0, 1] as a whole number of 2^-42. Whole numbers add up to the same in any order, so neither
// lanes nor which tokens were passed over because they have no mass shows in a sum. 2^21 of them fit. A weight of
// 2^-43 or less, e^-29.8, has none; in a vocabulary of 2^18 such tokens hold at most 2^-25 of the likeliest's.
#pragma once

#include <cstring>

#include "../cpu/vector.h"

namespace headrace::HEADRACE_ISA::sampling {

constexpr double kMassOfOne = 0x1p42;
constexpr float kMassReach = 30.0f;  // a token this far below the likeliest has no mass

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)

// Bit i: a[i] >= b[i].
inline uint32_t at_least(Vec a, Vec b) { return _mm512_cmp_ps_mask(a.v, b.v, _CMP_GE_OQ); }
// Not zero if a lane of either is NaN.
inline uint32_t any_nan(Vec a, Vec b) { return _mm512_cmp_ps_mask(a.v, b.v, _CMP_UNORD_Q); }

#elif defined(__AVX2__) && defined(__FMA__)

inline uint32_t at_least(Vec a, Vec b) {
    return static_cast<uint32_t>(_mm256_movemask_ps(_mm256_cmp_ps(a.v, b.v, _CMP_GE_OQ)));
}
inline uint32_t any_nan(Vec a, Vec b) {
    return static_cast<uint32_t>(_mm256_movemask_ps(_mm256_cmp_ps(a.v, b.v, _CMP_UNORD_Q)));
}

#else

inline uint32_t at_least(Vec a, Vec b) {
    const Int4 bits = (Int4)(a.v >= b.v) & Int4{1, 2, 4, 8};
    return static_cast<uint32_t>(bits[0] | bits[1] | bits[2] | bits[3]);
}
inline uint32_t any_nan(Vec a, Vec b) {
    const Int4 odd = (Int4)(a.v != a.v) | (Int4)(b.v != b.v);
    return static_cast<uint32_t>(odd[0] | odd[1] | odd[2] | odd[3]);
}

#endif

// Appends the lanes of `scores` whose bit is set, and their ids, which begin with `first`; returns how many they are.
// Writes up to kLanes entries.
inline int64_t append(uint32_t bits, Vec scores, int64_t first, int32_t* ids, float* values) {
#if defined(__AVX512F__)
    const __mmask16 mask = static_cast<__mmask16>(bits);
    const __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i all = _mm512_add_epi32(lanes, _mm512_set1_epi32(static_cast<int32_t>(first)));
    _mm512_storeu_si512(ids, _mm512_maskz_compress_epi32(mask, all));
    _mm512_storeu_ps(values, _mm512_maskz_compress_ps(mask, scores.v));
    return __builtin_popcount(bits);
#else
    float lanes[kLanes];
    store(lanes, scores);
    int64_t count = 0;
    for (; bits != 0; bits &= bits - 1) {
        const int lane = __builtin_ctz(bits);
        ids[count] = static_cast<int32_t>(first + lane);
        values[count++] = lanes[lane];
    }
    return count;
#endif
}

// The first `count` elements, then `rest`.
inline Vec load_part_or(const float* from, int64_t count, float rest) {
    float buffer[kLanes];
    for (int i = 0; i < kLanes; i++) buffer[i] = i < count ? from[i] : rest;
    return load(buffer);
}

// Adding 2^10 rounds to whole units: a double between 2^10 and 2^11 counts in them.
constexpr double kMassShift = 1024.0;
constexpr uint64_t kMassShiftBits = 0x4090000000000000;

typedef float HalfFloats __attribute__((vector_size(kLanes * 2)));
typedef double Doubles __attribute__((vector_size(kLanes * 4)));
typedef uint64_t Masses __attribute__((vector_size(kLanes * 4)));

// Masses of kLanes / 2 weights, each kMassShiftBits too large.
inline Masses shifted_masses(const HalfFloats& weights) {
    return (Masses)(__builtin_convertvector(weights, Doubles) + kMassShift);
}

inline void halves(Vec a, HalfFloats& low, HalfFloats& high) {
    std::memcpy(&low, &a, sizeof low);
    std::memcpy(&high, reinterpret_cast<const char*>(&a) + sizeof low, sizeof high);
}

class MassSum {
public:
    void add(Vec weights) {
        HalfFloats low, high;
        halves(weights, low, high);
        low_ += shifted_masses(low);
        high_ += shifted_masses(high);
        shifts_ += kLanes;
    }

    uint64_t total() const {
        const Masses both = low_ + high_;
        uint64_t sum = 0 - shifts_ * kMassShiftBits;  // all of it modulo 2^64
        for (int i = 0; i < kLanes / 2; i++) sum += both[i];
        return sum;
    }

private:
    Masses low_ = {}, high_ = {};
    uint64_t shifts_ = 0;
};

// The masses of kLanes weights.
inline void store_masses(uint64_t* to, Vec weights) {
    HalfFloats low, high;
    halves(weights, low, high);
    const Masses first = shifted_masses(low) - kMassShiftBits, second = shifted_masses(high) - kMassShiftBits;
    std::memcpy(to, &first, sizeof first);
    std::memcpy(to + kLanes / 2, &second, sizeof second);
}

}  // namespace headrace::HEADRACE_ISA::sampling
