// Softmax sums of several rows that are not yet divided: what attention over part of the keys leaves.
#pragma once

#include "tile.h"

namespace headrace::HEADRACE_ISA {

// For each row: `out` [rows, width], the weighted sum of values; `largest`, the greatest score; `total`, the sum of
// weights. A row that has seen no key has total 0.
struct Rows {
    float *out, *largest, *total;

    static int64_t floats(int64_t rows, int64_t width) { return rows * (width + 2); }

    static Rows at(float* memory, int64_t rows, int64_t width) {
        return {memory, memory + rows * width, memory + rows * width + rows};
    }

    void clear(int64_t rows, int64_t width) const {
        for (int64_t i = 0; i < rows * width; i++) out[i] = 0.0f;
        for (int64_t r = 0; r < rows; r++) {
            largest[r] = kMasked;
            total[r] = 0.0f;
        }
    }
};

// Adds row r of `more`, which saw later keys, to row r of `sums`. One that saw none changes nothing.
inline void merge_row(const Rows& sums, const Rows& more, int64_t r, int64_t width, float scale) {
    float *to = sums.out + r * width, *from = more.out + r * width;
    if (more.total[r] == 0.0f) return;
    if (sums.total[r] == 0.0f) {
        for (int64_t d = 0; d < width; d += kLanes) store(to + d, load(from + d));
        sums.largest[r] = more.largest[r];
        sums.total[r] = more.total[r];
        return;
    }
    const float a = sums.largest[r], b = more.largest[r], most = a > b ? a : b;
    const Vec keep = exp(broadcast((a - most) * scale)), take = exp(broadcast((b - most) * scale));
    for (int64_t d = 0; d < width; d += kLanes) store(to + d, fma(load(to + d), keep, load(from + d) * take));
    float factors[2][kLanes];
    store(factors[0], keep);
    store(factors[1], take);
    sums.largest[r] = most;
    sums.total[r] = sums.total[r] * factors[0][0] + more.total[r] * factors[1][0];
}

}  // namespace headrace::HEADRACE_ISA
