// `Vec` for any processor: four lanes of the compiler's vector extension.
#pragma once

#include <cstring>

#include "isa.h"

namespace headrace::HEADRACE_ISA {

constexpr int kLanes = 4;
constexpr int kMultiplyRows = 2;
constexpr int kMultiplyPanels = 1;

typedef float Float4 __attribute__((vector_size(16)));
typedef int32_t Int4 __attribute__((vector_size(16)));

struct Vec {
    Float4 v;
};

inline Vec broadcast(float a) { return {Float4{a, a, a, a}}; }
inline Vec zero() { return broadcast(0.0f); }
inline Vec operator+(Vec a, Vec b) { return {a.v + b.v}; }
inline Vec operator-(Vec a, Vec b) { return {a.v - b.v}; }
inline Vec operator*(Vec a, Vec b) { return {a.v * b.v}; }
inline Vec operator/(Vec a, Vec b) { return {a.v / b.v}; }
// Rounded twice: the compiler may not fuse it in one place and not in another (-ffp-contract=off).
inline Vec fma(Vec a, Vec b, Vec c) { return {a.v * b.v + c.v}; }
inline Vec max(Vec a, Vec b) { return {a.v > b.v ? a.v : b.v}; }
inline Vec min(Vec a, Vec b) { return {a.v < b.v ? a.v : b.v}; }

inline Vec load(const float* from) {
    Vec a;
    std::memcpy(&a.v, from, sizeof a.v);
    return a;
}

inline void store(float* to, Vec a) { std::memcpy(to, &a.v, sizeof a.v); }

inline Vec load(const BFloat16* from) {
    const Int4 wide{from[0].bits, from[1].bits, from[2].bits, from[3].bits};
    return {(Float4)(wide << 16)};
}

inline void store(BFloat16* to, Vec a) {
    for (int i = 0; i < kLanes; i++) {
        to[i] = narrow(a.v[i]);
    }
}

inline Vec load(const int8_t* from) {
    return {Float4{static_cast<float>(from[0]), static_cast<float>(from[1]), static_cast<float>(from[2]),
                   static_cast<float>(from[3])}};
}

inline void store_exact(BFloat16* to, Vec a) { store(to, a); }

// Order of every sum over lanes: neighbours, then the two sums.
inline float sum(Vec a) { return (a.v[0] + a.v[1]) + (a.v[2] + a.v[3]); }

inline float largest(Vec a) {
    const float x = a.v[0] > a.v[1] ? a.v[0] : a.v[1];
    const float y = a.v[2] > a.v[3] ? a.v[2] : a.v[3];
    return x > y ? x : y;
}

inline void sum_of_four(const Vec* a, float* to) {
    for (int i = 0; i < 4; i++) to[i] = sum(a[i]);
}

inline void largest_of_four(const Vec* a, float* to) {
    for (int i = 0; i < 4; i++) to[i] = largest(a[i]);
}

inline Vec scale_by_power(Vec a, Vec t) { return {a.v * (Float4)(((Int4)t.v << 23) + 0x3f800000)}; }

inline Vec zero_below(Vec a, Vec x, Vec bound) { return {(Float4)((Int4)a.v & ~(Int4)(x.v < bound.v))}; }

// The sums of a line's 16 columns.
struct LineSum {
    Float4 v[4];

    static LineSum zero() { return {}; }
    static LineSum load(const float* from) {
        LineSum sums;
        std::memcpy(sums.v, from, sizeof sums.v);
        return sums;
    }
    void store(float* to) const { std::memcpy(to, v, sizeof v); }

    template <class T>
    void add(const Line<T>& columns, const Four<T>& four) {
        for (int i = 0; i < 4; i++) multiply_add(v[i], columns.v[i], four);
    }
};

template <>
struct Line<float> {
    Float4 v[4];
    static Line load(const float* from) {
        Line line;
        std::memcpy(line.v, from, sizeof line.v);
        return line;
    }
};

template <>
struct Four<float> {
    float v;
    static Four load(const float* from) { return {*from}; }
};

inline void multiply_add(Float4& sum, Float4 columns, const Four<float>& four) { sum = sum + columns * four.v; }

template <>
struct Line<BFloat16> {
    Int4 v[4];
    static Line load(const BFloat16* from) {
        Line line;
        std::memcpy(line.v, from, sizeof line.v);
        return line;
    }
};

template <>
struct Four<BFloat16> {
    float even, odd;
    static Four load(const BFloat16* from) { return {widen(from[0]), widen(from[1])}; }
};

inline void multiply_add(Float4& sum, Int4 columns, const Four<BFloat16>& four) {
    const Float4 even = (Float4)(columns << 16), odd = (Float4)(columns & static_cast<int32_t>(0xffff0000));
    sum = sum + even * four.even;
    sum = sum + odd * four.odd;
}

}  // namespace headrace::HEADRACE_ISA
