// Arrays, for any processor. Without an fma: a product and its sum are rounded apart, so the last bits differ from
// those of the instruction sets that have one.
#pragma once

#include <cstring>

#include "formats.h"
#include "halves.h"

namespace headrace::HEADRACE_ISA {
namespace quantized {

struct Floats {
    float v[kColumns];
};
struct Ints {
    int32_t v[kColumns];
};
struct Four {
    int8_t v[4];
};

template <class T, class F>
inline T each(F f) {
    T out;
    for (int c = 0; c < kColumns; c++) out.v[c] = f(c);
    return out;
}

inline Floats spread(float a) {
    return each<Floats>([&](int) { return a; });
}
inline Floats zeros() { return spread(0.0f); }
inline Ints spread(int32_t a) {
    return each<Ints>([&](int) { return a; });
}
inline Ints load_ints(const int32_t* from) {
    return each<Ints>([&](int c) { return from[c]; });
}
inline Ints operator+(const Ints& a, const Ints& b) {
    return each<Ints>([&](int c) { return a.v[c] + b.v[c]; });
}
inline Floats operator*(const Floats& a, const Floats& b) {
    return each<Floats>([&](int c) { return a.v[c] * b.v[c]; });
}
inline Floats fma(const Floats& a, const Floats& b, const Floats& d) {
    return each<Floats>([&](int c) { return a.v[c] * b.v[c] + d.v[c]; });
}
inline Floats to_floats(const Ints& a) {
    return each<Floats>([&](int c) { return static_cast<float>(a.v[c]); });
}
inline void store(float* to, const Floats& a) { std::memcpy(to, a.v, sizeof a.v); }

inline Floats load_halves(const uint8_t* from) {
    return each<Floats>([&](int c) { return half_at(from + 2 * c); });
}
inline Floats load_bytes(const uint8_t* from) {
    return each<Floats>([&](int c) { return static_cast<float>(from[c]); });
}

inline Four load_four(const int8_t* from) {
    Four four;
    std::memcpy(four.v, from, sizeof four.v);
    return four;
}

struct Quants8 {
    uint8_t u[kLine];
};
struct Quants4 {
    uint8_t u[kLine];
};

inline Quants8 load_quants(const uint8_t* line) {
    Quants8 quants;
    std::memcpy(quants.u, line, kLine);
    return quants;
}
inline void load_quants(const uint8_t* line, Quants4& low, Quants4& high) {
    for (int i = 0; i < kLine; i++) {
        low.u[i] = line[i] & 15;
        high.u[i] = line[i] >> 4;
    }
}

inline Ints start8(int32_t bias) { return spread(bias); }

template <class Quants>
inline Ints dot(const Ints& sums, const Quants& w, Four a) {
    return each<Ints>([&](int c) {
        const uint8_t* u = w.u + 4 * c;
        return sums.v[c] + u[0] * a.v[0] + u[1] * a.v[1] + u[2] * a.v[2] + u[3] * a.v[3];
    });
}

}  // namespace quantized
}  // namespace headrace::HEADRACE_ISA
