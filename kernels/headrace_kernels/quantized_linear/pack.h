// Fills panels: from the blocks of a GGUF, whose quants and factors are moved and never changed, or from a matrix.
#pragma once

#include <cstring>

#include "activations.h"
#include "formats.h"
#include "halves.h"

namespace headrace::HEADRACE_ISA {
namespace quantized {

// One column of one panel, to be written group by group.
class Column {
public:
    Column(const Weight& weight, int64_t column)
        : kind_(weight.kind),
          panel_(const_cast<uint8_t*>(weight.data) + column / kColumns * weight.stride()),
          quants_(panel_ + factor_bytes(weight.kind, weight.groups)),
          column_(column % kColumns) {}

    void set_scale(int64_t group, uint16_t half) {
        set_half(group * (kind_ == kInt4 ? 4 : 2) * kColumns, half);
    }
    void set_minimum(int64_t group, uint16_t half) { set_half((group * 4 + 2) * kColumns, half); }

    void set_shared(int64_t group, uint16_t d, uint16_t e) {
        set_half(nested_shared(group), d);
        set_half(nested_shared(group) + 2 * kColumns, e);
    }
    void set_own(int64_t group, uint8_t s, uint8_t t) {
        panel_[nested_own(group) + column_] = s;
        panel_[nested_own(group) + kColumns + column_] = t;
    }

    // 32 quants below 256.
    void set_bytes(int64_t group, const uint8_t* quants) {
        for (int l = 0; l < 8; l++) std::memcpy(line(group * 8 + l), quants + 4 * l, 4);
    }
    // 16 bytes; byte i holds quant i in its low half and quant 16 + i in its high half.
    void set_halves(int64_t group, const uint8_t* pairs) {
        for (int l = 0; l < 4; l++) std::memcpy(line(group * 4 + l), pairs + 4 * l, 4);
    }
    // 32 quants below 16.
    void set_nibbles(int64_t group, const uint8_t* quants) {
        uint8_t pairs[kGroup / 2];
        for (int i = 0; i < kGroup / 2; i++) pairs[i] = static_cast<uint8_t>(quants[i] | quants[kGroup / 2 + i] << 4);
        set_halves(group, pairs);
    }

private:
    uint8_t* line(int64_t index) { return quants_ + index * kLine + 4 * column_; }
    void set_half(int64_t offset, uint16_t half) { std::memcpy(panel_ + offset + 2 * column_, &half, sizeof half); }

    Kind kind_;
    uint8_t* panel_;
    uint8_t* quants_;
    int64_t column_;
};

// Bytes of a GGUF block that `kind` takes as it is, and its elements of K.
constexpr int64_t block_bytes(Kind kind) {
    return kind == kInt8 ? 34 : kind == kInt4Symmetric ? 18 : kind == kInt4 ? 20 : 144;
}
constexpr int64_t block_elements(Kind kind) { return kind == kInt4Nested ? kNested * kGroup : kGroup; }

inline uint16_t bits_at(const uint8_t* from) {
    uint16_t bits;
    std::memcpy(&bits, from, sizeof bits);
    return bits;
}

// Q8_0: scale, 32 signed quants.
inline void take_q8_0(const uint8_t* block, int64_t group, Column& column) {
    uint8_t quants[kGroup];
    for (int64_t i = 0; i < kGroup; i++) quants[i] = block[2 + i] ^ 0x80;
    column.set_scale(group, bits_at(block));
    column.set_bytes(group, quants);
}

// Q4_0: scale, 16 pairs of quants; Q4_1: scale, minimum, the same.
inline void take_q4_0(const uint8_t* block, int64_t group, Column& column) {
    column.set_scale(group, bits_at(block));
    column.set_halves(group, block + 2);
}
inline void take_q4_1(const uint8_t* block, int64_t group, Column& column) {
    column.set_scale(group, bits_at(block));
    column.set_minimum(group, bits_at(block + 2));
    column.set_halves(group, block + 4);
}

// Q4_K: d, e, eight 6-bit scales and eight 6-bit minima in 12 bytes, then 32 bytes for every two groups: the low halves
// are the first group's quants, the high halves the second's.
inline void take_q4_k(const uint8_t* block, int64_t first_group, Column& column) {
    const uint8_t* packed = block + 4;
    column.set_shared(first_group, bits_at(block), bits_at(block + 2));
    for (int64_t g = 0; g < kNested; g++) {
        uint8_t s = packed[g] & 63, t = packed[g + 4] & 63;
        if (g >= 4) {
            s = static_cast<uint8_t>((packed[g + 4] & 15) | packed[g - 4] >> 6 << 4);
            t = static_cast<uint8_t>(packed[g + 4] >> 4 | packed[g] >> 6 << 4);
        }
        const uint8_t* pairs = block + 16 + g / 2 * kGroup;
        uint8_t quants[kGroup];
        for (int64_t i = 0; i < kGroup; i++) quants[i] = g % 2 ? pairs[i] >> 4 : pairs[i] & 15;
        column.set_own(first_group + g, s, t);
        column.set_nibbles(first_group + g, quants);
    }
}

inline void pack_blocks(const uint8_t* row, const Weight& weight, int64_t column_index) {
    Column column(weight, column_index);
    const int64_t step = block_elements(weight.kind) / kGroup;
    for (int64_t g = 0; g < weight.groups; g += step, row += block_bytes(weight.kind)) {
        switch (weight.kind) {
            case kInt8: take_q8_0(row, g, column); break;
            case kInt4Symmetric: take_q4_0(row, g, column); break;
            case kInt4: take_q4_1(row, g, column); break;
            default: take_q4_k(row, g, column);
        }
    }
}

// x to the nearest of scale * u + minimum, u in [0, most]. Ties go to even.
inline void round_to(const float* x, float scale, float minimum, float most, uint8_t* quants) {
    const float inverse = scale != 0.0f ? 1.0f / scale : 0.0f;
    for (int64_t i = 0; i < kGroup; i++) {
        const float u = (x[i] - minimum) * inverse;
        const float clamped = u > 0.0f ? (u < most ? u : most) : 0.0f;
        quants[i] = static_cast<uint8_t>(bits_of(clamped + kRoundingShift) - bits_of(kRoundingShift));
    }
}

// The scale of a group, which is NaN if one of its weights is NaN or infinite: nobody must take a quant for it.
inline uint16_t scale_of(const float* x, float scale) {
    constexpr uint16_t kNan = 0x7e00;
    float zero = 0.0f;
    for (int64_t i = 0; i < kGroup; i++) zero += x[i] * 0.0f;
    return zero == 0.0f ? float_to_half(scale) : kNan;
}

// 8 bits: the largest magnitude becomes 127 scales.
inline void quantize_8(const float* x, int64_t group, Column& column) {
    float largest = 0.0f;
    for (int64_t i = 0; i < kGroup; i++) largest = x[i] > largest ? x[i] : -x[i] > largest ? -x[i] : largest;
    const uint16_t half = scale_of(x, largest / 127.0f);
    const float scale = half_to_float(half);
    uint8_t quants[kGroup];
    round_to(x, scale, -128.0f * scale, 255.0f, quants);
    column.set_scale(group, half);
    column.set_bytes(group, quants);
}

// 4 bits: the least becomes 0 and the greatest 15.
inline void quantize_4(const float* x, int64_t group, Column& column) {
    float least = x[0], greatest = x[0];
    for (int64_t i = 1; i < kGroup; i++) {
        least = x[i] < least ? x[i] : least;
        greatest = x[i] > greatest ? x[i] : greatest;
    }
    const uint16_t scale = scale_of(x, (greatest - least) / 15.0f), minimum = float_to_half(least);
    uint8_t quants[kGroup];
    round_to(x, half_to_float(scale), half_to_float(minimum), 15.0f, quants);
    column.set_scale(group, scale);
    column.set_minimum(group, minimum);
    column.set_nibbles(group, quants);
}

template <class T>
void pack_matrix_row(const T* row, int64_t inner, const Weight& weight, int64_t column_index) {
    Column column(weight, column_index);
    for (int64_t g = 0; g < weight.groups; g++) {
        const int64_t left = inner - g * kGroup;
        float values[kGroup];
        widen(row + g * kGroup, left < kGroup ? left : kGroup, values);
        if (weight.kind == kInt8) {
            quantize_8(values, g, column);
        } else {
            quantize_4(values, g, column);
        }
    }
}

}  // namespace quantized
}  // namespace headrace::HEADRACE_ISA
